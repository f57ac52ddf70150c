"""Tests of uploaded documents that come back as Markdown from a server without access to the client's disk.

The server is Microsoft's, behind `isthmus serve` with the example configuration. The official client asks for the
documents. The rules of uploads are tested with a bare client and requests made by hand.
"""

from __future__ import annotations

import io
import json
import socket
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import filing
import pytest
import rig
from filing import Client, Reply, blobs, complaint, fetch, form, post, sha256, texts
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client
from mcp.types import TextContent

pytestmark = pytest.mark.real

MIB = 1024 * 1024
FILE_MAX = 6 * MIB
SESSION_MAX = 40 * MIB
HELPER = "markitdown_get_upload_url"
PUT = "markitdown_put_file"


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("markitdown")


@pytest.fixture(scope="module")
def root(folder: Path) -> Path:
    return folder / "data"


@pytest.fixture(scope="module")
def proxy(folder: Path, root: Path) -> Iterator[rig.Proxy]:
    settings = filing.example("markitdown", [rig.require(rig.MARKITDOWN)])
    settings["uploads"] |= {"max_file_bytes": FILE_MAX, "max_files_per_request": 3}
    settings["sessions"] |= {"max_total_session_size": SESSION_MAX, "file_scope": "session"}
    with filing.gateway(folder, settings) as proxy:
        yield proxy
        rig.until(lambda: not filing.workspaces(root) and not blobs(root), "all of ended sessions to go")


@pytest.fixture(scope="module")
def client(proxy: rig.Proxy) -> Iterator[Client]:
    with filing.session(proxy.url) as client:
        yield client


# --- Documents ------------------------------------------------------------------------------------------------------


def docx(*paragraphs: str) -> bytes:
    """Returns the smallest Word document."""
    main = "application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"
    relations = "application/vnd.openxmlformats-package.relationships+xml"
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument"
    word = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
    package = "http://schemas.openxmlformats.org/package/2006"
    body = "".join(f"<w:p><w:r><w:t>{text}</w:t></w:r></w:p>" for text in paragraphs)
    files = {
        "[Content_Types].xml": f'<Types xmlns="{package}/content-types"><Default Extension="rels" '
        f'ContentType="{relations}"/><Override PartName="/word/document.xml" ContentType="{main}"/></Types>',
        "_rels/.rels": f'<Relationships xmlns="{package}/relationships"><Relationship Id="r1" Type="{office}" '
        'Target="word/document.xml"/></Relationships>',
        "word/document.xml": f'<w:document xmlns:w="{word}"><w:body>{body}</w:body></w:document>',
    }
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(name, f'<?xml version="1.0" encoding="UTF-8"?>{text}')
    return packed.getvalue()


def pdf(text: str) -> bytes:
    """Returns the smallest PDF with one line on one page."""
    drawing = f"BT /F1 24 Tf 72 720 Td ({text}) Tj ET".encode()
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R"
        b" /Resources << /Font << /F1 << /Type /Font /Subtype /Type1 /BaseFont /Helvetica >> >> >> >>",
        b"<< /Length %d >>\nstream\n%b\nendstream" % (len(drawing), drawing),
    ]
    written = b"%PDF-1.4\n"
    offsets = []
    for number, content in enumerate(objects, 1):
        offsets.append(len(written))
        written += b"%d 0 obj\n%b\nendobj\n" % (number, content)
    table = b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    count = len(objects) + 1
    head = b"xref\n0 %d\n0000000000 65535 f \n%btrailer\n<< /Size %d /Root 1 0 R >>\n" % (count, table, count)
    return written + head + b"startxref\n%d\n%%%%EOF\n" % len(written)


