"""What clients of a server with files are shown beyond what it has: folders, a guide, links for uploads."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from driving import UNIX_AT_ZERO, Driver, connect, driver, request
from file_scenes import Scene, artifacts
from isthmus.core.base.errors import INVALID_PARAMS, RESOURCE_NOT_FOUND
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import ArtifactProducer, AutoFiles, Kind, ServerPlan, SharedFolder, UploadConsumer

EATS = UploadConsumer(tools=("eat",), file_path_argument="file")
HELPER = "s_get_upload_url"
GUIDE = "doc://upload_workflow.md"


def plan(**more: Any) -> ServerPlan:
    return ServerPlan(id="s", kind=Kind.PIPE, consumers=(EATS,), **more)


def offer(files: Scene) -> dict[str, Any]:
    found = files.ask("tools/call", name=HELPER, arguments={})["result"]["structuredContent"]
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("shared", [(), (SharedFolder("/w", "/mnt/ä b"),)])
def test_a_sessions_folders_are_its_roots(shared: tuple[SharedFolder, ...]) -> None:
    """The working one first, each by its name, as the server sees them; its client is not asked."""
    files = Scene(plan(shared=shared))
    child = next(iter(files.world.children))
    files.world.say(child, request('"r"', "roots/list"))
    base = files.base if not shared else "/mnt/%C3%A4%20b" + files.base.removeprefix("/w")
    roots = [{"uri": f"file://{base}/{name}", "name": name} for name in ("ws", "in", "out")]
    assert files.world.hear("").frame == {"jsonrpc": "2.0", "id": "r", "result": {"roots": roots}}


def test_a_link_for_uploads_says_all_there_is_to_know() -> None:
    """Signed for this session, and for a while; with the bounds that hold."""
    limits = Limits(upload_link_ttl_s=77.0, upload_size_max_bytes=1234, upload_files_max=3)
    files = Scene(plan(), limits=limits, require_sha256=True)
    found = offer(files)
    url = urlsplit(found["upload_url"])
    (session,) = files.world.engine._clients.sessions.values()
    assert f"{url.scheme}://{url.netloc}{url.path}" == "http://here/upload/s"
    query = dict(parse_qsl(url.query))
    assert [value for value in query.values() if value == str(int(UNIX_AT_ZERO + files.world.now + 77))]
    expected = {
        "server_id": "s", "session_id": session.sid, "credential_ttl_seconds": 77, "max_file_bytes": 1234,
        "sha256_required": True, "supports_multiple_files": True,
    }  # fmt: skip
    assert expected.items() <= found.items()
    assert "Send up to 3 files in one request within 77 seconds" in found["note"]


def test_links_whose_time_is_over_are_forgotten_with_the_next() -> None:
    """At their time itself they are good still."""
    files = Scene(plan(), limits=Limits(upload_link_ttl_s=60.0))
    nonces = files.world.engine._plane._nonces
    offer(files)
    files.world.wait(60.0)
    offer(files)
    assert len(nonces) == 2
    files.world.wait(60.1)
    offer(files)
    assert len(nonces) == 1


@pytest.mark.parametrize(("size", "is_offered"), [(99, True), (100, True), (101, False)])
def test_a_file_that_is_announced_and_too_large_is_told_so_at_once(size: int, is_offered: bool) -> None:
    files = Scene(plan(), limits=Limits(upload_size_max_bytes=100))
    found = files.ask("tools/call", name=HELPER, arguments={"size_bytes": size})["result"]
    assert ("structuredContent" in found) is is_offered
    if not is_offered:
        assert found["isError"] is True
        assert found["content"][0]["text"] == "Argument size_bytes: got 101, expected at most 100."


def test_without_a_place_to_send_them_there_are_no_uploads() -> None:
    """A client on a pipe, and no HTTP listener."""
    world: Driver = driver(plan())
    client = connect(world, "http", "s")
    next(iter(world.engine._clients.sessions.values())).base_url = ""
    channel = client.request("1", "tools/call", json.dumps({"name": HELPER}))
    found = world.said(channel)["result"]
    assert found["isError"] is True
    assert found["content"][0]["text"] == "Uploads need an HTTP listener, and this proxy has none."


@pytest.mark.parametrize("takes", [True, False])
@pytest.mark.parametrize("enabled", [True, False])
def test_the_guide_is_there_where_uploads_are(takes: bool, enabled: bool) -> None:
    """It is listed, and can be read; elsewhere it is not found."""
    server = (
        plan()
        if takes
        else ServerPlan(id="s", kind=Kind.PIPE, auto_files=None, producers=(ArtifactProducer(tools=("make",)),))
    )
    files = Scene(server, capabilities='{"tools":{}}', uploads_enabled=enabled)
    is_there = takes and enabled
    answer = files.ask("resources/read", uri=GUIDE)
    listed = files.ask("resources/list")["result"]["resources"]
    assert (GUIDE in [entry["uri"] for entry in listed]) is is_there
    if is_there:
        (item,) = answer["result"]["contents"]
        assert (item["uri"], item["mimeType"]) == (GUIDE, "text/markdown")
        assert HELPER in item["text"]
    else:
        assert answer["error"] == {
            "code": RESOURCE_NOT_FOUND,
            "message": f"Resource not found: {GUIDE}",
            "data": {"uri": GUIDE},
        }


@pytest.mark.parametrize("method", ["tools/list", "resources/list", "resources/templates/list"])
@pytest.mark.parametrize("has", [True, False])
def test_lists_that_a_server_has_not_are_answered_here(method: str, has: bool) -> None:
    """It is not asked; what it has it is."""
    files = Scene(plan(), capabilities='{"tools":{},"resources":{}}' if has else "{}")
    channel = files.client.request("1", method, "{}")
    assert files.world.hears(method) is has
    if has:
        return
    result = files.said(channel)
    if method == "tools/list":
        assert [tool["name"] for tool in result["tools"]] == [HELPER]
    elif method == "resources/list":
        assert [entry["uri"] for entry in result["resources"]] == [GUIDE]
    else:
        assert result == {"resourceTemplates": []}


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("tools/call", '{"name":"eat","name":"x"}'),
        ("resources/read", '{"uri":"a:b","uri":"c:d"}'),
        ("resources/subscribe", '{"uri":"a:b","uri":"c:d"}'),
        ("resources/unsubscribe", '{"uri":"a:b","uri":"c:d"}'),
        ("resources/list", '{"cursor":"a","cursor":"b"}'),
        ("tools/list", '{"cursor":"a","cursor":"b"}'),
    ],
)
def test_what_two_readers_would_read_differently_is_refused(method: str, params: str) -> None:
    """Before anybody acts on it."""
    files = Scene(plan())
    channel = files.client.request("1", method, params)
    assert not files.world.heard
    error = files.world.said(channel)["error"]
    assert error["code"] == INVALID_PARAMS
    assert "twice" in error["message"] or "exactly one" in error["message"]


@pytest.mark.parametrize("page", ["first", "later"])
def test_the_helper_is_on_the_first_page_of_tools(page: str) -> None:
    files = Scene(plan())
    channel = files.client.request("1", "tools/list", "{}" if page == "first" else '{"cursor":"2"}')
    files.world.answer(files.world.hear("tools/list"), '{"tools":[{"name":"x","inputSchema":{"type":"object"}}]}')
    names = [tool["name"] for tool in files.said(channel)["tools"]]
    assert sorted(names) == sorted(["x", *[HELPER] * (page == "first")])


@pytest.mark.parametrize(("page", "cursor"), [("last", None), ("last", "null"), ("earlier", '"n"')])
def test_the_guide_is_on_the_last_page_of_resources(page: str, cursor: str | None) -> None:
    files = Scene(plan())
    channel = files.client.request("1", "resources/list", "{}")
    more = "" if cursor is None else f',"nextCursor":{cursor}'
    files.world.answer(files.world.hear("resources/list"), f'{{"resources":[{{"uri":"a:b","name":"b"}}]{more}}}')
    uris = [entry["uri"] for entry in files.said(channel)["resources"]]
    assert uris == ["a:b", *[GUIDE] * (page == "last")]


def test_a_session_without_adapters_has_the_guide_too() -> None:
    files = Scene(ServerPlan(id="s", kind=Kind.PIPE, auto_files=AutoFiles()))
    assert files.ask("resources/read", uri=GUIDE)["result"]["contents"]


@pytest.mark.parametrize("method", ["resources/subscribe", "resources/unsubscribe"])
def test_whose_resource_it_is_hears_who_subscribes_to_it(method: str) -> None:
    """An artifact is the proxy's, and its server is not asked; what the server has is its own to tell of."""
    files = Scene(
        ServerPlan(id="s", kind=Kind.PIPE, auto_files=AutoFiles()),
        capabilities='{"tools":{},"resources":{"subscribe":true}}',
    )
    (made,) = artifacts(files.call("make", writes={"a.txt": b"x"}))
    assert files.ask(method, uri=made["artifact_uri"])["result"] == {}
    assert not files.world.heard
    channel = files.client.request("1", method, '{"uri":"a:b"}')
    files.world.answer(files.world.hear(method), '{"x":1}')
    assert files.said(channel) == {"x": 1}
