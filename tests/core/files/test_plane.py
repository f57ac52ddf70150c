"""Tests of the file plane: what clients of a server with files are shown beside the server's own lists: roots, a guide,
and links for uploads."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from driving import LINK_KEY, UNIX_AT_ZERO, Driver, connect, driver, request
from file_scenes import Scene, artifacts
from isthmus.core.base.errors import INVALID_PARAMS, RESOURCE_NOT_FOUND
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import ArtifactProducer, AutoFiles, Kind, ServerPlan, SharedFolder, UploadConsumer
from isthmus.core.files.store.links import UploadGrant, read_upload
from stateless_driving import tables

EATS = UploadConsumer(tools=("eat",), file_path_argument="file")
HELPER = "s_get_upload_url"
PUT = "s_put_file"
GUIDE = "doc://upload_workflow.md"


def plan(**more: Any) -> ServerPlan:
    return ServerPlan(id="s", kind=Kind.PIPE, consumers=(EATS,), **more)


def offer(files: Scene) -> dict[str, Any]:
    found = files.ask("tools/call", name=HELPER, arguments={})["result"]["structuredContent"]
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("shared", [(), (SharedFolder("/w", "/mnt/ä b"),)])
def test_a_sessions_folders_are_its_roots(shared: tuple[SharedFolder, ...]) -> None:
    """The working folder is the first of them. Each has its name and the server's path, and the client is not asked."""
    files = Scene(plan(shared=shared))
    child = next(iter(files.world.children))
    files.world.send(child, request('"r"', "roots/list"))
    base = files.base if not shared else "/mnt/%C3%A4%20b" + files.base.removeprefix("/w")
    roots = [{"uri": f"file://{base}/{name}", "name": name} for name in ("ws", "in", "out")]
    assert files.world.take_sent("").frame == {"jsonrpc": "2.0", "id": "r", "result": {"roots": roots}}


def test_an_upload_link_has_its_session_end_and_bounds() -> None:
    """The link is signed for this session and has an end. The result lists the bounds."""
    limits = Limits(upload_link_ttl_s=77.0, upload_size_max_bytes=1234, upload_files_max=3)
    files = Scene(plan(), limits=limits, require_sha256=True)
    found = offer(files)
    url = urlsplit(found["upload_url"])
    (session,) = tables(files.world.engine)["sessions"].values()
    assert f"{url.scheme}://{url.netloc}{url.path}" == "http://here/upload/s"
    at_unix = UNIX_AT_ZERO + files.world.now
    grant = read_upload([LINK_KEY], dict(parse_qsl(url.query)), server="s", now_unix=at_unix)
    assert isinstance(grant, UploadGrant)
    assert (grant.sid, grant.expires_at_unix, grant.tool) == (session.sid, int(at_unix + 77), "")
    expected = {
        "server_id": "s", "session_id": session.sid, "credential_ttl_seconds": 77, "max_file_bytes": 1234,
        "sha256_required": True, "supports_multiple_files": True,
    }  # fmt: skip
    assert expected.items() <= found.items()
    assert "Send up to 3 files in one request within 77 seconds" in found["note"]


@pytest.mark.parametrize(("size", "is_offered"), [(99, True), (100, True), (101, False)])
def test_an_announced_file_that_is_too_large_is_refused_at_once(size: int, is_offered: bool) -> None:
    files = Scene(plan(), limits=Limits(upload_size_max_bytes=100))
    found = files.ask("tools/call", name=HELPER, arguments={"size_bytes": size})["result"]
    assert ("structuredContent" in found) is is_offered
    if not is_offered:
        assert found["isError"] is True
        assert found["content"][0]["text"] == "Argument size_bytes: got 101, expected at most 100."