@pytest.mark.anyio
async def test_documents_become_markdown(proxy: rig.Proxy) -> None:
    """The official client finds the helper, uploads, and converts."""
    documents = {
        "Report.docx": (docx("Quarterly numbers", "Äpfel &amp; Birnen"), ["Quarterly numbers", "Äpfel & Birnen"]),
        "Hello.pdf": (pdf("Hello from a PDF"), ["Hello from a PDF"]),
        "Übersicht – 日本 (2).csv": ("Größe,Wert\nä,1\n".encode(), ["| Größe | Wert |", "| ä | 1 |"]),
    }
    async with (
        streamable_http_client(proxy.url) as (receiving, sending, _),
        ClientSession(receiving, sending) as client,
    ):
        await client.initialize()
        helper, put, convert = (await client.list_tools()).tools
        assert (helper.name, put.name, convert.name) == (HELPER, PUT, "convert_to_markdown")
        assert HELPER in convert.inputSchema["properties"]["uri"]["description"]
        for name, (content, expected) in documents.items():
            offer = (await client.call_tool(HELPER)).structuredContent
            assert offer is not None
            reply = post(offer["upload_url"], (name, content), hashes=[sha256(content)])
            assert reply.json["upload"]["filename"] == name
            for handle in (reply.json["upload_handle"], f"{reply.json['upload_handle']}/{name}"):
                result = await client.call_tool("convert_to_markdown", {"uri": handle})
                (block,) = result.content
                assert isinstance(block, TextContent)
                assert not result.isError, block.text
                assert [line for line in expected if line not in block.text] == []


def test_an_invalid_handle_is_explained(client: Client) -> None:
    """A web address is no handle either: this adapter takes uploads only."""
    for uri in ("https://example.com/x.pdf", "file:///etc/hostname", "/etc/hostname", "data:x", 7, ["a"], {"a": 1}):
        message = complaint(client.call("convert_to_markdown", {"uri": uri}))
        assert message.startswith("Argument uri")
        assert HELPER in message
    assert "uri" in complaint(client.call("convert_to_markdown", {}))  # the error comes from the server


def test_a_document_comes_in_arguments(client: Client) -> None:
    """A document is put in two parts, or stands in place of the handle as a `data:` URI or as a resource."""
    first = client.call(PUT, {"filename": "t.csv", "text": "a,b\n", "more": True})["structuredContent"]
    whole = {
        "filename": "t.csv",
        "base64": "MSwyCg==",
        "append_to": first["upload_id"],
        "sha256": sha256(b"a,b\n1,2\n"),
    }
    put = client.call(PUT, whole)["structuredContent"]
    resource = {"uri": "file:///home/me/t.csv", "text": "a,b\n1,2\n"}
    for uri in (put["upload_handle"], "data:text/csv;base64,YSxiCjEsMgo=", "data:text/csv,a,b%0A1,2%0A", resource):
        (block,) = client.call("convert_to_markdown", {"uri": uri})["content"]
        assert block["text"] == "| a | b |\n| --- | --- |\n| 1 | 2 |"


# --- Uploading ------------------------------------------------------------------------------------------------------


def refused(reply: Reply, status: int, code: str) -> str:
    assert (reply.status, reply.json["code"]) == (status, code), reply
    assert set(reply.json) == {"detail", "code"}
    detail: str = reply.json["detail"]
    return detail


