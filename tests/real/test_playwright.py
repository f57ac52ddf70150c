"""Tests of a browser on another machine: its files reach the client, and the client's uploads reach its pages.

The server is Playwright's own, with Debian's Chromium, behind `isthmus serve` with the example configuration. The
client is the official one. Downloads and uploads, which it cannot do, are done with urllib and curl.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import filing
import pytest
import rig
from filing import check_artifact, fetch, post, sha256
from mcp import ClientSession, McpError
from mcp.client.streamable_http import streamable_http_client
from mcp.types import BlobResourceContents, CallToolResult, EmbeddedResource, ImageContent, ResourceLink, TextContent
from mcp.types import TextResourceContents as TextContents
from page_server import HEADING, TITLE, page
from pydantic import AnyUrl

pytestmark = [pytest.mark.real, pytest.mark.anyio]

CHROMIUM = "/usr/bin/chromium"
PNG, JPEG, PDF = b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"%PDF-"
HELPER = "playwright_get_upload_url"


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"  # one suffices: the client runs on it, not the proxy


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    with page() as url:
        yield url


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[rig.Proxy]:
    options = ["--executable-path", CHROMIUM, *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    settings = filing.example("playwright", [rig.require(rig.PLAYWRIGHT)], *options)
    folder = tmp_path_factory.mktemp("playwright")
    with filing.gateway(folder, settings) as proxy:
        yield proxy
        rig.until(lambda: not filing.workspaces(folder / "data"), "the folders of ended sessions to go")


@contextlib.asynccontextmanager
async def browsing(proxy: rig.Proxy, site: str) -> AsyncIterator[ClientSession]:
    """Yields a session of the official client, with the page open."""
    async with (
        streamable_http_client(proxy.url) as (receiving, sending, _),
        ClientSession(receiving, sending) as client,
    ):
        await client.initialize()
        await call(client, "browser_navigate", url=site)
        yield client


@pytest.fixture(scope="module")
async def visitor(proxy: rig.Proxy, site: str) -> AsyncIterator[ClientSession]:
    """One session for all tests that need none of their own: each session is a process with a browser."""
    async with browsing(proxy, site) as client:
        yield client


@pytest.fixture
async def client(visitor: ClientSession, site: str) -> ClientSession:
    """The session that tests share, with the page opened anew."""
    await call(visitor, "browser_navigate", url=site)
    return visitor


async def call(client: ClientSession, tool: str, **arguments: Any) -> CallToolResult:
    """Returns the result of a tool that succeeds."""
    result = await client.call_tool(tool, arguments)
    assert not result.isError, result
    return result


async def failure(client: ClientSession, tool: str, **arguments: Any) -> str:
    result = await client.call_tool(tool, arguments)
    assert result.isError, result
    return texts(result)


def texts(result: CallToolResult) -> str:
    return "\n".join(block.text for block in result.content if isinstance(block, TextContent))


def artifact_of(result: CallToolResult) -> dict[str, Any]:
    assert result.meta is not None
    assert set(result.meta) == {"artifact"}, result.meta
    artifact: dict[str, Any] = result.meta["artifact"]
    return artifact


async def read(client: ClientSession, uri: str) -> bytes:
    (contents,) = (await client.read_resource(AnyUrl(uri))).contents
    assert isinstance(contents, BlobResourceContents)
    return base64.b64decode(contents.blob)


async def offer(client: ClientSession) -> dict[str, Any]:
    result = await call(client, HELPER)
    assert result.structuredContent is not None
    assert json.loads(texts(result)) == result.structuredContent
    return result.structuredContent


# --- Out ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("filename", "shown", "signature"),
    [
        (None, None, PNG),
        ("shot.png", "shot.png", PNG),
        ("Füße (1) 日本 – 50 %.png", "Füße (1) 日本 – 50 %.png", PNG),
        ("some/sub folder/shot.jpeg", "shot.jpeg", JPEG),
        ("no suffix", "no suffix", PNG),
    ],
)
async def test_a_screenshot_reaches_the_client(
    proxy: rig.Proxy, client: ClientSession, filename: str | None, shown: str | None, signature: bytes
) -> None:
    """The file is described, listed, read and downloaded, with the same bytes everywhere, whatever its name."""
    arguments = {} if filename is None else {"filename": filename}
    result = await call(client, "browser_take_screenshot", **arguments)
    artifact = artifact_of(result)
    data = check_artifact(artifact, proxy.base_url, "playwright")
    assert data.startswith(signature)
    assert artifact["mime_type"] == ("image/jpeg" if signature is JPEG else "image/png")
    assert artifact["expose_as_resource"] is True
    assert shown is None or artifact["filename"] == shown
    assert await read(client, artifact["artifact_uri"]) == data

    (listed,) = (await client.list_resources()).resources[-1:]
    shown_as = (str(listed.uri), listed.name, listed.mimeType, listed.size)
    expected = (artifact["artifact_uri"], artifact["filename"], artifact["mime_type"], len(data))
    assert shown_as == expected
    (link,) = [block for block in result.content if isinstance(block, ResourceLink)]
    assert (str(link.uri), link.name, link.mimeType, link.size) == expected
    assert artifact["download_url"] in texts(result)
    # Playwright itself sends the image along only if it chose the name.
    assert len([block for block in result.content if isinstance(block, ImageContent)]) == (filename is None)


async def test_a_pdf_reaches_the_client(proxy: rig.Proxy, client: ClientSession) -> None:
    for arguments in ({}, {"filename": "日本語 mit Leerzeichen.pdf"}):
        artifact = artifact_of(await call(client, "browser_pdf_save", **arguments))
        assert check_artifact(artifact, proxy.base_url, "playwright").startswith(PDF)
        assert artifact["mime_type"] == "application/pdf"
        assert artifact["filename"] == arguments.get("filename", artifact["filename"])


async def test_the_page_is_seen_without_opening_a_file(proxy: rig.Proxy, site: str) -> None:
    """The server answers with a link to a file of its own. The client gets the file's text, and no list grows."""
    async with browsing(proxy, site) as client:
        result = await call(client, "browser_navigate", url=site)
        (block,) = [block for block in result.content if isinstance(block, EmbeddedResource)]
        assert isinstance(block.resource, TextContents)
        assert f'heading "{HEADING}"' in block.resource.text
        artifact = artifact_of(result)
        assert artifact["expose_as_resource"] is False
        assert check_artifact(artifact, proxy.base_url, "playwright").decode() == block.resource.text
        assert [str(entry.uri) for entry in (await client.list_resources()).resources] == ["doc://upload_workflow.md"]


