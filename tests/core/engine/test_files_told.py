"""Tests of what a client is told of files with `files: auto`: links and texts, versions of a file, and no path of the
session's folders in results, errors and notifications."""

from __future__ import annotations

import json
from typing import Any

import pytest
from file_scenes import Scene, artifacts
from isthmus.core.base.plan import ArtifactProducer, AutoFiles, Kind, Links, LocatorMode, OutputLocator, ServerPlan

LINKED = "resource_link"


def opened(**auto: Any) -> Scene:
    plan = ServerPlan(id="auto", kind=Kind.PIPE, auto_files=AutoFiles(**auto))
    return Scene(plan, tmp_prefix="/var/i-")


def told(result: dict[str, Any]) -> list[str]:
    """Returns the texts of a result, with each URI and link replaced by its number and kind."""
    texts = [block["text"] for block in result["content"] if block["type"] == "text"]
    for index, artifact in enumerate(artifacts(result)):
        for kind, key in (("uri", "artifact_uri"), ("url", "download_url")):
            texts = [text.replace(artifact[key], f"<{kind} {index}>") for text in texts]
    return texts


@pytest.mark.parametrize(
    ("links", "revision", "kinds", "texts"),
    [
        (Links.BOTH, "2025-11-25", ["text", LINKED, "text"], ["done\nFile: <uri 0>", "Download: <url 0>"]),
        (Links.RESOURCE_LINK, "2025-11-25", ["text", LINKED], ["done"]),
        (Links.TEXT, "2025-11-25", ["text", "text"], ["done\nFile: <uri 0>", "Download: <url 0>"]),
        (Links.BOTH, "2025-03-26", ["text", "text"], ["done\nFile: <uri 0>", "Download: <url 0>"]),
        (Links.RESOURCE_LINK, "2025-03-26", ["text", "text"], ["done\nFile: <uri 0>", "Download: <url 0>"]),
    ],
)
def test_a_result_leads_to_its_file_as_configured(
    links: Links, revision: str, kinds: list[str], texts: list[str]
) -> None:
    plan = ServerPlan(id="auto", kind=Kind.PIPE, auto_files=AutoFiles(links=links))
    result = Scene(plan, revision=revision).call("run", writes={"a.png": b"\x89PNG\r\n\x1a\n"})
    assert [block["type"] for block in result["content"]] == kinds
    assert told(result) == texts


def test_with_texts_only_a_small_text_file_is_a_text_too() -> None:
    result = opened(links=Links.TEXT).call("run", writes={"a.txt": b"hello"})
    assert told(result) == ["done", "<uri 0>:\nhello", "Download: <url 0>"]


def test_an_adapter_says_how_its_results_lead_to_files() -> None:
    locator = OutputLocator(mode=LocatorMode.STRUCTURED, output_path_key="file")
    producer = ArtifactProducer(tools=("run",), output_locator=locator, links=Links.TEXT)
    scene = Scene(ServerPlan(id="auto", kind=Kind.PIPE, producers=(producer,)), roots=("/out",))
    result = scene.call("run", writes={"/out/a.txt": b"x"}, structuredContent={"file": "/out/a.txt"})
    assert told(result) == ["done", "<uri 0>, download: <url 0>"]
    assert [block["type"] for block in result["content"]] == ["text", "text"]


# --- Versions ---------------------------------------------------------------------------------------------------------


def test_a_file_that_is_edited_again_has_versions_and_old_ones_stay_readable() -> None:
    scene = opened()
    results = [scene.call("run", "saved a.txt", writes={"a.txt": b"%d" % n, f"{n}.txt": b"x"}) for n in (1, 2, 3)]
    made = [{one["filename"]: one for one in artifacts(result)} for result in results]
    uris = [each["a.txt"]["artifact_uri"] for each in made]
    assert [each["a.txt"]["version"] for each in made] == [1, 2, 3]
    assert [each["a.txt"].get("replaces") for each in made] == [None, *uris[:2]]
    assert [each[f"{n}.txt"]["version"] for n, each in enumerate(made, 1)] == [1, 1, 1]
    assert f"Download (version 3; replaces {uris[1]}): http://" in json.dumps(results[2])
    for number, uri in enumerate(uris, 1):
        (contents,) = scene.ask("resources/read", uri=uri)["result"]["contents"]
        assert contents["text"] == str(number)


def test_a_version_is_said_though_nothing_can_be_downloaded() -> None:
    scene = Scene(ServerPlan(id="auto", kind=Kind.PIPE, auto_files=AutoFiles()), downloads_enabled=False)
    first, second = (scene.call("run", "saved a.png", writes={"a.png": data}) for data in (b"1", b"22"))
    uris = [artifacts(each)[0]["artifact_uri"] for each in (first, second)]
    assert [block["text"] for block in first["content"] if "text" in block] == [f"saved {uris[0]}"]
    assert second["content"][0]["text"] == f"saved {uris[1]}\nFile: {uris[1]} (version 2; replaces {uris[0]})"


# --- Paths ------------------------------------------------------------------------------------------------------------


