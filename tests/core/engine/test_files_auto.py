"""Tests of `files: auto`: handles in any argument, outputs found without configuration, paths in text replaced by
URIs."""

from __future__ import annotations

import json
import re
from typing import Any

import file_scenes
import pytest
from file_scenes import artifacts, names, texts
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import AutoFiles, Kind, ServerPlan, SharedFolder

HELPER = "auto_get_upload_url"
TOOLS = json.dumps(
    {
        "tools": [
            {"name": "run", "inputSchema": {"type": "object", "properties": {"path": {"type": "string"}}}},
            {"name": "convert", "inputSchema": {"type": "object", "properties": {"uri": {"type": "string"}}}},
            {
                "name": "look",
                "annotations": {"readOnlyHint": True},
                "inputSchema": {"type": "object", "properties": {"source": {"type": "string"}}},
            },
            {"name": "touch", "inputSchema": {"type": "object", "properties": {"source": {"type": "string"}}}},
        ]
    }
)


class Scene(file_scenes.Scene):
    """One client of a server whose files no adapter describes."""

    def __init__(self, *, limits: Limits | None = None, roots: tuple[str, ...] = (), **more: Any) -> None:
        auto = more.pop("auto", AutoFiles())
        super().__init__(ServerPlan(id="auto", kind=Kind.PIPE, auto_files=auto, **more), limits=limits, roots=roots)
        channel = self.client.request('"tools"', "tools/list")
        self.world.answer(self.world.take_sent("tools/list"), TOOLS)
        assert self.only_message(channel)


# --- Inputs -----------------------------------------------------------------------------------------------------------


def test_a_handle_becomes_a_path_wherever_it_stands() -> None:
    scene = Scene()
    handle = scene.upload("a b.txt", b"hello")
    nested = json.dumps({"files": [handle]})
    sql = f"SELECT * FROM read_csv('{handle}')"
    channel, got = scene.begin("run", path=handle, deep={"of": [1, {"it": f"see {handle}."}]}, text=nested, sql=sql)
    path = got["path"]
    assert path.startswith(f"{scene.base}/in/")
    assert path.endswith("/a b.txt")
    assert got["deep"] == {"of": [1, {"it": f"see {path}."}]}
    assert json.loads(got["text"]) == {"files": [path]}
    assert got["sql"] == f"SELECT * FROM read_csv('{path}')"
    assert scene.disk.files[path].data == b"hello"
    assert artifacts(scene.end(channel, f"read {path}")) == []


def test_a_tool_that_wants_a_uri_gets_one() -> None:
    scene = Scene()
    handle = scene.upload("a b.txt", b"hello")
    _, got = scene.begin("convert", uri=handle)
    assert got["uri"].startswith(f"file://{scene.base}/in/")
    assert got["uri"].endswith("/a%20b.txt")


def test_a_refused_path_becomes_a_uri_and_a_read_only_call_is_repeated() -> None:
    scene = Scene()
    handle = scene.upload("a.txt", b"hello")
    channel, got = scene.begin("look", source=handle)
    refusal = {"content": [{"type": "text", "text": f"Unsupported URI scheme: {got['source']}. Supported: file:"}]}
    scene.world.answer(scene.received, json.dumps({**refusal, "isError": True}))
    scene.disk.settle()
    scene.received = scene.world.take_sent("tools/call")
    again = scene.received.frame["params"]["arguments"]
    assert again == {"source": "file://" + got["source"]}
    assert texts(scene.end(channel, "fine")) == "fine"
    _, got = scene.begin("look", source=handle)
    assert got["source"].startswith("file://")


def test_a_call_that_may_have_side_effects_is_not_repeated() -> None:
    scene = Scene()
    handle = scene.upload("a.txt", b"hello")
    channel, got = scene.begin("touch", source=handle)
    result = scene.end(channel, f"Unsupported URI scheme: {got['source']}. Supported: file:", isError=True)
    assert result["isError"] is True
    assert not scene.world.was_sent("tools/call")
    _, got = scene.begin("touch", source=handle)
    assert got["source"].startswith("file://")  # the agent's next try gets a URI


def test_an_unknown_handle_is_explained_and_nothing_is_sent() -> None:
    scene = Scene()
    foreign = f"upload://sessions/{'a' * 32}/{'b' * 32}"
    channel, got = scene.begin("run", path=f"see {foreign}")
    assert got == {}
    answer = scene.only_message(channel)
    assert answer["isError"] is True
    assert foreign in texts(answer)
    assert HELPER in texts(answer)


# --- Outputs ----------------------------------------------------------------------------------------------------------


def test_changed_files_are_collected_whether_named_or_not() -> None:
    scene = Scene()
    result = scene.call("run", "done", writes={"report.docx": b"PK", "sub/b.csv": b"a,b"})
    assert sorted(names(result)) == ["b.csv", "report.docx"]
    assert artifacts(scene.call("run")) == []


