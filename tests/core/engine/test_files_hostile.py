"""Tests of hostile clients and servers of the file plane: no foreign file gets in or out, and the engine goes on.

The disk is simulated, so that the tests see every storage order of the engine. Only a session's own files are
permitted.
"""

from __future__ import annotations

import base64
import json
import posixpath
import re
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import pytest
from driving import UNIX_AT_ZERO, ask_link, connect
from file_scenes import Scene, artifacts, names, texts
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from inside import Inside
from isthmus.core.base.events import DownloadOpening, UploadOpening
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import (
    ArtifactProducer,
    AutoFiles,
    Kind,
    LocatorMode,
    OutputLocator,
    ServerPlan,
    UploadConsumer,
)
from isthmus.core.base.storage import Collect, Fetch, FileSource, Materialize, Receive, Save, Serve, Survey

AUTO = ServerPlan(id="s", kind=Kind.PIPE, auto_files=AutoFiles())
EVERY = tuple(mode for mode in LocatorMode if mode is not LocatorMode.NONE)
ADAPTED = ServerPlan(
    id="s",
    kind=Kind.PIPE,
    consumers=(
        UploadConsumer(tools=("take*",), file_path_argument=("path", "many[*]", "deep.path")),
        UploadConsumer(tools=("open",), file_path_argument="path", accept_other=True),
    ),
    producers=(
        ArtifactProducer(tools=("save",), output_path_argument="path"),
        ArtifactProducer(
            tools=("make",), output_locator=OutputLocator(mode=EVERY, output_path_key="path"), rewrite_text=True
        ),
    ),
)
A, B = "a" * 32, "b" * 32
TOOLS = '{"tools":[{"name":"run","inputSchema":{"type":"object"}}]}'

# Paths that are not the caller's, or are no paths at all.
PATHS = (
    "/etc/passwd",
    "/data/state/records.sqlite",
    "/w/other/ws/secret.txt",
    "../../other/ws/secret.txt",
    "../" * 40 + "etc/passwd",
    "..\\..\\other\\ws\\secret.txt",
    "file:///w/other/ws/secret.txt",
    "file://localhost/w/other/ws/secret.txt",
    "FILE:/w/other/ws/secret.txt",
    "file:///w/%6fther/ws/secret.txt",
    "file:////w/other/ws/secret.txt",
    "file://evil.example/share/x.txt",
    "\\\\server\\share\\secret.txt",
    "//server/share/secret.txt",
    "C:\\Windows\\win.ini",
    "\\\\?\\C:\\secret.txt",
    "/proc/self/environ",
    "/dev/stdin",
    "CON",
    "NUL.txt",
    "~root/.ssh/id_rsa",
    "/w/other/ws/secret.txt\0.png",
    "/w/" + "x" * 4096 + "/a.txt",
    "\u202etxt.terces/sw/rehto/w/",
    "/w/other/ws/se\u0301cret.txt",
    "/w/other/ws/secret.txt\n",
    "/w/./other//ws/../ws/secret.txt",
)
HANDLES = (
    f"upload://sessions/{A}/{B}",
    f"upload://sessions/{A}/{B}/../../{A}",
    f"upload://sessions/../{B}",
    f"upload://sessions/{A}/..%2f..%2fetc",
    f"upload://sessions/{A.upper()}/{B}",
    f"upload://sessions/{A}/{B}\0",
    f"upload://sessions/{A}",
    "upload://",
    "upload:///etc/passwd",
    f"artifact://sessions/{A}/{B}/x.txt",
    f"artifact://sessions/{A}/{B}/../../../../etc/passwd",
    "artifact:///etc/passwd",
    f"file://upload://sessions/{A}/{B}",
)


def scene_of(plan: ServerPlan, **more: Any) -> Scene:
    """A scene in which the tools of a server with `files: auto` were listed."""
    scene = Scene(plan, **more)
    if plan.auto_files is not None:
        scene.client.request('"tools"', "tools/list")
        scene.world.answer(scene.world.take_sent("tools/list"), TOOLS)
    scene.disk.write("/w/other/ws/secret.txt", b"secret")
    scene.disk.write("/data/state/records.sqlite", b"secret")
    return scene


def check_nothing_taken(scene: Scene, result: dict[str, Any]) -> None:
    """Fails if a file was collected that was not the session's own."""
    base = scene.base + "/"
    for order in scene.world.every(Collect):
        for source in order.sources:
            if isinstance(source, FileSource):
                assert all(path.startswith(base) for path in source.candidates), source
    assert all(data != b"secret" for data in scene.disk.blobs.values())
    assert scene.disk.files["/w/other/ws/secret.txt"].data == b"secret"
    assert "secret" not in str([made["filename"] for made in artifacts(result) if made["size_bytes"] == len(b"secret")])