async def test_refusals_of_the_server_stay_refusals(client: ClientSession) -> None:
    """The server's own rules hold as before: it writes nothing outside, and no artifact appears."""
    for filename in ("../../../escaped.png", "/etc/escaped.png"):
        result = await client.call_tool("browser_take_screenshot", {"filename": filename})
        assert result.isError
        assert result.meta is None
        assert "outside allowed roots" in texts(result)


async def test_a_download_link_obeys_http(proxy: rig.Proxy, site: str) -> None:
    async with browsing(proxy, site) as client:
        result = await call(client, "browser_take_screenshot", filename="naïve 'shot'.png")
        artifact = artifact_of(result)
        url, size = artifact["download_url"], artifact["size_bytes"]
        data = await read(client, artifact["artifact_uri"])

    # The session is over, and the link still works.
    whole = fetch(url)
    assert (whole.status, whole.body) == (200, data)
    assert whole.headers["etag"] == f'"{sha256(data)}"'
    assert whole.headers["content-disposition"] == (
        "inline; filename=\"na_ve 'shot'.png\"; filename*=UTF-8''na%C3%AFve%20%27shot%27.png"
    )
    assert whole.headers["x-content-type-options"] == "nosniff"
    assert whole.headers["accept-ranges"] == "bytes"

    head = fetch(url, method="HEAD")
    assert (head.status, head.body) == (200, b"")
    assert head.headers["content-length"] == str(size)
    assert head.headers["etag"] == whole.headers["etag"]

    known = fetch(url, headers={"If-None-Match": whole.headers["etag"]})
    assert (known.status, known.body) == (304, b"")
    assert fetch(url, headers={"If-None-Match": '"another"'}).body == data

    for spec, start, stop in (("0-7", 0, 8), ("100-", 100, size), ("-5", size - 5, size), (f"8-{size + 9}", 8, size)):
        part = fetch(url, headers={"Range": f"bytes={spec}"})
        assert (part.status, part.body) == (206, data[start:stop])
        assert part.headers["content-range"] == f"bytes {start}-{stop - 1}/{size}"
    beyond = fetch(url, headers={"Range": f"bytes={size}-"})
    assert (beyond.status, beyond.headers["content-range"]) == (416, f"bytes */{size}")
    assert fetch(url, method="POST", body=b"").status == 405