@pytest.mark.parametrize(
    "name",
    [
        ".cache/x",
        "node_modules/x.js",
        "__pycache__/m.pyc",
        "a.crdownload",
        "b.part",
        "~$c.docx",
        ".~lock.d#",
        "e.db-wal",
    ],
)
def test_caches_and_unfinished_files_are_no_outputs(name: str) -> None:
    scene = Scene()
    assert artifacts(scene.call("run", writes={name: b"x"})) == []


def test_a_hidden_file_that_is_named_is_taken_in() -> None:
    scene = Scene()
    result = scene.call("run", "saved to [log](.logs/run.log)", writes={".logs/run.log": b"x"})
    assert names(result) == ["run.log"]


def test_temporary_files_are_taken_only_when_named() -> None:
    scene = Scene()
    tmp = f"{scene.base}/tmp"
    assert artifacts(scene.call("run", writes={f"{tmp}/profile/Cookies": b"secret"})) == []
    result = scene.call("run", f"Saved as {tmp}/out.png", writes={f"{tmp}/out.png": b"\x89PNG\r\n\x1a\n"})
    assert names(result) == ["out.png"]


def test_paths_in_text_are_replaced_by_uris() -> None:
    scene = Scene()
    text = "- [Snapshot](../out/page.yml)\n- Log: ../out/console.log#L1-L2\npath: './named.png'"
    writes = {
        f"{scene.base}/out/page.yml": b"- heading",
        f"{scene.base}/out/console.log": b"line",
        "named.png": b"\x89PNG\r\n\x1a\n",
    }
    result = scene.call("run", text, writes=writes)
    uris = {artifact["filename"]: artifact["artifact_uri"] for artifact in artifacts(result)}
    assert set(uris) == {"page.yml", "console.log", "named.png"}
    first = result["content"][0]["text"]
    assert first == f"- [Snapshot]({uris['page.yml']})\n- Log: {uris['console.log']}#L1-L2\npath: '{uris['named.png']}'"
    assert "- heading" in json.dumps(result["content"])  # small text is embedded
    assert scene.base not in json.dumps(result["content"])


def test_an_uploads_path_is_replaced_by_its_handle() -> None:
    scene = Scene()
    handle = scene.upload("logo.png", b"\x89PNG\r\n\x1a\n")
    channel, got = scene.begin("run", path=handle)
    result = scene.end(channel, f"Picture {got['path']} added; allowed: {scene.base}/ws")
    assert result["content"][0]["text"] == f"Picture {handle} added; allowed: ."
    assert artifacts(result) == []


def test_an_upload_that_is_changed_in_place_is_an_output() -> None:
    scene = Scene()
    handle = scene.upload("a.txt", b"one")
    channel, got = scene.begin("run", path=handle)
    scene.disk.write(got["path"], b"one two")
    result = scene.end(channel, f"Added to {got['path']}")
    assert names(result) == ["a.txt"]
    assert result["content"][0]["text"] == f"Added to {artifacts(result)[0]['artifact_uri']}"


def test_an_artifact_is_the_next_calls_input() -> None:
    scene = Scene()
    result = scene.call("run", "wrote a.txt", writes={"a.txt": b"first"})
    uri = artifacts(result)[0]["artifact_uri"]
    _, got = scene.begin("run", path=uri)
    assert scene.disk.files[got["path"]].data == b"first"
    assert got["path"].endswith("/a.txt")


def test_an_unfinished_file_is_collected_by_a_later_call() -> None:
    scene = Scene()
    channel, _ = scene.begin("run")
    path = scene.disk.write(f"{scene.ws}/slow.bin", b"xx", is_busy=True)
    result = scene.end(channel, f"Downloading to {path}")
    assert artifacts(result) == []
    assert "slow.bin" in result["_meta"]["artifact_error"]
    scene.disk.write(path, b"xxxx")
    assert names(scene.call("run", "something else")) == ["slow.bin"]
    assert artifacts(scene.call("run", "something else")) == []


def test_an_empty_file_is_awaited() -> None:
    scene = Scene()
    result = scene.call("run", "- [Snapshot](page.yml)", writes={"page.yml": b""})
    assert artifacts(result) == []
    assert "page.yml" in result["_meta"]["artifact_error"]
    scene.disk.write(f"{scene.ws}/page.yml", b"- heading")
    assert names(scene.call("run")) == ["page.yml"]


def test_a_file_that_was_moved_is_new() -> None:
    scene = Scene()
    scene.call("run", writes={"a.txt": b"x"})
    channel, _ = scene.begin("run")
    scene.disk.move(f"{scene.ws}/a.txt", f"{scene.ws}/b.txt")
    assert names(scene.end(channel, "moved a.txt to b.txt")) == ["b.txt"]