def check_works(scene: Scene) -> None:
    handle = scene.upload("fine.txt", b"fine")
    tool = "run" if Inside(scene.world.engine).context.servers["s"].auto_files else "take"
    channel, got = scene.begin(tool, path=handle)
    assert scene.disk.files[got["path"]].data == b"fine"
    assert texts(scene.end(channel, "went well")).startswith("went well")


# --- Clients: arguments ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", HANDLES)
@pytest.mark.parametrize("plan", [AUTO, ADAPTED], ids=["auto", "adapted"])
def test_a_handle_that_is_not_the_callers_names_nothing(plan: ServerPlan, text: str) -> None:
    """A foreign handle is handled like one that does not exist, wherever it stands, and no file is placed for it."""
    scene = scene_of(plan)
    mine = scene.upload("mine.txt", b"mine")
    for tool in ("run",) if plan is AUTO else ("take", "open"):
        for arguments in ({"path": text}, {"path": mine, "more": text}, {"path": f"see {text}, {text}"}):
            orders = len(scene.world.every(Materialize))
            channel, got = scene.begin(tool, **arguments)
            laid = scene.world.every(Materialize)[orders:]
            assert all(order.upload == mine.rpartition("/")[2] for order in laid)
            if got:
                scene.end(channel, "done")
                assert text in json.dumps(got, ensure_ascii=False).replace("\\u0000", "\0") or mine in text
            else:
                assert scene.only_message(channel)["isError"]
    check_works(scene)


@pytest.mark.parametrize("path", PATHS)
def test_a_path_is_refused_as_a_handle(path: str) -> None:
    """A path passes for a file neither as it is, nor in a list, nor deeper."""
    scene = scene_of(ADAPTED)
    for arguments in ({"path": path}, {"many": [path]}, {"deep": {"path": path}}, {"path": [path]}):
        channel, got = scene.begin("take", **arguments)
        assert got == {}
        assert scene.only_message(channel)["isError"]
    channel, got = scene.begin("open", path=path)
    assert got == {"path": path}, "with `accept_other` it passes unchanged"
    check_works(scene)


@pytest.mark.parametrize("path", PATHS)
def test_an_output_goes_into_a_folder_of_its_own_whatever_it_is_to_be_called(path: str) -> None:
    scene = scene_of(ADAPTED)
    channel, got = scene.begin("save", path=path)
    folder, _, name = got["path"].rpartition("/")
    assert re.fullmatch(re.escape(scene.base) + "/out/[0-9a-f]{32}", folder)
    assert name not in ("", ".", "..")
    assert len(name.encode()) <= 255
    assert not set(name) & set("\0\n\r\\:\u202e")
    scene.disk.write(got["path"], b"made")
    (made,) = artifacts(scene.end(channel, "done"))
    assert "/" not in made["filename"]
    assert unquote(made["artifact_uri"]).count("/") == 5


@pytest.mark.parametrize("arguments", [b"upload://sessions/ " * 50_000, b"[" * 5000 + b"]" * 5000, b"\\u0000" * 50_000])
def test_arguments_of_any_shape_are_answered(arguments: bytes) -> None:
    """Many beginnings of handles, deep nests, and nothing but escapes are passed on, or refused."""
    scene = scene_of(AUTO)
    value = arguments if arguments.startswith(b"[") else b'"' + arguments + b'"'
    params = b'{"name":"run","arguments":{"path":' + value + b"}}"
    message = b'{"jsonrpc":"2.0","id":77,"method":"tools/call","params":' + params + b"}"
    channel = scene.client.send(message)
    scene.disk.settle()
    assert scene.world.sent[channel] or scene.world.was_sent("tools/call")
    check_works(scene_of(AUTO))


def test_a_thousand_handles_are_too_many_for_one_call() -> None:
    scene = scene_of(AUTO)
    mine = scene.upload("mine.txt", b"mine")
    before = len(scene.world.every(Materialize))
    channel, got = scene.begin("run", paths=[mine] * 2000)
    assert got == {}
    assert scene.only_message(channel)["isError"]
    assert len(scene.world.every(Materialize)) == before
    check_works(scene)