def test_uploads_need_an_http_listener() -> None:
    """The client is on a pipe, and there is no HTTP listener."""
    world: Driver = driver(plan())
    client = connect(world, "http", "s")
    next(iter(tables(world.engine)["sessions"].values())).base_url = ""
    channel = client.request("1", "tools/call", json.dumps({"name": HELPER}))
    found = world.only_message(channel)["result"]
    assert found["isError"] is True
    assert found["content"][0]["text"] == (
        "Upload links need an HTTP listener, and this proxy has none: call s_put_file with the file's content."
    )


@pytest.mark.parametrize("takes", [True, False])
@pytest.mark.parametrize("enabled", [True, False])
def test_the_guide_is_a_resource_if_there_are_uploads(takes: bool, enabled: bool) -> None:
    """The guide is listed and can be read. Without uploads it is not found."""
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
def test_undeclared_lists_are_answered_by_the_proxy(method: str, has: bool) -> None:
    """The server gets a request only for lists that it declares."""
    files = Scene(plan(), capabilities='{"tools":{},"resources":{}}' if has else "{}")
    channel = files.client.request("1", method, "{}")
    assert files.world.was_sent(method) is has
    if has:
        return
    result = files.only_message(channel)
    if method == "tools/list":
        assert [tool["name"] for tool in result["tools"]] == [HELPER, PUT]
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
def test_params_with_duplicate_members_are_refused(method: str, params: str) -> None:
    """The error comes before anything reaches the server."""
    files = Scene(plan())
    channel = files.client.request("1", method, params)
    assert not files.world.unread
    error = files.world.only_message(channel)["error"]
    assert error["code"] == INVALID_PARAMS
    assert "twice" in error["message"] or "exactly one" in error["message"]


@pytest.mark.parametrize("page", ["first", "later"])
def test_the_helper_is_on_the_first_page_of_tools(page: str) -> None:
    files = Scene(plan())
    channel = files.client.request("1", "tools/list", "{}" if page == "first" else '{"cursor":"2"}')
    files.world.answer(files.world.take_sent("tools/list"), '{"tools":[{"name":"x","inputSchema":{"type":"object"}}]}')
    names = [tool["name"] for tool in files.only_message(channel)["tools"]]
    assert sorted(names) == sorted(["x", *[HELPER, PUT] * (page == "first")])


@pytest.mark.parametrize(("page", "cursor"), [("last", None), ("last", "null"), ("earlier", '"n"')])
def test_the_guide_is_on_the_last_page_of_resources(page: str, cursor: str | None) -> None:
    files = Scene(plan())
    channel = files.client.request("1", "resources/list", "{}")
    more = "" if cursor is None else f',"nextCursor":{cursor}'
    files.world.answer(files.world.take_sent("resources/list"), f'{{"resources":[{{"uri":"a:b","name":"b"}}]{more}}}')
    uris = [entry["uri"] for entry in files.only_message(channel)["resources"]]
    assert uris == ["a:b", *[GUIDE] * (page == "last")]


def test_a_session_without_adapters_has_the_guide_too() -> None:
    files = Scene(ServerPlan(id="s", kind=Kind.PIPE, auto_files=AutoFiles()))
    assert files.ask("resources/read", uri=GUIDE)["result"]["contents"]


@pytest.mark.parametrize("method", ["resources/subscribe", "resources/unsubscribe"])
def test_a_subscription_goes_to_the_owner_of_the_resource(method: str) -> None:
    """A subscription to an artifact is the proxy's own and does not reach the server. A subscription to a resource of
    the server does."""
    files = Scene(
        ServerPlan(id="s", kind=Kind.PIPE, auto_files=AutoFiles()),
        capabilities='{"tools":{},"resources":{"subscribe":true}}',
    )
    (made,) = artifacts(files.call("make", writes={"a.txt": b"x"}))
    assert files.ask(method, uri=made["artifact_uri"])["result"] == {}
    assert not files.world.unread
    channel = files.client.request("1", method, '{"uri":"a:b"}')
    files.world.answer(files.world.take_sent(method), '{"x":1}')
    assert files.only_message(channel) == {"x": 1}
