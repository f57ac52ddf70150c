"""Tests of released servers that work with local paths, for a client that shares no disk with them.

Each server goes through the same conversation twice: with the adapters of `examples/files`, and behind `isthmus wrap
--files` without any. Inputs are uploads and files of earlier calls. Files that a call makes come back as artifacts, and
no path of this machine is shown.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
import struct
import zipfile
import zlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import filing
import pytest
import rig
from filing import Client, artifacts_of, content_of, texts
from mcp import ClientSession, types
from mcp.client.streamable_http import streamable_http_client
from one_loop import anyio_backend  # noqa: F401 (a fixture)
from page_server import HEADING, page

pytestmark = pytest.mark.real

WAYS: Final = ("example", "wrap")
"""`isthmus serve` with the file of examples/files, and `isthmus wrap --files` with the command alone."""

COMMANDS: Final = {
    "markitdown": [],
    "pandoc": [],
    "word": [],
    "excel": ["stdio", "--allow-dir", "{ws}", "--allow-dir", "{in}"],  # otherwise it takes absolute paths only
    "filesystem": ["{ws}"],
}
"""The arguments of each server behind `isthmus wrap --files`."""

HELPER: Final = "mcp_pandoc_get_upload_url"
"""The helper's name. Behind `isthmus wrap` a server has the name of its program."""


class Served(NamedTuple):
    """A server behind the proxy.

    Attributes:
        folder: a path that no answer may contain.
    """

    way: str
    proxy: rig.Proxy
    folder: Path