def test_the_files_of_a_named_folder_are_collected() -> None:
    scene = Scene()
    writes = {f"{scene.base}/out/traces/resources/{name}": b"x" for name in "abc"}
    result = scene.call("run", "- [Resources](../out/traces/resources)", writes=writes)
    assert sorted(names(result)) == ["a", "b", "c"]


def test_a_failed_result_collects_no_file_and_leaks_no_path() -> None:
    scene = Scene()
    channel, _ = scene.begin("run", path="/etc/passwd")
    scene.disk.write(f"{scene.ws}/half.txt", b"x")
    result = scene.end(channel, f"Error: /etc/passwd is outside of {scene.ws}", isError=True)
    assert artifacts(result) == []
    assert result["content"][0]["text"] == "Error: /etc/passwd is outside of ."
    assert names(scene.call("run")) == ["half.txt"]


def test_the_path_of_the_temporary_folder_is_hidden() -> None:
    """The path of the session's own temporary folder is replaced; that of another session stays as it is."""
    scene = file_scenes.Scene(ServerPlan(id="auto", kind=Kind.PIPE, auto_files=AutoFiles()), tmp_prefix="/var/i-")
    channel, _ = scene.begin("run")
    own = f"/var/i-{scene.base.removeprefix('/w/')}"
    result = scene.end(channel, f"profile in {own}/chrome, not /var/i-other/chrome")
    assert result["content"][0]["text"] == "profile in tmp/chrome, not /var/i-other/chrome"


def test_outside_of_the_session_only_what_the_call_wrote_is_taken() -> None:
    scene = Scene(roots=("/shared",))
    scene.disk.write("/shared/old.txt", b"old")
    scene.world.wait(60)
    result = scene.call("run", "there are /shared/old.txt and /shared/new.txt", writes={"/shared/new.txt": b"new"})
    assert names(result) == ["new.txt"]


def test_paths_in_structured_content_are_replaced_as_in_text() -> None:
    scene = Scene()
    path = f"{scene.ws}/a.txt"
    result = scene.call("run", f"wrote {path}", writes={"a.txt": b"x"}, structuredContent={"file": path, "n": 1.50})
    (artifact,) = artifacts(result)
    assert result["structuredContent"] == {"file": artifact["artifact_uri"], "n": 1.5}


def test_paths_of_a_server_that_sees_the_disk_elsewhere_are_translated() -> None:
    scene = Scene(shared=(SharedFolder("/w", "/data/w"),))
    handle = scene.upload("a.txt", b"x")
    channel, got = scene.begin("run", path=handle)
    assert got["path"].startswith("/data/w/")
    scene.disk.write(f"{scene.ws}/b.txt", b"y")
    result = scene.end(channel, f"wrote /data{scene.ws}/b.txt from {got['path']}")
    assert names(result) == ["b.txt"]
    assert result["content"][0]["text"] == f"wrote {artifacts(result)[0]['artifact_uri']} from {handle}"


def test_no_more_files_than_are_allowed_at_once() -> None:
    scene = Scene(limits=Limits(artifacts_per_call_max=3))
    result = scene.call("run", writes={f"{n}.txt": b"x" for n in range(5)})
    assert len(artifacts(result)) == 3
    assert "2 of 5" in result["_meta"]["artifact_error"]
    assert len(artifacts(scene.call("run"))) == 2


def test_calls_side_by_side_share_what_they_both_name() -> None:
    scene = Scene()
    first, _ = scene.begin("run")
    one = scene.received
    second, _ = scene.begin("run")
    scene.disk.write(f"{scene.ws}/a.txt", b"x")
    taken = artifacts(scene.end(second, "wrote a.txt"))
    scene.received = one
    assert artifacts(scene.end(first, "wrote a.txt")) == taken


def test_nothing_is_rewritten_where_that_is_off() -> None:
    scene = Scene(auto=AutoFiles(rewrite_text=False, inline_text_bytes=0))
    result = scene.call("run", f"wrote {scene.ws}/a.txt", writes={"a.txt": b"hello"})
    assert result["content"][0]["text"] == f"wrote {scene.ws}/a.txt"
    assert names(result) == ["a.txt"]
    assert not re.search("hello", json.dumps(result["content"]))


def test_without_artifacts_no_path_of_ours_is_shown_either() -> None:
    plan = ServerPlan(id="auto", kind=Kind.PIPE, auto_files=AutoFiles())
    scene = file_scenes.Scene(plan, artifacts_enabled=False)
    handle = scene.upload("a.txt", b"x")
    channel, _ = scene.begin("run", path=handle)  # the tools are listed first
    if scene.world.was_sent("tools/list"):
        scene.world.answer(scene.world.take_sent("tools/list"), TOOLS)
    scene.received = scene.world.take_sent("tools/call")
    path = scene.received.frame["params"]["arguments"]["path"]
    result = scene.end(channel, f"read {path}")
    assert texts(result) == f"read {handle}"
    assert artifacts(result) == []
