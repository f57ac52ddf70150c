"""Tests of every rule of the file plane, over HTTP, byte for byte, with a server that follows the test's arguments.

The formats are those that clients and operators rely on: `_meta.artifact`, the upload offer, the reply to an upload.
The limits are tested too: no path that a server names makes it hand out a file of another session.
"""

from __future__ import annotations

import base64
import json
import os
import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import filing
import pytest
import rig
from filing import MINTED, Client, blobs, check_artifact, complaint, fetch, form, post, sha256, texts, workspaces

pytestmark = pytest.mark.real

PEER = [sys.executable, str(Path(__file__).parent / "peers/echo_files.py")]
INLINE_MAX, ARTIFACT_MAX = 2000, 5000
PNG = b"\x89PNG\r\n\x1a\n and pixels"


def producer(tool: str, mode: str, **more: Any) -> dict[str, Any]:
    locator = {"mode": mode} | {key: more.pop(key) for key in list(more) if key.startswith("output_path_")}
    return {"type": "artifact_producer", "tools": [tool], "output_locator": locator, **more}


def consumer(tool: str, argument: str, **more: Any) -> dict[str, Any]:
    return {"type": "upload_consumer", "tools": [tool], "file_path_argument": argument, **more}


ADAPTERS = [
    {"type": "artifact_producer", "tools": ["by_argument"], "output_path_argument": "output"},
    producer("by_regex", "regex", output_path_regexes=["FILE<(?P<path>[^>]*)>", r"first group: (\S+)", r"\S+\.whole"]),
    producer("by_usual_regex", "regex"),
    producer("by_structure", "structured", output_path_key="made.path"),
    producer("embedded", "embedded"),
    producer("required", "regex", required=True),
    producer("with_content", "regex", allow_raw_output=True),
    producer("unlisted", "regex", expose_as_resource=False),
    producer("not_kept", "regex", persist=False),
    consumer("take_one", "file"),
    consumer("take_many", "files"),
    consumer("take_nested", "request.source.file"),
    consumer("take_uri", "uri", uri_prefix=True),
]


def settings(shared: Path, **sections: Any) -> dict[str, Any]:
    """Returns two servers of one kind, one of which may give out files of `shared`, the other files of a folder that
    contains the storage too. A third one has a scheme of its own for handles."""
    servers = [
        {"id": "files-1", "upstream": {"command": PEER}, "adapters": ADAPTERS, "artifact_roots": [str(shared)],
         "tasks": {"offer": "own"}},
        {"id": "files.2", "upstream": {"command": PEER}, "adapters": ADAPTERS,
         "artifact_roots": [str(shared.parent)]},
    ]  # fmt: skip
    own_scheme = [consumer("take_one", "file", uri_scheme="in+tray://")]
    servers.append({"id": "trays", "upstream": {"command": PEER}, "adapters": own_scheme})
    return {"servers": servers, **sections}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("rules")


@pytest.fixture(scope="module")
def root(folder: Path) -> Path:
    return folder / "data"


@pytest.fixture(scope="module")
def shared(folder: Path) -> Path:
    shared = folder / "shared"
    shared.mkdir()
    return shared


@pytest.fixture(scope="module")
def proxy(folder: Path, shared: Path, root: Path) -> Iterator[rig.Proxy]:
    artifacts = {"max_inline_bytes": INLINE_MAX, "max_file_bytes": ARTIFACT_MAX}
    with filing.gateway(folder, settings(shared, artifacts=artifacts)) as proxy:
        yield proxy
        rig.until(lambda: not workspaces(root), "the folders of ended sessions to go")


@pytest.fixture(scope="module")
def client(proxy: rig.Proxy) -> Iterator[Client]:
    with filing.session(proxy.url_of("files-1")) as client:
        yield client


@pytest.fixture
def other(proxy: rig.Proxy) -> Iterator[Client]:
    """A second client of the same server."""
    with filing.session(proxy.url_of("files-1")) as client:
        yield client


def reported(result: dict[str, Any]) -> dict[str, Any]:
    """Returns the arguments that the server reports."""
    assert not result.get("isError"), result
    document: dict[str, Any] = json.loads(texts(result)[0])
    return document


def saying(text: str, **more: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], **more}


def written(name: str, text: str) -> dict[str, Any]:
    """Returns arguments by which a tool writes a file and names it."""
    return {"write": [{"path": name, "text": text}], "reply": saying(f"- [{name}](./{name})")}


def artifact_of(result: dict[str, Any]) -> dict[str, Any]:
    artifact: dict[str, Any] = result["_meta"]["artifact"]
    return artifact