@pytest.fixture(scope="module")
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The server that a test is parametrized with, started once for all such tests. Each start and each session is a
    process that needs seconds of CPU time for its imports."""
    server, way = request.param
    folder = tmp_path_factory.mktemp(server)
    if way == "example":
        gateway = filing.gateway(folder, filing.shipped(server))
    else:
        program = rig.require(filing.PROGRAMS[server].path)
        options = ["--files", "--storage", str(folder / "data")]
        gateway = rig.wrap(program, *COMMANDS[server], folder=folder, options=options)
    with gateway as proxy:
        yield Served(way, proxy, folder)


def with_server(server: str, *ways: str) -> pytest.MarkDecorator:
    cases = [(server, way) for way in ways or WAYS]
    return pytest.mark.parametrize(
        "served", cases, indirect=True, ids=["-".join(case) for case in cases], scope="module"
    )


@contextlib.contextmanager
def conversation(served: Served) -> Iterator[User]:
    """A session, after which nothing of it is left."""
    data = served.folder / "data"
    with filing.session(served.proxy.url) as client:
        before = set(filing.workspaces(data))
        yield User(client, served.folder, is_auto=served.way == "wrap")
    rig.until(lambda: not (set(filing.workspaces(data)) - before), "the folders of the session to go")


class User:
    """A client that checks every answer for paths of this machine.

    Args:
        folder: a path that no answer may contain.
        is_auto: True to check answers of tools that make no files too. An example's adapters do not cover those.
    """

    def __init__(self, client: Client, folder: Path, *, is_auto: bool) -> None:
        self._client = client
        self._folder = str(folder)
        self._is_auto = is_auto
        self.seen: set[str] = set()

    def upload(self, name: str, content: bytes) -> str:
        (handle,) = self._client.upload((name, content))
        return handle

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Returns the result of a tool, good or bad."""
        result = self._client.call(tool, arguments)
        shown = json.dumps(result, ensure_ascii=False)
        artifacts = artifacts_of(result)
        assert self._folder not in shown or not (self._is_auto or artifacts), shown
        assert "artifact_error" not in result.get("_meta", {}), shown
        for artifact in artifacts:
            assert artifact["artifact_id"] not in self.seen, "no file is taken in twice"
            self.seen.add(artifact["artifact_id"])
        return result

    def make(self, tool: str, **arguments: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Returns the result of a tool that makes exactly one file, and that artifact."""
        result = self.call(tool, **arguments)
        assert not result.get("isError"), result
        (artifact,) = artifacts_of(result)
        return result, artifact

    def read(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Returns the result of a tool that makes no file."""
        result = self.call(tool, **arguments)
        assert not result.get("isError"), result
        assert artifacts_of(result) == []
        return result

    def refused(self, tool: str, **arguments: Any) -> str:
        return filing.complaint(self.call(tool, **arguments))


def png() -> bytes:
    """Returns an image of one pixel."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    pixel = zlib.compress(b"\0\xff\0\0")
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixel) + chunk(b"IEND", b"")


def packed(document: bytes) -> list[str]:
    """Returns the names of the members of a document that is a zip file."""
    with zipfile.ZipFile(io.BytesIO(document)) as archive:
        return archive.namelist()


# --- Conversations --------------------------------------------------------------------------------------------------


@with_server("markitdown")
def test_markitdown(served: Served) -> None:
    """The server takes URIs only. A handle becomes the URI of a file, and other URIs pass."""
    with conversation(served) as user, page() as site:
        handle = user.upload("Zähler 1.csv", b"n,v\na,1\n")
        table = "| n | v |\n| --- | --- |\n| a | 1 |"
        for spelling in (handle, f"{handle}/Z%C3%A4hler%201.csv", f"file://{handle}"):
            result = user.read("convert_to_markdown", uri=spelling)
            assert texts(result) == [table]
            assert result["structuredContent"] == {"result": table}
        data = "data:text/csv;base64," + base64.b64encode(b"n,v\na,1\n").decode()
        assert texts(user.read("convert_to_markdown", uri=data)) == [table]
        assert f"# {HEADING}" in texts(user.read("convert_to_markdown", uri=site))[0]
        assert "Unsupported URI scheme: ftp" in user.refused("convert_to_markdown", uri="ftp://127.0.0.1/x")
        sid = handle.split("/")[-2]
        unknown = f"upload://sessions/{sid}/{'0' * 32}"
        assert user.refused("convert_to_markdown", uri=unknown).startswith(f"Unknown upload handle {unknown}")


@with_server("pandoc")
def test_pandoc(served: Served) -> None:
    """The output of one call is the input of the next."""
    with conversation(served) as user:
        handle = user.upload("a.md", b"# Title\n\nHello *there*\n")
        formats = {"input_format": "markdown", "output_format": "docx"}
        result, document = user.make("convert-contents", input_file=handle, output_file="über uns.docx", **formats)
        assert document["filename"] == "über uns.docx"
        assert "word/document.xml" in packed(content_of(document))
        assert texts(result)[0] == f"File successfully converted and saved to: {document['artifact_uri']}"

        formats = {"input_format": "docx", "output_format": "html"}
        again, page = user.make(
            "convert-contents", input_file=document["artifact_uri"], output_file="again.html", **formats
        )
        assert "<em>there</em>" in content_of(page).decode()
        assert texts(again)[0] == f"File successfully converted and saved to: {page['artifact_uri']}"

        formats = {"input_format": "docx", "output_format": "markdown"}
        inline = user.read("convert-contents", input_file=document["artifact_uri"], **formats)
        assert "Hello *there*" in texts(inline)[0]
        no_file = user.refused("convert-contents", contents="# Hi", output_format="docx")
        assert "output_file path is required for docx format" in no_file


@with_server("word")
def test_word(served: Served) -> None:
    """The server edits in place, names files otherwise than asked, and repeats its arguments."""
    with conversation(served) as user:
        created, report = user.make("create_document", filename="report", title="T")
        assert report["filename"] == "report.docx"
        assert texts(created)[0] == f"Document {report['artifact_uri']} created successfully"
        _, longer = user.make("add_paragraph", filename="report.docx", text="hello")
        assert content_of(longer) != content_of(report)

        logo = user.upload("logo.png", png())
        pictured, with_logo = user.make("add_picture", filename="report.docx", image_path=logo, width=1)
        assert with_logo["filename"] == "report.docx"
        assert any(name.startswith("word/media/") for name in packed(content_of(with_logo)))
        assert "report.docx" in texts(pictured)[0]

        _, copy = user.make("copy_document", source_filename="report.docx")
        assert copy["filename"] == "report_copy.docx"
        assert content_of(copy) == content_of(with_logo)
        for named in ("report_copy.docx", copy["artifact_uri"]):
            assert "hello" in texts(user.read("get_document_text", filename=named))[0]
        assert texts(user.read("get_document_text", filename="none.docx")) == ["Document none.docx does not exist"]

        _, edited = user.make("add_heading", filename=copy["artifact_uri"], text="A heading", level=1)
        assert "A heading" in texts(user.read("get_document_text", filename=edited["artifact_uri"]))[0]


@with_server("excel")
def test_excel(served: Served) -> None:
    """A workbook goes from call to call as an artifact, and each version stays unchanged."""
    with conversation(served) as user:
        created, empty = user.make("create_workbook", path="book.xlsx", sheets=["Data"])
        assert created["structuredContent"] == {"path": empty["artifact_uri"]}
        assert json.loads(texts(created)[0]) == created["structuredContent"]

        rows = [["n", "v"], ["a", 1], ["b", 2]]
        _, filled = user.make("write_range", path=empty["artifact_uri"], sheet="Data", at="A1", rows=rows)
        assert (filled["filename"], content_of(filled) == content_of(empty)) == ("book.xlsx", False)
        assert "xl/workbook.xml" in packed(content_of(filled))
        seen = user.read("read_range", path=filled["artifact_uri"], sheet="Data")
        assert all(f'"{name}"' in texts(seen)[0] for name in ("n", "a", "b"))

        _, table = user.make("export_csv", path=filled["artifact_uri"], sheet="Data", csv_path="table.csv")
        assert content_of(table).split() == [b"n,v", b"a,1", b"b,2"]
        more = user.upload("more.csv", b"x,y\nlonger,7\n")
        user.make("import_csv", path=filled["artifact_uri"], csv_path=more, sheet="More")
        _, pictured = user.make(
            "insert_image", path="book.xlsx", sheet="Data", image_path=user.upload("logo.png", png()), at="D1"
        )
        assert any(name.startswith("xl/media/") for name in packed(content_of(pictured)))


@with_server("filesystem")
def test_filesystem(served: Served) -> None:
    with conversation(served) as user:
        user.read("list_allowed_directories")
        written, hi = user.make("write_file", path="out.txt", content="hi")
        assert content_of(hi) == b"hi"
        message = f"Successfully wrote to {hi['artifact_uri']}"
        assert texts(written)[0] == message
        assert written["structuredContent"] == {"content": message}

        moved, there = user.make("move_file", source="out.txt", destination="out 2.txt")
        assert (there["filename"], content_of(there)) == ("out 2.txt", b"hi")
        assert texts(moved)[0].endswith(f" to {there['artifact_uri']}")

        logo = user.upload("logo.png", png())
        image = {"type": "image", "data": base64.b64encode(png()).decode(), "mimeType": "image/png"}
        shown = user.read("read_media_file", path=logo)
        assert shown["content"] == [image]
        assert shown["structuredContent"] == {"content": [image]}

        handles = [user.upload("one.txt", b"the first"), user.upload("two.txt", b"the second")]
        several = user.read("read_multiple_files", paths=[*handles, there["artifact_uri"], "/etc/hostname"])
        (text,) = texts(several)
        assert all(f"{line}\n" in text for line in ("the first", "the second", "hi"))
        assert "/etc/hostname: Error - Access denied" in text
        assert several["structuredContent"] == {"content": text}
        edit = {"oldText": "first", "newText": "last"}
        _, edited = user.make("edit_file", path=handles[0], edits=[edit])
        assert content_of(edited) == b"the last"
        assert "Access denied" in user.refused("read_text_file", path="/etc/hostname")
        assert "Access denied" in user.refused("write_file", path="/nowhere/no.txt", content="no")


# --- Official clients -----------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def official(served: Served, **abilities: Any) -> AsyncIterator[ClientSession]:
    async with (
        streamable_http_client(served.proxy.url) as (receiving, sending, _),
        ClientSession(receiving, sending, **abilities) as client,
    ):
        await client.initialize()
        yield client


@pytest.mark.anyio
@with_server("filesystem")
async def test_a_clients_roots_open_nothing(served: Served) -> None:
    """A client whose root is its whole disk gains nothing on this machine: the server does not get those roots."""
    asked: list[object] = []

    async def roots(context: Any) -> types.ListRootsResult:
        asked.append(context)
        return types.ListRootsResult(roots=[types.Root.model_validate({"uri": "file:///"})])

    async with official(served, list_roots_callback=roots) as client:
        await client.send_roots_list_changed()
        for tool, path in (
            ("read_text_file", "/etc/hostname"),
            ("read_text_file", "file:///etc/hostname"),
            ("list_directory", "/"),
            ("list_directory", str(served.folder)),
            ("list_directory", "../.."),
        ):
            result = await client.call_tool(tool, {"path": path})
            assert result.isError, (path, result)
        allowed = await client.call_tool("list_allowed_directories", {})
        (block,) = allowed.content
        assert isinstance(block, types.TextContent)
        assert "/" not in block.text.split("\n")
        assert served.way == "example" or str(served.folder) not in block.text
        assert (await client.call_tool("write_file", {"path": "mine.txt", "content": "mine"})).isError is False
    assert asked == []


@pytest.mark.anyio
@with_server("pandoc", "wrap")
async def test_the_official_client_converts_a_document(served: Served) -> None:
    """The client uploads, calls a tool and reads the artifact, in a session (2025-11-25), behind the bare command."""
    async with official(served) as client:
        offered = (await client.call_tool(HELPER, {})).structuredContent
        assert offered is not None
        handle = filing.post(offered["upload_url"], ("a.md", b"# A title\n")).json["upload_handle"]
        arguments = {"input_file": handle, "output_format": "html", "output_file": "a.html"}
        result = await client.call_tool("convert-contents", arguments)
        (link,) = [block for block in result.content if isinstance(block, types.ResourceLink)]
        assert link.name == "a.html"
        (read,) = (await client.read_resource(link.uri)).contents
        assert isinstance(read, types.TextResourceContents)
        assert ">A title</h1>" in read.text
        assert [resource.uri for resource in (await client.list_resources()).resources][-1:] == [link.uri]


@with_server("pandoc", "wrap")
def test_a_client_without_sessions_converts_a_document(served: Served, tmp_path: Path) -> None:
    """Each visit is independent in 2026-07-28: handles and artifacts are valid from one to the next."""

    def visit(*steps: dict[str, Any]) -> list[Any]:
        plan = {"capabilities": "none", "mode": "2026-07-28", "steps": list(steps)}
        records = rig.run_client("python-2", served.proxy.url, [plan], folder=tmp_path)
        done = [record for record in records if record["kind"] == "step"]
        assert all("result" in record for record in done), done
        return [record["result"] for record in done]

    (offered,) = visit({"op": "call", "name": HELPER, "arguments": {}})
    url = offered["structuredContent"]["upload_url"]
    handle = filing.post(url, ("a.md", b"# A title\n")).json["upload_handle"]
    arguments = {"input_file": handle, "output_format": "html", "output_file": "a.html"}
    result, listed = visit({"op": "call", "name": "convert-contents", "arguments": arguments}, {"op": "resources"})
    (artifact,) = artifacts_of(result)
    assert b">A title</h1>" in content_of(artifact)
    assert artifact["artifact_uri"] in [resource["uri"] for resource in listed]