async def test_a_link_opens_what_it_was_made_for_and_nothing_else(client: ClientSession) -> None:
    first = artifact_of(await call(client, "browser_take_screenshot", filename="first.png"))
    second = artifact_of(await call(client, "browser_take_screenshot", filename="second.png"))
    url = first["download_url"]
    base, _, query = url.partition("?")
    expiry = query.partition("exp=")[2].partition("&")[0]
    last = "1" if url.endswith("0") else "0"
    forged = {
        "flipped signature": url[:-1] + last,
        "other name": url.replace("first.png", "second.png"),
        "other case": url.replace("first.png", "First.png"),
        "other artifact": url.replace(first["artifact_id"], second["artifact_id"]),
        "other session": url.replace(urlsplit(url).path.split("/")[3], "0" * 32),
        "longer life": url.replace(f"exp={expiry}", f"exp={int(expiry) + 1}"),
        "past": url.replace(f"exp={expiry}", f"exp={int(expiry) - 10_000_000}"),
        "no signature": base + f"?exp={expiry}",
        "no query": base,
        "signature of another": base + "?" + second["download_url"].partition("?")[2],
    }
    assert fetch(url).status == 200
    for name, link in forged.items():
        reply = fetch(link)
        assert (name, reply.status) == (name, 403)
        assert set(reply.json) == {"detail", "code"}
        assert reply.json["code"] == "bad_credential"


async def test_sessions_list_their_own_artifacts_and_know_the_names_of_others(proxy: rig.Proxy, site: str) -> None:
    """No session lists artifacts of another. One of the same principal reads them, and hands an upload on, by name."""
    async with browsing(proxy, site) as one, browsing(proxy, site) as other:
        artifact = artifact_of(await call(one, "browser_take_screenshot", filename="mine.png"))
        handle = post((await offer(one))["upload_url"], ("mine.txt", b"mine")).json["upload_handle"]
        await call(other, "browser_take_screenshot", filename="theirs.png")
        assert [entry.name for entry in (await one.list_resources()).resources[1:]] == ["mine.png"]
        assert [entry.name for entry in (await other.list_resources()).resources[1:]] == ["theirs.png"]
        unknown = artifact["artifact_uri"].replace(artifact["artifact_id"], "0" * 32)
        with pytest.raises(McpError) as error:
            await other.read_resource(AnyUrl(unknown))
        assert error.value.error.code == -32002
        assert (await other.read_resource(AnyUrl(artifact["artifact_uri"]))).contents
        unknown = f"{handle[:-32]}{'0' * 32}"
        assert "another client" in await failure(other, "browser_file_upload", paths=[unknown])
        assert "another client" not in await failure(other, "browser_file_upload", paths=[handle]), (
            "no file chooser is open"
        )


# --- In -------------------------------------------------------------------------------------------------------------