def additions(*artifacts: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the blocks that a result gains for artifacts, whose URIs its own texts have not."""
    links = [
        {
            "type": "resource_link",
            "uri": one["artifact_uri"],
            "name": one["filename"],
            "mimeType": one["mime_type"],
            "size": one["size_bytes"],
        }
        for one in artifacts
        if one["expose_as_resource"]
    ]
    lines: list[str] = []
    for one in artifacts:
        more = f" (version {one['version']}; replaces {one['replaces']})" if "replaces" in one else ""
        lines.append(f"{one['artifact_uri']}{more}, download: {one['download_url']}")
    return [*links, *({"type": "text", "text": line} for line in lines)]


# --- The servers' surroundings --------------------------------------------------------------------------------------


def test_a_session_has_folders_of_its_own(client: Client, other: Client, root: Path) -> None:
    """Working folder, TMPDIR and roots are made for the session alone."""
    one, two = reported(client.call("plain")), reported(other.call("plain"))
    base = Path(one["cwd"]).parent
    assert base.parent == (root / "workspaces").resolve()
    assert MINTED.fullmatch(base.name)
    assert one["roots"] == [f"file://{base}/{name}" for name in ("ws", "in", "out")]
    assert {one["cwd"], one["tmp"], *one["roots"]}.isdisjoint({two["cwd"], two["tmp"], *two["roots"]})
    assert all(os.stat(path).st_mode & 0o777 == 0o700 for path in (one["cwd"], one["tmp"]))


def test_additions_to_a_server_are_declared(client: Client) -> None:
    assert client.capabilities == {"tools": {}, "resources": {"subscribe": True, "listChanged": True}}
    tools = {tool["name"]: tool for tool in client.request("tools/list")["tools"]}
    assert list(tools)[:2] == ["files_1_get_upload_url", "files_1_put_file"]
    assert tools["by_regex"] == {"name": "by_regex", "inputSchema": {"type": "object", "properties": {}}}
    ways = "files_1_put_file or files_1_get_upload_url"
    note = f"Takes upload:// handles (get them with {ways}) and artifact:// URIs."
    schema = tools["take_one"]["inputSchema"]
    assert schema["properties"]["file"] == {"type": "string", "description": f"A file.\n\n{note}"}
    many = tools["take_many"]["inputSchema"]["properties"]["files"]
    assert many == {"type": "array", "items": {"type": "string"}, "description": note}
    assert client.request("resources/templates/list") == {"resourceTemplates": []}
    guide = client.request("resources/list")["resources"][0]
    assert guide["uri"] == "doc://upload_workflow.md"
    (contents,) = client.request("resources/read", {"uri": guide["uri"]})["contents"]
    assert contents["mimeType"] == guide["mimeType"] == "text/markdown"
    assert "files_1_get_upload_url" in contents["text"]


# --- Out: the four ways to find a file ------------------------------------------------------------------------------


def test_by_argument(client: Client, proxy: rig.Proxy) -> None:
    """The tool gets a path to write to. The rest of its result is unchanged to the last member."""
    reply = {
        "content": [{"type": "text", "text": "done", "annotations": {"priority": 1.0}, "own": None}],
        "structuredContent": {"n": 12345678901234567890, "x": 1e2},
        "isError": False,
        "_meta": {"own": [1], "artifact_hint": "kept"},
        "unknown": {"to": "us"},
    }
    result = client.call("by_argument", {"output": "some where/Bericht ä.txt", "text": "Größe\n", "reply": reply})
    artifact = artifact_of(result)
    assert check_artifact(artifact, proxy.base_url, "files-1") == "Größe\n".encode()
    assert (artifact["filename"], artifact["mime_type"]) == ("Bericht ä.txt", "text/plain")
    assert result == reply | {
        "content": [*reply["content"], *additions(artifact)],
        "_meta": {**reply["_meta"], "artifact": artifact},
    }

    seen = reported(client.call("by_argument", {"output": "some where/Bericht ä.txt", "text": "x"}))
    place = Path(seen["arguments"]["output"])
    assert place.name == "Bericht ä.txt"
    assert place.parent.parent == Path(seen["cwd"]).parent / "out"
    assert MINTED.fullmatch(place.parent.name)


def test_by_argument_without_a_name(client: Client) -> None:
    """The tool gets a path all the same, and the file a suffix by its content."""
    for arguments in ({}, {"output": None}, {"output": ""}, {"output": ".."}, {"output": 7}):
        artifact = artifact_of(
            client.call("by_argument", {"text": "%PDF-1.4 really", "reply": saying(""), **arguments})
        )
        assert re.fullmatch(r"artifact-[0-9a-f]{8}\.pdf", artifact["filename"])
        assert artifact["mime_type"] == "application/pdf"


@pytest.mark.parametrize(
    ("tool", "path", "text"),
    [
        ("by_regex", "a b (1).txt", "FILE<{path}>"),
        ("by_regex", "a.txt", "FILE<{cwd}/{path}>"),
        ("by_regex", "a.whole", "no group: {path}"),
        ("by_usual_regex", "plain.txt", "Saved to {cwd}/{path}."),
        ("by_usual_regex", "sub/plain.txt", "see {path}, line 3"),
        ("by_usual_regex", "with space.txt", "Saved to '{cwd}/{path}'"),
        ("by_usual_regex", "with space.txt", "Saved to {cwd}/{path}"),
        ("by_usual_regex", "with (brackets).txt", "- [the file](./{path})"),
        ("by_usual_regex", "日本 ü.txt", "written: file://{uri}"),
        ("by_usual_regex", "日本 ü.txt", 'written: "{path}"'),
        ("by_usual_regex", "log.txt", "[log](./{path}#L1-L2)"),
        ("by_usual_regex", "log.txt", "{cwd}/{path}:12:3: warning"),
        ("by_usual_regex", "sub/log.txt", "see 'sub\\log.txt'"),
        ("by_usual_regex", "real.txt", "not https://example.com/real.txt but `{path}`"),
    ],
)
def test_by_regex(client: Client, proxy: rig.Proxy, tool: str, path: str, text: str) -> None:
    """The file is found in whatever way the text names it. Relative paths start from the working folder."""
    cwd = reported(client.call("plain"))["cwd"]
    text = text.format(path=path, cwd=cwd, uri=quote(f"{cwd}/{path}"))
    result = client.call(tool, {"write": [{"path": path, "text": text}], "reply": saying(text)})
    artifact = artifact_of(result)
    assert check_artifact(artifact, proxy.base_url, "files-1") == text.encode()
    assert artifact["filename"] == Path(path).name
    assert result == saying(
        text, content=[*saying(text)["content"], *additions(artifact)], _meta={"artifact": artifact}
    )


@pytest.mark.parametrize(
    "text", ["missing FILE<nothing.txt> and then FILE<a.txt>", "FILE<nothing.txt>, first group: a.txt"]
)
def test_an_existing_file_is_found_behind_missing_ones(client: Client, text: str) -> None:
    """The result names both."""
    result = client.call("by_regex", {"write": [{"path": "a.txt", "text": text}], "reply": saying(text)})
    assert result["_meta"] == {"artifact": artifact_of(result), "artifact_error": "nothing.txt: missing"}
    assert fetch(artifact_of(result)["download_url"]).body == text.encode()


def test_by_structure(client: Client, proxy: rig.Proxy) -> None:
    for path in ("made/x.json", "{cwd}/y.csv", "file://{cwd}/z.txt"):
        path = path.format(cwd=reported(client.call("plain"))["cwd"])
        reply = {"content": [], "structuredContent": {"made": {"path": path, "size": 2}}}
        write = [{"path": path.removeprefix("file://"), "text": "{}"}]
        result = client.call("by_structure", {"write": write, "reply": reply})
        artifact = artifact_of(result)
        assert check_artifact(artifact, proxy.base_url, "files-1") == b"{}"
        assert artifact["filename"] == Path(path).name
        assert result == reply | {"content": additions(artifact), "_meta": {"artifact": artifact}}


def test_embedded(client: Client, proxy: rig.Proxy) -> None:
    """All contents of a result are stored, in order, and stay in the result."""
    encoded = base64.b64encode(PNG).decode()
    held = [
        {"type": "text", "text": "four files"},
        {"type": "image", "data": encoded, "mimeType": "image/png"},
        {"type": "audio", "data": base64.b64encode(b"fLaC" + bytes(9)).decode(), "mimeType": "audio/flac"},
        {
            "type": "resource",
            "resource": {"uri": "x://a/b/notes%20%C3%A4.md", "mimeType": "text/markdown", "text": "# ä"},
        },
        {"type": "resource", "resource": {"uri": "x://host/archive", "blob": base64.b64encode(bytes(5)).decode()}},
        {"type": "resource_link", "uri": "x://elsewhere", "name": "stays a link"},
    ]
    result = client.call("embedded", {"reply": {"content": held}})
    artifacts = result["_meta"]["artifacts"]
    contents = [check_artifact(one, proxy.base_url, "files-1") for one in artifacts]
    assert contents == [PNG, b"fLaC" + bytes(9), "# ä".encode(), bytes(5)]
    assert [(one["filename"], one["mime_type"]) for one in artifacts] == [
        ("image-1.png", "image/png"),
        ("audio-1.flac", "audio/flac"),
        ("notes ä.md", "text/markdown"),
        ("archive.bin", "application/octet-stream"),
    ]
    assert result["_meta"] == {"artifact": artifacts[0], "artifacts": artifacts}
    assert result["content"] == held + additions(*artifacts)


@pytest.mark.parametrize(
    ("tool", "reply", "reason"),
    [
        ("by_regex", saying("nothing is named"), "the result names no file"),
        ("by_regex", saying("FILE<nothing.txt>"), "nothing.txt: missing"),
        ("by_regex", saying("FILE<a-folder>"), "in it: it is empty so far"),
        ("by_regex", saying("FILE<large.txt>"), f"too large: {ARTIFACT_MAX + 1} bytes, at most {ARTIFACT_MAX}"),
        ("by_regex", {"content": []}, "the result names no file"),
        ("by_structure", saying("", structuredContent={"made": {"path": 7}}), "the result names no file"),
        ("by_structure", saying("", structuredContent={"made": None}), "the result names no file"),
        ("by_structure", saying("no structure"), "the result names no file"),
        ("by_argument", saying("did not write"), "MINTED: an empty folder"),
        (
            "embedded",
            {"content": [{"type": "image", "data": "?", "mimeType": "image/png"}]},
            "the result names no file",
        ),
    ],
)
def test_a_good_result_is_never_lost(client: Client, tool: str, reply: dict[str, Any], reason: str) -> None:
    """A file that is not found is reported beside the result, which is unchanged."""
    write = [{"path": "a-folder/in it", "text": ""}, {"path": "large.txt", "text": "x" * (ARTIFACT_MAX + 1)}]
    result = client.call(tool, {"write": write, "reply": reply})
    error = re.sub(r"^artifact-[0-9a-f]{8}:", "MINTED:", result["_meta"]["artifact_error"])
    told = [] if reason == "the result names no file" else [not_transferred(result["_meta"]["artifact_error"])]
    assert (result, error) == (reply | {"_meta": result["_meta"], "content": reply["content"] + told}, reason)
    assert set(result["_meta"]) == {"artifact_error"}


def test_errors_and_other_tools_are_passed_on(client: Client) -> None:
    """A failed call makes no artifact, even if it names files. A tool without adapter is left alone."""
    write = [{"path": "there.txt", "text": "x"}]
    failed = saying("FILE<there.txt> is in the way", isError=True)
    for tool, reply in (("by_regex", failed), ("by_argument", failed), ("required", failed), ("embedded", failed)):
        assert client.call(tool, {"write": write, "reply": reply}) == reply
    for tool in ("plain", "not_kept"):
        reply = saying("see there.txt", _meta={"artifact": "not ours"})
        assert client.call(tool, {"write": write, "reply": reply}) == reply


def test_a_required_file_that_is_missing_is_an_error(client: Client) -> None:
    assert "its output file was not found" in complaint(client.call("required", {"reply": saying("nothing.txt")}))
    assert "artifact" in client.call("required", written("there.txt", "x"))["_meta"]


@pytest.mark.parametrize(
    ("name", "text", "block"),
    [
        ("notes.md", "# ä", {"type": "resource", "resource": {"mimeType": "text/markdown", "text": "# ä"}}),
        ("odd.bin", "\0\0", {"type": "resource", "resource": {"mimeType": "application/octet-stream", "blob": "AAA="}}),
        ("drawing.gif", "GIF89a", {"type": "image", "data": "R0lGODlh", "mimeType": "image/gif"}),
    ],
)
def test_the_content_may_come_along(client: Client, name: str, text: str, block: dict[str, Any]) -> None:
    arguments = written(name, text)
    result = client.call("with_content", arguments)
    artifact = artifact_of(result)
    if "resource" in block:
        block = {**block, "resource": {"uri": artifact["artifact_uri"], **block["resource"]}}
    block = {**block, "_meta": {"filename": name, "size_bytes": len(text.encode())}}
    assert result["content"] == [*arguments["reply"]["content"], block, *additions(artifact)]


def test_older_revisions_get_what_they_know(proxy: rig.Proxy) -> None:
    """Links to resources came with 2025-06-18."""
    client = Client(proxy.url_of("files-1"), revision="2025-03-26")
    result = client.call("by_usual_regex", written("x.txt", "x"))
    assert [block["type"] for block in result["content"]] == ["text", "text"]
    client.end()


# --- Out: reading ---------------------------------------------------------------------------------------------------


def test_artifacts_are_listed_and_read(other: Client) -> None:
    """The oldest comes first, text as text, the rest as a blob. An artifact that is not to be listed is neither listed
    nor read."""
    files = {"one.txt": "ä", "two.svg": "<svg/>", "three.bin": "\0"}
    artifacts = []
    for name, text in files.items():
        artifacts.append(artifact_of(other.call("by_usual_regex", written(name, text))))
    hidden = artifact_of(other.call("unlisted", written("h.txt", "h")))
    assert hidden["expose_as_resource"] is False
    assert fetch(hidden["download_url"]).body == b"h"

    listed = other.request("resources/list")["resources"]
    assert listed[1:] == [
        {
            "uri": one["artifact_uri"],
            "name": one["filename"],
            "description": "Written by by_usual_regex",
            "mimeType": one["mime_type"],
            "size": one["size_bytes"],
            "_meta": {"size_bytes": one["size_bytes"]},
        }
        for one in artifacts
    ]
    held = [{"text": "ä"}, {"text": "<svg/>"}, {"blob": "AA=="}]
    for one, content in zip(artifacts, held, strict=True):
        uri, mime, meta = one["artifact_uri"], one["mime_type"], {"size_bytes": one["size_bytes"]}
        read = other.request("resources/read", {"uri": uri})
        assert read == {"contents": [{"uri": uri, "mimeType": mime, **content, "_meta": meta}]}
    error = other.exchange("resources/read", {"uri": hidden["artifact_uri"]})["error"]
    assert error["code"] == -32002


def test_a_large_artifact_is_downloaded_instead(client: Client) -> None:
    """Above the limit for messages the answer names the link."""
    result = client.call("with_content", written("big.txt", "x" * (INLINE_MAX + 1)))
    artifact = artifact_of(result)
    assert result["content"][1:] == additions(artifact)
    error = client.exchange("resources/read", {"uri": artifact["artifact_uri"]})["error"]
    (link,) = re.findall(r"http://\S+", error["message"])
    assert len(fetch(link).body) == INLINE_MAX + 1
    assert str(INLINE_MAX) in error["message"]


# --- Limits of access -----------------------------------------------------------------------------------------------


def not_transferred(why: str) -> dict[str, Any]:
    """Returns the block that tells models of a file that was not taken."""
    return {"type": "text", "text": f"Not transferred: {why}."}


def not_permitted(reply: dict[str, Any], path: str) -> dict[str, Any]:
    """Returns a result with the message about a path: it contains the name, and does not reveal whether there is a
    file."""
    why = f"{unquote(path).rpartition('/')[2]}: not permitted"
    return reply | {"content": [*reply["content"], not_transferred(why)], "_meta": {"artifact_error": why}}


def is_refused(result: dict[str, Any], reply: dict[str, Any], path: str) -> None:
    """Checks that nothing was taken. A file outside that this test has just touched is told of as one."""
    why = result["_meta"]["artifact_error"]
    assert result["content"] == [*reply["content"], not_transferred(why)], path
    assert result["_meta"] == {"artifact_error": why}, path
    assert why == not_permitted(reply, path)["_meta"]["artifact_error"] or "outside of this session" in why, path


def test_no_path_leads_out_of_a_session(client: Client, other: Client, root: Path, folder: Path, shared: Path) -> None:
    """Files of another session, of the proxy and of the system stay where they are, named in any way, through any link.
    The messages do not reveal which of them exist."""
    handle = client.upload(("upload.txt", b"secret"))[0]
    theirs = reported(client.call("take_one", {"file": handle, "write": [{"path": "secret.txt", "text": "secret"}]}))
    client.call("plain", {"write": [{"path": f"{theirs['tmp']}/secret.txt", "text": "secret"}]})
    mine = reported(other.call("plain"))["cwd"]
    secret, ws = f"{theirs['cwd']}/secret.txt", Path(theirs["cwd"])
    (shared / "fine.txt").write_text("fine")
    (shared / "escape.txt").symlink_to(secret)
    links = {
        "to-file.txt": secret,
        "to-folder": theirs["cwd"],
        "to-link.txt": f"{shared}/escape.txt",
        "to-relative.txt": os.path.relpath(secret, mine),
        "to-root": "/",
        "to-key.txt": str(root / "state/link.key"),
        "endless.txt": "/dev/zero",
        "round.txt": "round.txt",
    }
    other.call("plain", {"link": [{"path": path, "to": to} for path, to in links.items()], "fifo": ["fifo.txt"]})
    (blob, *_) = blobs(root)
    outside = [
        secret,
        os.path.relpath(secret, mine),
        f"{mine}/../../{ws.parent.name}/ws/secret.txt",
        f"file://{secret}",
        f"file://{quote(secret, safe='')}",
        f"file://localhost{secret}",
        f"{theirs['tmp']}/secret.txt",
        theirs["files"] and next(iter(theirs["files"])),
        f"{theirs['cwd']}/nothing-there.txt",
        "to-file.txt",
        "to-folder/secret.txt",
        "to-link.txt",
        "to-relative.txt",
        "to-root/etc/hostname",
        "to-key.txt",
        "endless.txt",
        "/etc/hostname",
        "/etc/nothing-there",
        "/proc/self/environ",
        "/proc/self/cwd/secret.txt",
        f"/proc/{os.getpid()}/root{secret}",
        str(root / "state/link.key"),
        str(root / "state/records.sqlite"),
        str(root / "blobs" / blob),
        str(root / "workspaces" / ".lock"),
        str(folder / "isthmus.json"),
        str(shared / "escape.txt"),
        f"{shared}/../data/state/link.key",
        f"{shared}evil/x.txt",
    ]
    for path in outside:
        reply = saying(f"FILE<{path}>")
        is_refused(other.call("by_regex", {"reply": reply}), reply, path)
        reply = {"content": [], "structuredContent": {"made": {"path": path}}}
        is_refused(other.call("by_structure", {"reply": reply}), reply, path)
        linked = {"output": "x.txt", "output_link": path.removeprefix("file://"), "reply": saying("")}
        result = other.call("by_argument", linked)
        assert set(result["_meta"]) == {"artifact_error"}, path
    for path in ("fifo.txt", "round.txt", "x\0y", "x" * 5000, ""):
        result = other.call("by_regex", {"reply": saying(f"FILE<{path}>")})
        assert set(result["_meta"]) == {"artifact_error"}, path
    assert other.listed() == []
    # A permitted file is found behind all of those paths.
    result = other.call(
        "by_regex", {"reply": saying("".join(f"FILE<{path}>" for path in [*outside, shared / "fine.txt"]))}
    )
    assert fetch(artifact_of(result)["download_url"]).body == b"fine"


def test_a_wide_artifact_root_does_not_open_the_storage(
    proxy: rig.Proxy, client: Client, root: Path, folder: Path
) -> None:
    """The root may contain the storage folder. That folder stays closed, and so do the sessions in it."""
    theirs = reported(client.call("plain", {"write": [{"path": "wide.txt", "text": "secret"}]}))["cwd"]
    with filing.session(proxy.url_of("files.2")) as wide:
        for path in (
            f"{theirs}/wide.txt",
            root / "state/link.key",
            root / "state/records.sqlite",
            root / "blobs" / blobs(root)[0],
        ):
            reply = saying(f"FILE<{path}>")
            assert wide.call("by_regex", {"reply": reply}) == not_permitted(reply, str(path))
        result = wide.call("by_regex", {"reply": saying(f"FILE<{folder}/isthmus.json>")})
        assert artifact_of(result)["filename"] == "isthmus.json"


def test_handles_are_invalid_elsewhere(proxy: rig.Proxy, client: Client, other: Client) -> None:
    """A handle of another server, or a guessed one, gets the same answer. Another session of the same principal may use
    it, and does not see it in its list."""
    handle = client.upload(("mine.txt", b"mine"))[0]
    artifact = make(client, "mine.txt", "mine")
    uri, sid = artifact["artifact_uri"], handle.split("/")[3]
    own = other.offer()["session_id"]
    with filing.session(proxy.url_of("files.2")) as stranger:
        answer = complaint(stranger.call("take_one", {"file": handle}))
        assert answer.startswith("Unknown upload handle")
        guessed = complaint(stranger.call("take_one", {"file": f"upload://sessions/{sid}/{'0' * 32}"}))
        assert guessed.replace("0" * 32, handle.split("/")[4]) == answer
        for asked in (
            uri,
            uri.replace(sid, own),
            f"artifact://sessions/{sid}/{'0' * 32}/x",
            "artifact://x",
            "x://y",
        ):
            error = stranger.exchange("resources/read", {"uri": asked})["error"]
            assert error == {"code": -32002, "message": f"Resource not found: {asked}", "data": {"uri": asked}}
        assert stranger.listed() == []
    assert other.listed() == []
    assert reported(other.call("take_one", {"file": handle}))["files"]
    url = artifact["download_url"]
    assert fetch(url).body == b"mine"
    assert fetch(url.replace("/artifacts/files-1/", "/artifacts/files.2/")).status == 403
    assert reported(client.call("take_one", {"file": handle}))["files"]


# --- In -------------------------------------------------------------------------------------------------------------


def test_the_offer_has_its_shape(client: Client, proxy: rig.Proxy) -> None:
    result = client.call("files_1_get_upload_url")
    offer = result["structuredContent"]
    text = json.dumps(offer, separators=(",", ":"), ensure_ascii=False)
    assert result == {"content": [{"type": "text", "text": text}], "structuredContent": offer, "isError": False}
    sid, url = offer["session_id"], offer["upload_url"]
    assert MINTED.fullmatch(sid)
    base = re.escape(f"{proxy.base_url}/upload/files-1")
    pattern = r"\?grant=[\w-]{71,}\.[\w-]{22}"
    assert re.fullmatch(base + pattern, url)
    curl = f'curl -sS -X POST "{url}" -H "Mcp-Session-Id: {sid}" -F "file=@/path/to/file1"'
    notes = {key: offer.pop(key) for key in ("note", "integrity_note")}
    assert all(isinstance(note, str) and note for note in notes.values())
    assert offer == {
        "server_id": "files-1",
        "tool_name": "files_1_get_upload_url",
        "upload_url": url,
        "method": "POST",
        "headers": {"Mcp-Session-Id": sid},
        "auth_mode": "signed_upload_credentials",
        "credential_ttl_seconds": 120,
        "field_name": "file",
        "supports_multiple_files": True,
        "sha256_required": False,
        "sha256_field_name": "sha256",
        "sha256_per_file": True,
        "session_id": sid,
        "example_curl": curl,
        "example_curl_multiple": f'{curl} -F "file=@/path/to/file2"',
        "max_file_bytes": 52428800,
    }
    assert client.session_id not in json.dumps(result), "the session's secret is not for handing on"


def test_the_reply_to_an_upload_has_its_shape(client: Client) -> None:
    offer = client.offer()
    content_type, body = form(("a b.txt", b"hello world"))
    headers = {"Content-Type": content_type, **offer["headers"]}
    reply = fetch(offer["upload_url"], method="POST", headers=headers, body=body)
    assert (reply.status, reply.headers["content-type"]) == (200, "application/json")
    uid = reply.json["upload"]["upload_id"]
    assert MINTED.fullmatch(uid)
    handle = f"upload://sessions/{offer['session_id']}/{uid}"
    upload = {
        "upload_id": uid,
        "filename": "a b.txt",
        "mime_type": "text/plain",
        "size_bytes": 11,
        "sha256": sha256(b"hello world"),
    }
    assert reply.json == {
        "server_id": "files-1",
        "session_id": offer["session_id"],
        "count": 1,
        "upload_handles": [handle],
        "uploads": [{"upload_handle": handle, **upload}],
        "upload_handle": handle,
        "upload": upload,
    }
    two = post(client.offer()["upload_url"], ("1", b"1"), ("2", b"2")).json
    assert set(two) == {"server_id", "session_id", "count", "upload_handles", "uploads"}
    assert two["upload_handles"] == [one["upload_handle"] for one in two["uploads"]]


def test_one_handle(client: Client) -> None:
    """The handle becomes the path of a file with its original name. A name behind the handle makes no difference."""
    handle = client.upload(("Größe 日本.txt", b"content"))[0]
    for written in (handle, f"{handle}/Größe 日本.txt", f"{handle}/other"):
        seen = reported(client.call("take_one", {"file": written, "more": [1, {"a": 1e2}]}))
        path = seen["arguments"]["file"]
        assert path.startswith(f"{Path(seen['cwd']).parent}/in/{handle.split('/')[-1]}/")
        assert Path(path).name == "Größe 日本.txt"
        assert seen["files"] == {path: "content"}
        assert seen["arguments"] == {"file": path, "more": [1, {"a": 1e2}]}


def test_a_handle_in_a_scheme_of_its_own(proxy: rig.Proxy) -> None:
    """The handle that is handed out is the one that the tool takes. The usual scheme is understood too."""
    with filing.session(proxy.url_of("trays")) as client:
        handle = client.upload(("x.txt", b"in the tray"))[0]
        assert handle.startswith("in+tray://sessions/")
        for written in (handle, handle.replace("in+tray", "upload")):
            assert list(reported(client.call("take_one", {"file": written}))["files"].values()) == ["in the tray"]
        assert "in+tray://sessions/<session>/<upload>" in complaint(client.call("take_one", {"file": "x.txt"}))


def test_a_file_is_judged_before_it_is_sent(client: Client) -> None:
    """The helper tool takes descriptions of files, and reports at once what would be refused."""
    most = client.offer(size_bytes=52428800, sha256="0" * 64, filename="ä.txt")["max_file_bytes"]
    assert most == 52428800
    helper = "files_1_get_upload_url"
    assert complaint(client.call(helper, {"size_bytes": most + 1})) == (
        f"Argument size_bytes: got {most + 1}, expected at most {most}."
    )
    assert complaint(client.call(helper, {"sha256": "abc"})).startswith("Argument sha256: got 'abc', expected 64")


def test_a_list_of_handles(client: Client) -> None:
    one, two = client.upload(("same.txt", b"first"), ("same.txt", b"second"))
    seen = reported(client.call("take_many", {"files": [two, one, two]}))
    assert [Path(path).name for path in seen["arguments"]["files"]] == ["same.txt"] * 3
    assert [seen["files"][path] for path in seen["arguments"]["files"]] == ["second", "first", "second"]
    assert reported(client.call("take_many", {"files": []}))["arguments"] == {"files": []}
    assert reported(client.call("take_many", {"files": one}))["files"]


def test_a_nested_handle(client: Client) -> None:
    handle = client.upload(("deep.txt", b"deep"))[0]
    arguments = {"request": {"before": 1, "source": {"kind": "k", "file": handle, "z": None}, "file": "/not/this/one"}}
    seen = reported(client.call("take_nested", arguments))
    (path,) = seen["files"]
    assert seen["files"] == {path: "deep"}
    arguments["request"]["source"]["file"] = path
    assert seen["arguments"] == arguments


def test_a_handle_as_uri(client: Client) -> None:
    handle = client.upload(("50 % ü?#.txt", b"as uri"))[0]
    seen = reported(client.call("take_uri", {"uri": handle}))
    uri = seen["arguments"]["uri"]
    assert uri.startswith("file:///")
    assert uri.endswith("/50%20%25%20%C3%BC%3F%23.txt")
    assert list(seen["files"].values()) == ["as uri"]


def test_absent_arguments_are_left_absent(client: Client) -> None:
    for tool, arguments in (
        ("take_one", {}),
        ("take_one", {"file": None}),
        ("take_many", {"other": 1}),
        ("take_nested", {}),
        ("take_nested", {"request": None}),
        ("take_nested", {"request": {"source": {}}}),
    ):
        assert reported(client.call(tool, arguments))["arguments"] == arguments


@pytest.mark.parametrize(
    ("tool", "arguments", "named"),
    [
        ("take_one", {"file": "/etc/hostname"}, 'Argument file: got "/etc/hostname"'),
        ("take_one", {"file": 7}, "Argument file: got 7"),
        ("take_one", {"file": {"path": "x"}}, "Argument file: got {"),
        ("take_one", {"file": True}, "Argument file: got true"),
        ("take_many", {"files": ["x"]}, 'Argument files[0]: got "x"'),
        ("take_many", {"files": [["x"]]}, 'Argument files[0]: got ["x"]'),
        ("take_many", {"files": [None]}, "Argument files[0]: got null"),
        ("take_nested", {"request": {"source": {"file": ""}}}, 'Argument request.source.file: got ""'),
        ("take_nested", {"request": "x"}, 'Argument request: got "x", which cannot hold request.source.file'),
        ("take_nested", {"request": {"source": ["x"]}}, 'Argument request.source: got ["x"]'),
        ("take_uri", {"uri": "file:///etc/hostname"}, 'Argument uri: got "file:///etc/hostname"'),
    ],
)
def test_an_invalid_handle_is_explained(client: Client, tool: str, arguments: dict[str, Any], named: str) -> None:
    """The message names the argument, its value and the remedy. The server is not called."""
    mark = Path(reported(client.call("plain"))["cwd"], "was-called")
    message = complaint(client.call(tool, {**arguments, "write": [{"path": str(mark), "text": ""}]}))
    assert message.startswith(named)
    assert "files_1_get_upload_url" in message
    assert not mark.exists()


def test_a_server_that_spoils_its_copy_spoils_no_other(client: Client, other: Client) -> None:
    """The stored upload is not the server's copy: the next session's server gets the original bytes."""
    handle = client.upload(("data.txt", b"as sent"))[0]
    path = reported(client.call("take_one", {"file": handle}))["arguments"]["file"]
    client.call("plain", {"write": [{"path": path, "text": "spoilt"}]})
    again = other.upload(("data.txt", b"as sent"))[0]
    assert list(reported(other.call("take_one", {"file": again}))["files"].values()) == ["as sent"]


def test_features_that_are_off_are_absent(tmp_path: Path) -> None:
    """An artifact is still described without downloads and listed resources. Hashes can be required."""
    off: dict[str, Any] = {
        "core": {"allow_artifacts_download": False},
        "artifacts": {"expose_as_resources": False},
        "uploads": {"require_sha256": True},
    }
    with filing.gateway(tmp_path, settings(tmp_path / "shared", **off)) as proxy:
        with filing.session(proxy.url_of("files-1")) as client:
            arguments = written("x.txt", "x")
            result = client.call("by_usual_regex", arguments)
            artifact = artifact_of(result)
            assert result["content"] == [*arguments["reply"]["content"], *saying(artifact["artifact_uri"])["content"]]
            assert artifact["expose_as_resource"] is False
            assert "download_url" not in artifact
            assert client.listed() == []
            sid, aid = artifact["artifact_uri"].split("/")[3:5]
            path = f"/artifacts/files-1/{sid}/{aid}/x.txt?exp=9999999999&sig={'0' * 22}"
            assert fetch(proxy.base_url + path).status == 404

            offer = client.offer()
            assert offer["sha256_required"] is True
            assert offer["example_curl"].endswith(' -F "file=@/path/to/file1" -F "sha256=<hex of file 1>"')
            reply = post(offer["upload_url"], ("x.txt", b"x"))
            assert (reply.status, reply.json["code"]) == (400, "sha256_required")
            assert post(offer["upload_url"], ("x.txt", b"x"), hashes=[sha256(b"x")]).status == 200

    bare: dict[str, Any] = {"artifacts": {"enabled": False}, "uploads": {"enabled": False}}
    with filing.gateway(tmp_path, settings(tmp_path / "shared", **bare)) as proxy:
        with filing.session(proxy.url_of("files-1")) as client:
            assert client.capabilities == {"tools": {}}
            assert "files_1_get_upload_url" not in [tool["name"] for tool in client.request("tools/list")["tools"]]
            for tool in ("by_usual_regex", "by_argument", "embedded"):
                assert client.call(tool, written("x.txt", "x")) == written("x.txt", "x")["reply"]
            assert post(f"{proxy.base_url}/upload/files-1", ("x", b"x")).json["code"] == "uploads_disabled"


# --- Expiry ---------------------------------------------------------------------------------------------------------


def make(client: Client, name: str, text: str) -> dict[str, Any]:
    return artifact_of(client.call("by_usual_regex", written(name, text)))


def link_status(url: str) -> int:
    """Returns the status of an upload link without using it up: the body is no form."""
    return fetch(url, method="POST", headers={"Content-Type": "application/json"}, body=b"{}").status


def test_links_and_files_expire_in_time(tmp_path: Path) -> None:
    """Links, uploads and artifacts expire in time. An upload in use does not, however long the call takes."""
    root, shared = tmp_path / "data", tmp_path / "shared"
    lives: dict[str, Any] = {"uploads": {"ttl_seconds": 2, "link_ttl_seconds": 3}, "artifacts": {"ttl_seconds": 3}}
    with (
        filing.gateway(tmp_path, settings(shared, **lives)) as proxy,
        filing.session(proxy.url_of("files-1")) as client,
    ):
        url = client.offer()["upload_url"]
        assert link_status(url) == 415
        rig.until(lambda: link_status(url) == 403, "the upload link to expire")

        handle = client.upload(("idle.txt", b"idle"))[0]
        rig.until(lambda: not blobs(root), "the unused upload to go")
        assert "expired" in complaint(client.call("take_one", {"file": handle}))

        artifact = make(client, "short.txt", "short-lived")
        assert fetch(artifact["download_url"]).status == 200
        rig.until(lambda: not blobs(root), "the artifact to go")
        assert client.listed() == []
        assert client.exchange("resources/read", {"uri": artifact["artifact_uri"]})["error"]["code"] == -32002
        rig.until(lambda: fetch(artifact["download_url"]).status == 403, "its link to expire")

        (used,) = client.upload(("used.txt", b"used"))
        (used_blob,) = blobs(root)
        go = tmp_path / "go"
        results: list[dict[str, Any]] = []
        call = threading.Thread(
            target=lambda: results.append(client.call("take_one", {"file": used, "wait_for": str(go)}))
        )
        call.start()
        with filing.session(proxy.url_of("files-1")) as second:
            second.upload(("later.txt", b"later"))
            rig.until(lambda: len(blobs(root)) == 2, "both to be there")
            rig.until(lambda: blobs(root) == [used_blob], "the later one, which nobody uses, to go")
        go.touch()
        call.join(rig.PATIENCE_S)
        seen = reported(results[0])
        assert seen["files"][seen["arguments"]["file"]] == "used"
        rig.until(lambda: not blobs(root), "the upload to go after its use")


def test_each_call_may_have_a_session_of_its_own(proxy: rig.Proxy) -> None:
    """The upload comes when the session of its link has ended, and what later ones are handed is there."""
    url = proxy.url_of("files-1")
    with filing.session(url) as first:
        link = first.offer()["upload_url"]
    handle = post(link, ("in.txt", b"in")).json["upload_handle"]
    with filing.session(url) as second:
        assert reported(second.call("take_one", {"file": handle}))["files"]
    with filing.session(url) as third:
        artifact = make(third, "out.txt", "out")
    with filing.session(url) as fourth:
        assert reported(fourth.call("take_one", {"file": artifact["artifact_uri"]}))["files"]
        assert fourth.listed() == []


def test_an_ended_session_leaves_its_artifacts_only_where_files_are_of_it(tmp_path: Path) -> None:
    """The client ends the session, or it expires: folders, processes and uploads go, download links still work."""
    root, shared = tmp_path / "data", tmp_path / "shared"
    sessions = {"idle_ttl_seconds": 3, "file_scope": "session"}
    with filing.gateway(tmp_path, settings(shared, sessions=sessions)) as proxy:
        for is_ended_by_client in (True, False):
            kept = set(blobs(root))
            client = Client(proxy.url_of("files-1"))
            handle = client.upload(("up.txt", b"up"))[0]
            seen = reported(client.call("take_one", {"file": handle}))
            artifact = make(client, "kept.txt", "kept")
            client.call("plain", {"write": [{"path": f"{seen['tmp']}/t", "text": ""}]})
            assert len(set(blobs(root)) - kept) == 2
            assert (len(workspaces(root)), len(proxy.server_pids)) == (1, 1)
            if is_ended_by_client:
                client.end()
            rig.until(lambda: not proxy.server_pids, "the server to end")
            rig.until(
                lambda tmp=seen["tmp"]: not workspaces(root) and not os.path.exists(tmp), "the session's folders to go"
            )
            rig.until(lambda kept=kept: len(set(blobs(root)) - kept) == 1, "the upload to go")
            assert fetch(artifact["download_url"]).body == b"kept"
            assert client._fetch("GET").status == 404


@pytest.mark.parametrize("is_crash", [False, True], ids=["stopped", "killed"])
def test_a_restart_keeps_what_was_promised(tmp_path: Path, is_crash: bool) -> None:
    """Links still work, and uploads are kept for their clients. The sessions' folders are gone, and nothing else is
    left."""
    root, shared = tmp_path / "data", tmp_path / "shared"
    with filing.gateway(tmp_path, settings(shared)) as first:
        client = Client(first.url_of("files-1"))
        artifact = make(client, "kept ä.txt", "kept")
        upload_url = client.offer()["upload_url"]
        handle = client.upload(("up.txt", b"up"))[0]
        tmp = reported(client.call("take_one", {"file": handle}))["tmp"]
        make(client, "second.txt", "second")
        assert len(blobs(root)) == 3
        if is_crash:
            first.kill()
            first.assert_gone()
        base_url = first.base_url
    with filing.gateway(tmp_path, settings(shared)) as again:
        reply = fetch(artifact["download_url"].replace(base_url, again.base_url))
        assert (reply.status, reply.body) == (200, b"kept")
        assert reply.headers["etag"] == f'"{artifact["sha256"]}"'
        assert "kept%20%C3%A4.txt" in reply.headers["content-disposition"]
        assert len(blobs(root)) == 3
        assert not os.path.exists(tmp)
        rig.until(lambda: not workspaces(root), "old sessions' folders, and those of the start, to be gone")
        moved = upload_url.replace(base_url, again.base_url)
        assert [post(moved, ("x", b"x")).status for _ in range(2)] == [200, 403], "an upload link works once"
        client.url = again.url_of("files-1")
        assert client._fetch("GET").status == 404