def test_no_path_of_the_session_is_left_in_a_result() -> None:
    scene = opened()
    channel, _ = scene.begin("run")
    tmp = f"/var/i-{scene.base.removeprefix('/w/')}"
    blocks = [
        {"type": "text", "text": f"see https://h/?at={scene.ws}/a.png", "annotations": {"x": scene.ws}},
        {"type": "resource", "resource": {"uri": f"file://{scene.ws}/b.png", "blob": "AAAA"}},
        {"type": "resource_link", "uri": f"file://{tmp}/c.png", "name": f"{tmp}/c.png", "title": scene.base},
    ]
    scene.world.answer(
        scene.received,
        json.dumps({"content": blocks, "_meta": {scene.ws: scene.ws}, "structuredContent": {scene.ws: "x" + scene.ws}}),
    )
    scene.disk.settle()
    result = scene.only_message(channel)
    assert scene.base not in json.dumps(result)
    assert result["content"][1]["resource"] == {"uri": "file:///session/ws/b.png", "blob": "AAAA"}
    link = {"type": "resource_link", "uri": "file:///session/tmp/c.png", "name": "tmp/c.png", "title": ".."}
    assert result["content"][2] == link


def test_a_linked_file_is_read_by_the_uri_that_is_shown() -> None:
    scene = opened()
    scene.call("run", "x", _meta={})
    for shown, real in (
        ("ws/b%20c", f"{scene.base}/ws/b%20c"),
        ("tmp/d", f"/var/i-{scene.base.removeprefix('/w/')}/d"),
    ):
        channel = scene.client.request('"read"', "resources/read", json.dumps({"uri": f"file:///session/{shown}"}))
        asked = scene.world.take_sent("resources/read")
        assert asked.frame["params"]["uri"] == f"file://{real}"
        scene.world.answer(asked, json.dumps({"contents": [{"uri": f"file://{real}", "text": f"in {scene.ws}/x"}]}))
        (contents,) = scene.only_message(channel)["contents"]
        assert contents == {"uri": f"file:///session/{shown}", "text": "in x"}


def test_other_uris_are_read_as_they_are() -> None:
    scene = opened()
    for uri in ("file:///session", "file:///session/", "file:///sessions/ws/x", "demo:///session/ws/x"):
        channel = scene.client.request('"read"', "resources/read", json.dumps({"uri": uri}))
        asked = scene.world.take_sent("resources/read")
        assert asked.frame["params"]["uri"].removeprefix("file://" + scene.base) in (uri, "/")
        scene.world.answer(asked, '{"contents":[]}')
        assert scene.only_message(channel) == {"contents": []}


def test_errors_progress_logs_and_prompts_show_no_path_either() -> None:
    scene = opened()
    params = {"name": "run", "arguments": {}, "_meta": {"progressToken": "t"}}
    channel = scene.client.request('"call"', "tools/call", json.dumps(params))
    scene.disk.settle()
    call = scene.world.take_sent("tools/call")
    token = call.frame["params"]["_meta"]["progressToken"]
    said = {"progressToken": token, "progress": 1, "message": f"writes {scene.ws}/a"}
    for method, told in (("progress", said), ("message", {"level": "info", "data": {"at": f"{scene.ws}/a"}})):
        frame = {"jsonrpc": "2.0", "method": f"notifications/{method}", "params": told}
        scene.world.send(call.channel, json.dumps(frame).encode())
    scene.world.reply(
        call,
        json.dumps({"jsonrpc": "2.0", "id": call.id, "error": {"code": -1, "message": f"at {scene.ws}/a"}}).encode(),
    )
    scene.disk.settle()
    progress, log, error = scene.world.frames(channel)
    assert progress["params"] == {"progressToken": "t", "progress": 1, "message": "writes a"}
    assert log["params"]["data"] == {"at": "a"}
    assert error["error"]["message"] == "at a"
    channel = scene.client.request('"get"', "prompts/get", '{"name":"p"}')
    content = {"type": "text", "text": f"Look at {scene.ws}/a."}
    answer = {"messages": [{"role": "user", "content": content}]}
    scene.world.answer(scene.world.take_sent("prompts/get"), json.dumps(answer))
    assert scene.only_message(channel)["messages"][0]["content"]["text"] == "Look at a."


def test_lists_of_resources_and_servers_without_rewriting_keep_their_paths() -> None:
    scene = opened()
    listed = {"resources": [{"uri": f"file://{scene.ws}/a", "name": "a"}]}
    channel = scene.client.request('"list"', "resources/list")
    scene.world.answer(scene.world.take_sent("resources/list"), json.dumps(listed))
    assert listed["resources"][0] in scene.only_message(channel)["resources"]
    scene = opened(rewrite_text=False)
    uri = f"file://{scene.ws}/a"
    channel = scene.client.request('"read"', "resources/read", json.dumps({"uri": uri}))
    scene.world.answer(scene.world.take_sent("resources/read"), json.dumps({"contents": [{"uri": uri, "text": ""}]}))
    assert scene.only_message(channel)["contents"][0]["uri"] == uri