async def choose(client: ClientSession, *handles: str) -> str:
    """Gives the page's file input the uploaded files. Returns the text that the page shows then."""
    await call(client, "browser_click", target="#chooser", element="file input")
    await call(client, "browser_file_upload", paths=list(handles))
    return texts(await call(client, "browser_snapshot"))


async def test_an_uploaded_file_reaches_the_page(client: ClientSession) -> None:
    helper = (await client.list_tools()).tools[0]
    assert helper.name == HELPER
    reply = post((await offer(client))["upload_url"], ("Größe & 日本.txt", "äöü".encode()), ("2.bin", b"\0" * 1000))
    seen = await choose(client, *reply.json["upload_handles"])
    assert f"Page Title: {TITLE}" in seen
    assert "chosen: Größe & 日本.txt (6 bytes), 2.bin (1000 bytes)" in seen


async def test_the_offered_command_uploads(client: ClientSession, tmp_path: Path) -> None:
    """The example command that the helper tool offers works unchanged, as an agent will run it."""
    files = [tmp_path / "first file.txt", tmp_path / "zweite Datei.txt"]
    for at, file in enumerate(files):
        file.write_bytes(b"x" * (10 + at))
    handles = []
    for name, count in (("example_curl", 1), ("example_curl_multiple", 2)):
        command = (await offer(client))[name]
        for at, file in enumerate(files):
            command = command.replace(f"/path/to/file{at + 1}", str(file))
        done = subprocess.run(["sh", "-c", command], capture_output=True, check=True)  # noqa: ASYNC221
        reply = json.loads(done.stdout)
        assert reply["count"] == count
        handles += reply["upload_handles"]
    seen = await choose(client, *handles)
    one, two = "first file.txt (10 bytes)", "zweite Datei.txt (11 bytes)"
    assert f"chosen: {one}, {one}, {two}" in seen


async def test_an_uploaded_file_can_be_dropped(client: ClientSession) -> None:
    handle = post((await offer(client))["upload_url"], ("drop.csv", b"a,b\n")).json["upload_handle"]
    await call(client, "browser_drop", target="#zone", element="drop zone", paths=[f"{handle}/drop.csv"])
    assert "dropped: drop.csv (4 bytes)" in texts(await call(client, "browser_snapshot"))
    # The argument is optional. The tool needs no file without it, and the call passes.
    assert "not a handle" not in await failure(client, "browser_drop", target="#zone")


async def test_an_invalid_handle_is_explained_and_not_sent(client: ClientSession) -> None:
    """The answer names the argument, its value and the helper. Afterwards the page still waits for its file."""
    handle = post((await offer(client))["upload_url"], ("right.txt", b"right")).json["upload_handle"]
    sid, uid = handle.split("/")[-2:]
    await call(client, "browser_click", target="#chooser", element="file input")
    for wrong in (
        "/etc/passwd",
        "right.txt",
        "",
        f"upload://sessions/{sid}/../{uid}",
        f"upload://sessions/{sid}/{uid}/../../x",
        f"upload://sessions/{sid}/{quote('../' + uid, safe='')}",
        f"upload://sessions/{sid}/{uid.upper()}" if uid.upper() != uid else "upload://",
    ):
        message = await failure(client, "browser_file_upload", paths=[handle, wrong])
        assert message.startswith(f"Argument paths[1]: got {json.dumps(wrong)[:70]}")
        assert "expected an upload handle, upload://sessions/<session>/<upload>" in message
        assert HELPER in message
    for unknown in (f"upload://sessions/{sid}/{'0' * 32}", f"upload://sessions/{'0' * 32}/{uid}"):
        message = await failure(client, "browser_file_upload", paths=[unknown])
        assert message.startswith(f"Unknown upload handle {unknown}")
        assert HELPER in message
    artifact = f"artifact://sessions/{sid}/{uid}/right.txt"
    assert (await failure(client, "browser_file_upload", paths=[handle, artifact])).startswith("Unknown artifact")
    await call(client, "browser_file_upload", paths=[handle])
    assert "chosen: right.txt (5 bytes)" in texts(await call(client, "browser_snapshot"))