words = st.sampled_from([*HANDLES, *PATHS, "{mine}", "{mine}/x.txt", "'", '"', "\\", " ", ",", "\n", "text", "é", "]("])
values = st.recursive(
    st.lists(words, min_size=1, max_size=5).map("".join) | st.integers() | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=60)
@given(value=values)
def test_only_own_handles_are_replaced_in_any_arguments(value: object) -> None:
    """Arguments go up unchanged but for the caller's own handles; a refused call is not sent."""
    # Characters right after a file name would belong to the name.
    assume(not re.search(r"x\.txt[\w{]", json.dumps(value, ensure_ascii=False)))
    scene = scene_of(AUTO)
    mine = scene.upload("mine.txt", b"mine")
    given_value = json.loads(json.dumps(value).replace("{mine}", mine))
    channel, got = scene.begin("run", value=given_value)
    laid = scene.world.every(Materialize)
    assert {order.upload for order in laid} <= {mine.rpartition("/")[2]}
    if not got:
        assert scene.only_message(channel)["isError"]
        assert any(scheme in json.dumps(given_value) for scheme in ("upload://", "artifact://"))
        return
    path = next((name for name in scene.disk.files if name.startswith(scene.base)), "")
    assert strip(strip(got["value"], path), mine) == strip(given_value, mine)


def strip(value: object, *texts: str) -> object:
    """The value with those texts, and what a handle may drag behind it, taken out of its strings."""
    if isinstance(value, str):
        for text in (texts[0] + "/x.txt", *texts) if texts[0] else ():
            value = value.replace(f"file://{text}", "").replace(text, "")
        return value
    if isinstance(value, list):
        return [strip(item, *texts) for item in value]
    if isinstance(value, dict):
        return {name: strip(item, *texts) for name, item in value.items()}
    return value


# --- Servers: results -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("plan", [AUTO, ADAPTED], ids=["auto", "adapted"])
def test_a_result_takes_nothing_that_is_not_the_sessions(plan: ServerPlan, path: str) -> None:
    """A foreign file is not collected, named in text, structure, links, embedded resources, arguments, or twice."""
    scene = scene_of(plan)
    uri = path if ":" in path else f"file://{path}"
    content = [
        {"type": "text", "text": f"Saved to {path}\n[{path}]({path}) `{path}` ({path})"},
        {"type": "resource_link", "name": path, "uri": uri},
        {"type": "resource", "resource": {"uri": uri, "name": path, "text": "hello", "mimeType": "text/\0plain"}},
    ]
    tool = "run" if plan is AUTO else "make"
    channel, _ = scene.begin(tool, output=path, paths=[path])
    result = {"content": content, "structuredContent": {"path": path, "also": [path]}}
    scene.world.answer(scene.received, json.dumps(result))
    scene.disk.settle()
    while scene.world.was_sent("resources/read"):
        scene.world.answer(scene.world.take_sent("resources/read"), '{"contents":[]}')
        scene.disk.settle()
    answer = scene.only_message(channel)
    check_nothing_taken(scene, answer)
    for made in artifacts(answer):
        assert made["size_bytes"] == 5, "only the embedded text is collected"
        assert not set(made["filename"]) & set("/\\\0\n\u202e")
    check_works(scene)


def test_a_result_of_ten_megabytes_of_paths_is_bounded_work() -> None:
    """The number of paths that are looked at is bounded, in text or structure, and the text passes."""
    scene = scene_of(AUTO)
    text = " ".join(f"/etc/{number}.txt" for number in range(500_000))
    result = scene.call("run", text, structuredContent={"paths": [f"/tmp/{number}" for number in range(20_000)]})
    assert result["content"][0]["text"] == text
    named = scene.world.last(Survey).named
    assert 0 < len(named) <= 200
    assert all(len(spellings) <= 64 for spellings in named)
    check_works(scene)


def test_a_text_that_repeats_a_known_name_is_not_blown_up_without_bound() -> None:
    """Each replacement is longer than what it replaces, so their number is bounded."""
    scene = scene_of(AUTO)
    result = scene.call("run", "f0.txt " * 300_000, writes={f"f{number}.txt": b"x" for number in range(8)})
    assert len(artifacts(result)) == 8
    assert result["content"][0]["text"].count("artifact://") < 270_000
    check_works(scene)