def test_a_large_file_passes(client: Client) -> None:
    line = "a line of text that is forty bytes long.\n"
    content = (line * (5 * MIB // len(line) + 1)).encode()
    reply = post(client.offer()["upload_url"], ("large.txt", content))
    assert reply.json["upload"]["size_bytes"] == len(content) > 5 * MIB
    assert reply.json["upload"]["sha256"] == sha256(content)
    (text,) = texts(client.call("convert_to_markdown", {"uri": reply.json["upload_handle"]}))
    assert text.count("forty bytes long.") == content.count(b"\n")


def test_a_file_over_the_limit_leaves_nothing(client: Client, root: Path) -> None:
    """The file before it is dropped too, and the link still works for a smaller one."""
    before = blobs(root)
    url = client.offer()["upload_url"]
    detail = refused(post(url, ("big.bin", b"x" * (FILE_MAX + 1))), 413, "file_too_large")
    assert str(FILE_MAX) in detail
    refused(post(url, ("good.txt", b"good"), ("big.bin", b"x" * (FILE_MAX + 1))), 413, "file_too_large")
    refused(post(url, *((f"{at}.txt", b"x") for at in range(4))), 400, "too_many_files")
    assert blobs(root) == before
    assert post(url, ("exact.bin", b"x" * FILE_MAX)).status == 200
    assert len(blobs(root)) == len(before) + 1


def test_a_body_too_large_is_refused_at_its_announcement(client: Client, root: Path) -> None:
    """Three files of the largest size are the maximum of a request. A larger one is refused before its body."""
    before = blobs(root)
    link = urlsplit(client.offer()["upload_url"])
    assert link.hostname is not None
    with socket.create_connection((link.hostname, link.port or 80), timeout=filing.TIMEOUT_S) as connection:
        content_type, _ = form()
        connection.sendall(
            f"POST {link.path}?{link.query} HTTP/1.1\r\nHost: {link.netloc}\r\nContent-Type: {content_type}\r\n"
            f"Content-Length: {10 * FILE_MAX}\r\n\r\n".encode()
        )
        answer = connection.recv(4096)  # the body was never sent
    assert answer.startswith(b"HTTP/1.1 413 "), answer
    assert blobs(root) == before


def test_an_interrupted_upload_leaves_nothing(client: Client, root: Path) -> None:
    before = blobs(root)
    url = client.offer()["upload_url"]
    link = urlsplit(url)
    assert link.hostname is not None
    content_type, body = form(("half.bin", b"x" * MIB))
    with socket.create_connection((link.hostname, link.port or 80), timeout=filing.TIMEOUT_S) as connection:
        head = f"POST {link.path}?{link.query} HTTP/1.1\r\nHost: {link.netloc}\r\nContent-Type: {content_type}\r\n"
        connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body[: MIB // 2])
        rig.until(lambda: blobs(root) != before, "the file to be begun")
    rig.until(lambda: blobs(root) == before, "the half file to go")
    assert post(url, ("whole.bin", b"x")).status == 200


def test_a_link_works_once(client: Client, root: Path) -> None:
    url = client.offer()["upload_url"]
    assert post(url, ("first.txt", b"first")).status == 200
    before = blobs(root)
    detail = refused(post(url, ("second.txt", b"second")), 403, "bad_credential")
    assert HELPER in detail
    assert blobs(root) == before


def test_a_forged_link_is_refused(client: Client, root: Path) -> None:
    before = blobs(root)
    url = client.offer()["upload_url"]
    last = "1" if url.endswith("0") else "0"
    for forged in (
        url[:-1] + last,
        url[:-22],
        url.partition("?")[0],
        url.replace("grant=", "grant=0"),
    ):
        refused(post(forged, ("x.txt", b"x")), 403, "bad_credential")
    assert post(url.replace("/upload/markitdown", "/upload/other"), ("x.txt", b"x")).status == 404
    assert fetch(url).status == 405
    content_type, body = form(("x.txt", b"x"))
    headers = {"Content-Type": content_type, "Mcp-Session-Id": "0" * 32}
    refused(fetch(url, method="POST", headers=headers, body=body), 403, "session_mismatch")
    assert blobs(root) == before
    assert post(url, ("x.txt", b"x")).status == 200


def test_several_files_in_one_request(client: Client) -> None:
    contents = {"one.txt": b"the first", "zwei – 日本.txt": "das zweite ä".encode()}
    reply = post(client.offer()["upload_url"], *contents.items(), hashes=[sha256(c) for c in contents.values()])
    assert reply.status == 200
    assert (reply.json["count"], len(set(reply.json["upload_handles"]))) == (2, 2)
    assert not {"upload", "upload_handle"} & set(reply.json)  # they would not tell which of the files
    for handle, upload, (name, content) in zip(
        reply.json["upload_handles"], reply.json["uploads"], contents.items(), strict=True
    ):
        assert (upload["upload_handle"], upload["filename"], upload["sha256"]) == (handle, name, sha256(content))
        assert texts(client.call("convert_to_markdown", {"uri": handle})) == [content.decode()]


def test_hashes_are_checked(client: Client, root: Path) -> None:
    before = blobs(root)
    url = client.offer()["upload_url"]
    one, two = ("1.txt", b"one"), ("2.txt", b"two")
    detail = refused(post(url, one, hashes=[sha256(b"other")]), 400, "sha256_mismatch")
    assert sha256(b"one") in detail
    refused(post(url, one, two, hashes=[sha256(b"two"), sha256(b"one")]), 400, "sha256_mismatch")
    refused(post(url, one, two, hashes=[sha256(b"one")]), 400, "sha256_count")
    refused(post(url, one, hashes=["abc"]), 400, "malformed")
    assert blobs(root) == before
    assert post(url, one, two, hashes=[sha256(b"one"), sha256(b"two").upper()]).status == 200


def test_an_invalid_form_is_refused(client: Client, root: Path) -> None:
    before = blobs(root)
    url = client.offer()["upload_url"]
    content_type, body = form(("x.txt", b"x"))
    cases: dict[str, tuple[str, bytes, int]] = {
        "JSON": ("application/json", json.dumps({"file": "x"}).encode(), 415),
        "no boundary": ("multipart/form-data", body, 400),
        "cut off": (content_type, body[:-20], 400),
        "empty": (content_type, b"", 400),
        "no file": (content_type, form()[1], 400),
        "text for a file": (content_type, body.replace(b'; filename="x.txt"', b""), 400),
        "other field": (content_type, body.replace(b'name="file"', b'name="document"'), 400),
    }
    for name, (type, content, status) in cases.items():
        reply: Any = fetch(url, method="POST", headers={"Content-Type": type}, body=content)
        assert (name, reply.status, set(reply.json)) == (name, status, {"detail", "code"})
    assert blobs(root) == before
    assert post(url, ("x.txt", b"x")).status == 200


def test_names_are_kept_as_far_as_they_are_safe(client: Client) -> None:
    """Names keep everything that is safe, and cannot lead out of their folder."""
    long = "ü" * 200 + ".docx"
    names = {
        "plain.txt": "plain.txt",
        "with space & (1) – 日本.txt": "with space & (1) – 日本.txt",
        "../../etc/passwd": "passwd",
        "C:\\\\Users\\\\me\\\\report.txt": "report.txt",
        "..": "upload",
        "a\u202etxt.exe": "a_txt.exe",
        "e\u0301.txt": "é.txt",
        long: "ü" * 125 + ".docx",
    }
    for sent, kept in names.items():
        upload = post(client.offer()["upload_url"], (sent, b"text")).json["upload"]
        assert upload["filename"] == kept
        (text,) = texts(client.call("convert_to_markdown", {"uri": f"upload://sessions/{_sid(client)}/"
                                                                   f"{upload['upload_id']}"}))  # fmt: skip
        assert text == "text" or kept.endswith(".docx")


def _sid(client: Client) -> str:
    sid: str = client.offer()["session_id"]
    return sid


def test_a_session_has_a_storage_limit(client: Client, proxy: rig.Proxy, root: Path) -> None:
    """The limit counts the files of a session together. A file that does not fit evicts the oldest, and the agent is
    told so."""
    with filing.session(proxy.url) as full:
        before, count = len(blobs(root)), SESSION_MAX // FILE_MAX
        handles = [full.upload(("some.txt", b"x" * FILE_MAX))[0] for _ in range(count + 1)]
        rig.until(lambda: len(blobs(root)) == before + count, "the oldest to go")
        assert "made room" in complaint(full.call("convert_to_markdown", {"uri": handles[0]}))
        small = full.upload(("small.txt", b"still fits"))
        assert texts(full.call("convert_to_markdown", {"uri": small[0]})) == ["still fits"]
    rig.until(lambda: len(blobs(root)) == before, "the files of the ended session to go")
    assert "Unknown upload handle" in complaint(client.call("convert_to_markdown", {"uri": handles[0]}))
