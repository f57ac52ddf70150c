"""Tests of malicious uploads through a proxy at work: each is refused, leaves nothing behind, and affects no other
client."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import pytest
from file_caller import BODY, TUS, Caller, served
from isthmus.app.config.settings import Uploads
from isthmus.core.wire.http.tus import format_metadata

FORM = "multipart/form-data; boundary=XyZ"
SIZE_MAX = 1 << 20


class World(NamedTuple):
    caller: Caller
    root: Path

    def stored(self) -> set[str]:
        return {file.name for file in (self.root / "blobs").iterdir()}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    root = tmp_path_factory.mktemp("hostile")
    with served(root, uploads=Uploads(max_file_bytes=SIZE_MAX, max_files_per_request=4)) as base_url:
        yield World(Caller(base_url), root)


def part(name: str, content: bytes, more: str = "") -> bytes:
    return f'--XyZ\r\nContent-Disposition: form-data; name="{name}"{more}\r\n\r\n'.encode() + content + b"\r\n"


def file_part(content: bytes = b"x", name: str = "a.txt") -> bytes:
    return part("file", content, f'; filename="{name}"')


END = b"--XyZ--\r\n"


def raw(url: str, method: str, *lines: str, body: bytes = b"") -> bytes:
    """The response to bytes sent as they are, up to the end of the connection, which the proxy is to close."""
    parts = urlsplit(url)
    head = [f"{method} {parts.path}?{parts.query} HTTP/1.1", f"Host: {parts.netloc}", *lines]
    with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=20) as plug:
        answer = bytearray()
        with contextlib.suppress(ConnectionResetError):  # unread data causes a reset after the answer
            plug.sendall("\r\n".join([*head, "", ""]).encode() + body)
            while piece := plug.recv(65536):
                answer += piece
    return bytes(answer)


# --- Bodies -----------------------------------------------------------------------------------------------------------

BODIES = {
    "thousands of tiny parts": (part("file", b"", '; filename="a"') * 5000 + END, 400),
    "thousands of fields": (part("sha256", b"0" * 64) * 5000 + END, 400),
    "many empty fields": (part("sha256", b"") * 200_000 + END, 413),
    "a giant header": (part("file", b"x", f'; filename="{"a" * 100_000}"') + END, 400),
    "many headers": (b"--XyZ\r\n" + b"X-A: b\r\n" * 5000 + b"\r\nx\r\n" + END, 400),
    "a head without an end": (b"--XyZ\r\nContent-Disposition: " + b"x" * 500_000, 400),
    "a preamble": (b"x" * 100_000 + file_part() + END, 400),
    "an epilogue": (file_part() + END + b"x" * 200_000, 413),
    "no end": (file_part(), 400),
    "no disposition": (b"--XyZ\r\nContent-Type: text/plain\r\n\r\nx\r\n" + END, 400),
    "another field": (part("path", b"/etc/passwd") + END, 400),
    "no file name": (part("file", b"x") + END, 400),
    "an encoding": (b'--XyZ\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n'
                    b"Content-Transfer-Encoding: base64\r\n\r\neA==\r\n" + END, 400),
    "too large a file": (file_part(b"x" * (SIZE_MAX + 1)) + END, 413),
    "too many files": (file_part() * 5 + END, 400),
    "another hash": (file_part() + part("sha256", b"0" * 64) + END, 400),
    "nothing": (b"", 400),
}  # fmt: skip


@pytest.mark.parametrize("name", BODIES)
def test_a_hostile_form_leaves_nothing_and_can_be_mended(world: World, name: str) -> None:
    body, status = BODIES[name]
    link, before = world.caller.link(), world.stored()
    refused = raw(link, "POST", f"Content-Type: {FORM}", f"Content-Length: {len(body)}", "Connection: close", body=body)
    assert refused.split(b" ", 2)[1] == b"%d" % status, refused[:300]
    assert len(refused) < 4096, "an answer is no echo"
    assert world.stored() == before
    good = world.caller.fetch("POST", link, {"Content-Type": FORM}, file_part(b"hello") + END)
    assert good.status == 200
    assert world.caller.content(good.json["upload_handle"]) == b"hello"


def test_a_form_within_a_form_is_content(world: World) -> None:
    """The inner form may have any boundary."""
    for boundary in (b"XyZZ", b"XyZ-", b"yZ"):
        inner = (file_part(b"inner") + END).replace(b"--XyZ", b"--" + boundary)
        if boundary.startswith(b"XyZ"):
            inner = b"-" + inner.replace(b"\r\n--", b"\r\n -")  # our boundary would end the part
        reply = world.caller.fetch("POST", world.caller.link(), {"Content-Type": FORM}, file_part(inner) + END)
        assert (reply.status, reply.json["count"]) == (200, 1)
        assert world.caller.content(reply.json["upload_handle"]) == inner


def test_a_body_shorter_than_it_says_leaves_nothing(world: World) -> None:
    link, before = world.caller.link(), world.stored()
    body = file_part(b"x" * 1000) + END
    for method, type, length in (("POST", FORM, len(body) + 1), ("PUT", "text/plain", 5000)):
        world.caller.drop(method, link, {"Content-Type": type, "Content-Length": str(length)}, body)
        assert world.stored() == before
    assert world.caller.fetch("PUT", link, {}, b"x").status == 200


def test_what_follows_a_body_is_no_part_of_it(world: World) -> None:
    link = world.caller.link()
    answer = raw(link, "PUT", "Content-Length: 5", body=b"hello and more\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200") and b'"size_bytes":5' in answer
    assert b"HTTP/1.1 400" in answer, "it was no request either"


@pytest.mark.parametrize(
    "lines, body",
    [
        (("Transfer-Encoding: chunked", "Content-Length: 5"), b"5\r\nhello\r\n0\r\n\r\n"),
        (("Transfer-Encoding: chunked",), b"zz\r\nhello\r\n0\r\n\r\n"),
        (("Transfer-Encoding: chunked",), b"FFFFFFFFFFFFFFFFFFFFFFFFFF\r\nhello"),
        (("Transfer-Encoding: gzip, chunked",), b"5\r\nhello\r\n0\r\n\r\n"),
        (("Content-Length: 5", "Content-Length: 6"), b"hello!"),
        (("Content-Length: +5",), b"hello"),
        (("Content-Length: 0x5",), b"hello"),
    ],
)
def test_a_body_framed_in_two_ways_is_refused(world: World, lines: tuple[str, ...], body: bytes) -> None:
    link, before = world.caller.link(), world.stored()
    answer = raw(link, "PUT", *lines, body=body)
    assert answer.split(b" ", 2)[1] in (b"400", b"501")
    assert world.stored() == before


@pytest.mark.parametrize(
    "method, lines",
    [
        ("PUT", ()),
        ("POST", (f"Content-Type: {FORM}",)),
        ("POST", ("Tus-Resumable: 1.0.0", f"Content-Type: {BODY['Content-Type']}", "Upload-Length: 2000")),
    ],
)
def test_expect_continue_is_refused_before_the_body_is_sent(world: World, method: str, lines: tuple[str, ...]) -> None:
    """An invalid link, or a body that is too large, costs its client nothing."""
    link = world.caller.link()
    forged = link[:-1] + ("1" if link[-1] == "0" else "0")
    for url, size, status in ((forged, 2000, b"403"), (link, 100 << 20, b"413")):
        answer = raw(url, method, *lines, "Expect: 100-continue", f"Content-Length: {size}")
        assert answer.split(b" ", 2)[1] == status
        assert b"100 Continue" not in answer
    with world.caller.plug("PUT", link, {"Expect": "100-continue", "Content-Length": "5"}) as plug:
        assert plug.recv(25) == b"HTTP/1.1 100 Continue\r\n\r\n"
        plug.sendall(b"hello")
        assert plug.recv(12) == b"HTTP/1.1 200"


# --- Links ------------------------------------------------------------------------------------------------------------


def altered(link: str, **changes: str | None) -> str:
    url = urlsplit(link)
    query = {name: value for name, value in {**dict(parse_qsl(url.query)), **changes}.items() if value is not None}
    return url._replace(query=urlencode(query)).geturl()


@pytest.mark.parametrize("method", ["POST", "PUT", "tus"])
def test_links_that_were_made_up_or_used_are_refused(world: World, method: str) -> None:
    caller, before = world.caller, world.stored()
    link = caller.link()
    grant = dict(parse_qsl(urlsplit(link).query))["grant"]
    other = dict(parse_qsl(urlsplit(caller.link()).query))

    def send(url: str, **headers: str) -> int:
        if method == "tus":
            return caller.fetch("POST", url, {**BODY, "Upload-Length": "5", **headers}, b"hello").status
        if method == "PUT":
            return caller.fetch("PUT", url, headers, b"hello").status
        return caller.fetch("POST", url, {"Content-Type": FORM, **headers}, file_part(b"hello") + END).status

    for bad in (
        altered(link, grant=None),
        altered(link, grant=grant[:-22] + other["grant"][-22:]),
        altered(link, grant=other["grant"][:-22] + grant[-22:]),
        altered(link, grant=grant[:-22] + "0" * 22),
        altered(link, grant=grant + "0" * 4000),
        altered(link, grant="../../etc"),
        link.replace("/upload/a", "/upload/b"),
        link + "&grant=" + other["grant"],
    ):
        assert send(bad) in (400, 403, 404)
    assert world.stored() == before
    assert send(link, **{"Mcp-Session-Id": caller.session}) < 300
    assert send(link) == 403, "once"


def test_a_link_outlives_its_session(world: World) -> None:
    caller = Caller(world.caller.base_url)
    link, made = caller.link(), caller.fetch("POST", caller.link(), {**TUS, "Upload-Length": "5"})
    url = made.headers["location"]
    caller.end()
    assert caller.fetch("PUT", link, {}, b"x").status == 200
    assert caller.fetch("PATCH", url, {**BODY, "Upload-Offset": "0"}, b"hello").status == 204


# --- Names ------------------------------------------------------------------------------------------------------------

NAMES = [
    "../../../../etc/passwd",
    "..",
    ".",
    "",
    "/etc/passwd",
    "C:\\Windows\\system32\\a.txt",
    "CON",
    "nul.txt",
    "COM1.png",
    "a\0b.txt",
    "a\r\nSet-Cookie: x=y.txt",
    "\u202etxt.exe",
    "\ufeff\u200ba.txt",
    "a" * 4096 + ".txt",
    "é" * 2048 + ".pdf",
    "👩‍👩‍👧" * 100 + ".png",
    "~",
    "-rf",
    "a/b\\c:d*e?f\"g<h>i|j.txt",
    ".htaccess",
    " . ",
    "%2e%2e%2fpasswd",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_a_label_and_leads_nowhere(world: World, name: str) -> None:
    """The tool is given a file in a folder of its own, with the sent content, however the name is transmitted."""
    caller = world.caller
    put = caller.fetch("PUT", caller.link(), {"X-Filename": quote(name, safe="")}, b"put")
    posted = caller.fetch("POST", caller.link(), {"Content-Type": FORM}, file_part(b"post", quoted(name)) + END)
    for reply, content in ((put, b"put"), (posted, b"post")):
        if reply.status != 200:
            assert reply.status == 400 and (reply is posted or len(quote(name, safe="")) > 8192)
            continue
        filename = reply.json["upload"]["filename"]
        assert 0 < len(filename.encode()) <= 255
        assert not set(filename) & set("/\\\0\r\n") and filename not in (".", "..")
        assert "\u202e" not in filename
        handle = reply.json["upload_handle"]
        (block,) = caller.call("echo", text=handle)["content"]
        path = Path(block["text"].removeprefix("a says "))
        assert path.read_bytes() == content
        assert path.resolve().is_relative_to(world.root / "workspaces")


def quoted(name: str) -> str:
    """The name as browsers put it into a form."""
    return name.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")


def test_a_hostile_tus_name_is_a_label_too(world: World) -> None:
    for name in ("../../x", "a\0b", "\u202etxt.exe"):
        headers = {**BODY, "Upload-Length": "5", "Upload-Metadata": format_metadata({"filename": name})}
        made = world.caller.fetch("POST", world.caller.link(), headers, b"hello")
        filename = world.caller.fetch("GET", made.headers["location"]).json["upload"]["filename"]
        assert not set(filename) & set("/\\\0\u202e")