def test_a_thousand_embedded_files_are_too_many_for_one_result() -> None:
    scene = scene_of(ADAPTED)
    blob = base64.b64encode(b"x").decode()
    block = {"type": "resource", "resource": {"uri": "file:///../../etc/cron.d/x", "blob": blob}}
    channel, _ = scene.begin("make")
    scene.world.answer(scene.received, json.dumps({"content": [block] * 1000}))
    scene.disk.settle()
    made = artifacts(scene.only_message(channel))
    assert len(made) == Limits().artifacts_per_call_max
    assert {"/" in one["filename"] for one in made} == {False}
    check_works(scene)


def test_a_thousand_links_are_not_all_followed() -> None:
    """Links that are followed are neither the proxy's own URIs nor files."""
    scene = scene_of(ADAPTED)
    channel, _ = scene.begin("make")
    uris = [f"demo://{number}" for number in range(1000)] + [f"artifact://sessions/{A}/{B}/x", "file:///etc/passwd"]
    links = [{"type": "resource_link", "name": "x", "uri": uri} for uri in reversed(uris)]
    scene.world.answer(scene.received, json.dumps({"content": links}))
    scene.disk.settle()
    asked = [
        received.frame["params"]["uri"]
        for received in scene.world.unread
        if received.frame["method"] == "resources/read"
    ]
    assert 0 < len(asked) <= Limits().artifacts_per_call_max
    assert all(uri.startswith("demo://") for uri in asked)
    for _ in asked:
        received = scene.world.take_sent("resources/read")
        evil = {"uri": "file:///../../etc/passwd", "text": "x", "mimeType": "../../x"}
        scene.world.answer(received, json.dumps({"contents": [evil] * 5}))
    scene.disk.settle()
    assert len(artifacts(scene.only_message(channel))) <= Limits().artifacts_per_call_max
    check_works(scene)


def test_a_server_that_makes_fifty_thousand_files() -> None:
    """The result says that files beyond the limit are left for later, and each survey of the disk is bounded."""
    scene = scene_of(AUTO)
    channel, _ = scene.begin("run")
    for number in range(50_000):
        scene.disk.write(f"{scene.ws}/many/{number:05}.txt", b"x")
    result = scene.end(channel, "made a few files")
    limits = Limits()
    assert len(artifacts(result)) == limits.artifacts_per_call_max
    assert "left for later calls" in result["_meta"]["artifact_error"]
    assert "more files in the session's folders than are watched" in result["_meta"]["artifact_error"]
    assert all(order.entries_max <= limits.files_known_max for order in scene.world.every(Survey))
    assert len(Inside(scene.world.engine).calls._known_files_by_workspace[scene.base[3:]]) <= 2 * limits.files_known_max
    check_works(scene)


def test_files_from_before_the_call_are_no_outputs_even_if_too_many_to_watch() -> None:
    """More files than are watched exist from the start; some of them are deleted, others are made."""
    scene = scene_of(AUTO, limits=Limits(files_known_max=10))
    for number in range(30):
        scene.disk.write(f"{scene.ws}/{number:03}.txt", b"old")
    scene.world.wait(60)
    assert names(scene.call("run", f"see {scene.ws}/025.txt")) == []
    assert names(scene.call("run", "wrote zzz.txt", writes={"zzz.txt": b"new"})) == ["zzz.txt"]
    for number in range(5):
        del scene.disk.files[f"{scene.ws}/{number:03}.txt"]
        assert names(scene.call("run")) == []
    assert names(scene.call("run", writes={"000.txt": b"new"})) == ["000.txt"]
    assert names(scene.call("run")) == []


def test_a_concurrent_call_hides_no_output_of_the_first() -> None:
    """Two calls survey the folders before they go up; a file that one wrote between the surveys is still new."""
    scene = scene_of(AUTO)
    params = '{"name":"run","arguments":{}}'
    first = scene.client.request("1", "tools/call", params)
    scene.client.request("2", "tools/call", params)
    orders = scene.world.every(Survey)
    assert len(orders) == 2
    scene.world.store(orders[0].ticket, scene.disk._carry_out(orders[0]))  # type: ignore[arg-type]
    scene.received = scene.world.take_sent("tools/call")
    scene.disk.write(f"{scene.ws}/a.txt", b"x")
    scene.world.store(orders[1].ticket, scene.disk._carry_out(orders[1]))  # type: ignore[arg-type]
    scene.disk._read = len(scene.world.log)
    assert names(scene.end(first, "done")) == ["a.txt"]


def test_a_file_that_is_too_large_is_reported_once() -> None:
    """A file that is too large does not take the place of others."""
    scene = scene_of(AUTO, limits=Limits(artifact_size_max_bytes=10, artifacts_per_call_max=2))
    writes = {f"{number}.bin": b"x" * 11 for number in range(2)}
    assert "too large" in scene.call("run", writes=writes)["_meta"]["artifact_error"]
    result = scene.call("run", writes={"z.txt": b"x"})
    assert names(result) == ["z.txt"]
    assert "artifact_error" not in result["_meta"]


NAMES = (
    "a](http://evil.example/x.txt",
    f"artifact://sessions/{A}/{B}/x.txt",
    '","uri":"http://evil.example","x":".txt',
    "a\nartifact.txt",
    "\u202etxt.exe",
    "<script>alert(1)<⧸script>.html",
    "%2e%2e%2f%2e%2e%2fetc.txt",
    "a?sig=1&exp=2#f.txt",
    "-rf.txt",
    "é" * 100 + ".txt",
)


@pytest.mark.parametrize("name", NAMES)
def test_no_file_name_smuggles_anything_into_a_result(name: str) -> None:
    """The artifact's URI has the name escaped, and nothing else is added to the result."""
    scene = scene_of(AUTO)
    path = posixpath.normpath(f"{scene.ws}/{name}")
    result = scene.call("run", f"wrote {path}; wrote '{name}'", writes={path: b"x"}, structuredContent={"path": path})
    (made,) = artifacts(result)
    assert re.fullmatch(r"artifact://sessions/[0-9a-f]{32}/[0-9a-f]{32}/[A-Za-z0-9._~%-]+", made["artifact_uri"])
    assert set(result["structuredContent"]) == {"path"}
    assert re.fullmatch(r"http://here/artifacts/s/[0-9a-f]{32}/[0-9a-f]{32}/[^/?#]+\?[^ ]+", made["download_url"])
    kinds = [block["type"] for block in result["content"]]
    assert kinds.count("resource_link") == 1
    assert all(block["uri"] == made["artifact_uri"] for block in result["content"] if block["type"] == "resource_link")
    read = scene.ask("resources/read", uri=made["artifact_uri"])
    assert "result" in read


fragments = st.sampled_from(
    ["{ws}/own.txt", "own.txt", "./own.txt", "{ws}", "{ws}/", "file://{ws}/own.txt", "http://x/own.txt", "[a](own.txt)",
     "`own.txt`", "'own.txt'", " ", "/", "..", "x", "#L1", ":1", "?", "%2F", "\\", "\n", '"', "artifact://sessions/",
     f"artifact://sessions/{A}/{B}/own.txt", f"upload://sessions/{A}/{B}", "é", "\u202e"]
)  # fmt: skip


@settings(max_examples=60)
@given(pieces=st.lists(fragments, max_size=8), structured=st.lists(fragments, max_size=4))
def test_only_own_uris_are_added_to_any_result(pieces: list[str], structured: list[str]) -> None:
    """A file URI in the answer was in the server's result, or is that of the collected file."""
    scene = scene_of(AUTO)
    text = "".join(pieces).replace("{ws}", scene.ws)
    structure = {"of": "".join(structured).replace("{ws}", scene.ws)}
    result = scene.call("run", text, writes={"own.txt": b"own"}, structuredContent=structure)
    (made,) = artifacts(result)
    original = text + " " + structure["of"]
    for uri in re.findall(r"(?:artifact|upload)://sessions/[0-9a-f]{32}/[0-9a-f]{32}", json.dumps(result)):
        assert uri in original or made["artifact_uri"].startswith(uri)
    assert scene.base not in json.dumps(result["_meta"])
    foreign = f"artifact://sessions/{A}/{B}/own.txt"
    assert result["content"][0]["text"].count(foreign) == text.count(foreign)


# --- Links, reads and cursors ---------------------------------------------------------------------------------------

IDS = ("", ".", "..", "../s", "s/../s", "S", "s\0", "s" * 4096, "\u202es", "/etc", A)


@pytest.mark.parametrize("id", IDS)
def test_links_with_a_bad_name_are_refused(id: str) -> None:
    """Links with a bad server, session, handle or file name are refused, each with all else valid."""
    scene = scene_of(AUTO)
    (made,) = artifacts(scene.call("run", writes={"a.txt": b"x"}))
    sid, aid, name = made["artifact_uri"].split("/")[3:]
    good = {"server": "s", "sid": sid, "artifact": aid, "filename": name}
    signed = dict(parse_qsl(urlsplit(made["download_url"]).query))
    for field in good:
        channel = scene.world.engine.new_channel()
        scene.world.open(channel, DownloadOpening(**{**good, field: id}, query=signed))
        assert scene.world.sent[channel][0].status in (403, 404), field
    link = ask_link(scene.client, "s_get_upload_url")
    for opening in (
        UploadOpening(server=id, query=link),
        UploadOpening(server="s", query=link, principal=id or "x"),
        UploadOpening(server="s", query={"grant": id}),
        UploadOpening(server="s", query={"grant": link["grant"][:-22] + id}),
    ):
        channel = scene.world.engine.new_channel()
        scene.world.open(channel, opening)
        assert 400 <= scene.world.sent[channel][0].status < 500
    assert not scene.world.every(Receive)
    assert not scene.world.every(Serve)
    check_works(scene)


@pytest.mark.parametrize("uri", [*HANDLES, *PATHS])
def test_reading_and_subscribing_find_nothing_that_is_not_ones_own(uri: str) -> None:
    scene = scene_of(AUTO)
    before = len(scene.world.every(Fetch))
    for method in ("resources/read", "resources/subscribe"):
        channel = scene.client.request("5", method, json.dumps({"uri": uri}))
        scene.disk.settle()
        if uri.startswith("artifact://"):
            assert "error" in scene.world.only_message(channel)
    assert len(scene.world.every(Fetch)) == before, "other URIs go to the server"
    check_works(scene)


@pytest.mark.parametrize("rest", ["", "nan:", "inf:x", "-1e400:" + A, "1:../..", "0:" + A, "x" * 5000, "1e5", "\0:\0"])
def test_a_cursor_is_ours_or_refused(rest: str) -> None:
    scene = scene_of(AUTO, limits=Limits(artifact_page_max=1))
    scene.call("run", writes={"a.txt": b"x", "b.txt": b"x"})
    channel = scene.client.request("5", "resources/list", json.dumps({"cursor": "isthmus-artifact:" + rest}))
    scene.disk.settle()
    answer = scene.world.only_message(channel)
    if "result" in answer:
        listed = answer["result"]["resources"]
        assert len(listed) <= 1
        assert all(scene.client.session not in one["uri"] for one in listed)
    check_works(scene)


def test_files_of_another_principal_do_not_exist() -> None:
    """Files of another principal can be neither passed nor read, even with the id of the other's session."""
    scene = scene_of(AUTO)
    handle = scene.upload("mine.txt", b"mine")
    (made,) = artifacts(scene.call("run", writes={"a.txt": b"x"}))
    stranger = connect(scene.world, "http", "s", principal="mallory", capabilities='{"tools":{},"resources":{}}')
    scene.disk.settle()
    laid, saved = len(scene.world.every(Materialize)), len(scene.world.every(Save))
    for text in (handle, made["artifact_uri"], f"see {handle}"):
        call = json.dumps({"name": "run", "arguments": {"path": text}})
        channel = stranger.request("5", "tools/call", call)
        scene.disk.settle()
        refusal = scene.world.only_message(channel)["result"]
        assert refusal["isError"]
        assert "mine.txt" not in texts(refusal)
    channel = stranger.request("6", "resources/read", json.dumps({"uri": made["artifact_uri"]}))
    scene.disk.settle()
    unknown = made["artifact_uri"].replace(made["artifact_id"], "c" * 32)
    other = stranger.request("6", "resources/read", json.dumps({"uri": unknown}))
    foreign, missing = json.dumps(scene.world.only_message(channel)), json.dumps(scene.world.only_message(other))
    assert foreign.replace(made["artifact_id"], "c" * 32) == missing, "as one that never existed"
    stranger.session = scene.client.session
    taken = stranger.request("7", "tools/call", json.dumps({"name": "run", "arguments": {"path": handle}}))
    scene.disk.settle()
    assert scene.world.sent[taken][0].status == 404
    assert (len(scene.world.every(Materialize)), len(scene.world.every(Save))) == (laid, saved)
    check_works(scene)


def test_time_that_a_server_claims_proves_nothing() -> None:
    """A file elsewhere with a modification time in the future is collected only where artifacts may lie."""
    scene = scene_of(AUTO, roots=("/shared",))
    scene.disk.write("/shared/old.txt", b"old")
    scene.disk.files["/w/other/ws/secret.txt"].changed_at_unix = UNIX_AT_ZERO + 10**9
    scene.world.wait(60)
    result = scene.call("run", "see /w/other/ws/secret.txt and /shared/old.txt")
    check_nothing_taken(scene, result)
    assert artifacts(result) == []
