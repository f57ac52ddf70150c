"""Tests of artifacts as resources: their entries, the pages of their list, subscriptions, and refusals."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from driving import LATEST, UNIX_AT_ZERO, Client, new_client
from file_scenes import Scene, artifacts
from inside import Inside
from isthmus.core.base.errors import OVERLOADED, RESOURCE_NOT_FOUND
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import ArtifactProducer, AutoFiles, Kind, LocatorMode, OutputLocator, ServerPlan
from stateless_driving import tables

TTL_S = 60.0


def writing(*, is_exposed: bool = True) -> ArtifactProducer:
    """Returns a producer that makes an artifact of each file its tools change."""
    locator = OutputLocator(mode=LocatorMode.CHANGED)
    return ArtifactProducer(tools=("make",), output_locator=locator, expose_as_resource=is_exposed)


def scene(
    *producers: ArtifactProducer, limits: dict[str, Any] | None = None, auto: AutoFiles | None = None, **more: Any
) -> Scene:
    plan = ServerPlan(id="files", kind=Kind.PIPE, producers=producers, auto_files=auto)
    return Scene(plan, limits=Limits(artifact_ttl_s=TTL_S, **(limits or {})), **more)


def making(*names: str, data: bytes = b"12345", **limits: Any) -> tuple[Scene, list[dict[str, Any]]]:
    """Returns a session whose call wrote these files, and the metadata of each artifact in the result."""
    files = scene(writing(), limits=limits)
    made = artifacts(files.call("make", writes=dict.fromkeys(names, data)))
    return files, sorted(made, key=lambda each: names.index(each["filename"]))


def updates(files: Scene, stream: ChannelId) -> list[str]:
    frames = [frame for frame in files.world.frames(stream) if frame["method"] == "notifications/resources/updated"]
    return [frame["params"]["uri"] for frame in frames]


# --- Reading ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("size_bytes", "is_read"), [(99, True), (100, True), (101, False)])
def test_an_artifact_is_read_up_to_the_size_of_a_message(size_bytes: int, is_read: bool) -> None:
    """The limit itself is within. Beyond it the error has the size and a download link."""
    files, (made,) = making("a.txt", data=b"x" * size_bytes, inline_size_max_bytes=100)
    answer = files.ask("resources/read", uri=made["artifact_uri"])
    if is_read:
        assert answer["result"]["contents"][0]["text"] == "x" * size_bytes
        return
    text = f"{made['artifact_uri']} has 101 bytes, more than the 100 that are put into a message"
    assert answer["error"] == {"code": OVERLOADED, "message": f"{text}: download it from {made['download_url']}"}


def test_the_error_of_a_large_artifact_without_downloads_has_no_link() -> None:
    """The error has no link if downloads are disabled."""
    files = scene(writing(), limits={"inline_size_max_bytes": 4}, downloads_enabled=False)
    (made,) = artifacts(files.call("make", writes={"a.txt": b"12345"}))
    message = files.ask("resources/read", uri=made["artifact_uri"])["error"]["message"]
    assert message == f"{made['artifact_uri']} has 5 bytes, more than the 4 that are put into a message"


@pytest.mark.parametrize("method", ["resources/read", "resources/subscribe"])
def test_the_error_of_a_missing_artifact_says_what_became_of_it(method: str) -> None:
    """An unknown artifact is just not found. The error of one that existed says why it is gone."""
    files, (made,) = making("a.txt")
    uri = made["artifact_uri"]
    unknown = uri.replace(uri.split("/")[4], "0" * 32)
    for each in (unknown, "artifact://sessions/nobody"):
        assert files.ask(method, uri=each)["error"] == {
            "code": RESOURCE_NOT_FOUND,
            "message": f"Resource not found: {each}",
            "data": {"uri": each},
        }
    files.world.wait(TTL_S + 120)
    error = files.ask(method, uri=uri)["error"]
    assert error["message"].startswith(f"Resource not found: {uri}: it expired ")
    assert (error["code"], error["data"]) == (RESOURCE_NOT_FOUND, {"uri": uri})


# --- Lists ------------------------------------------------------------------------------------------------------------


def page(files: Scene, **params: object) -> tuple[list[str], str | None]:
    """The names of the artifacts on one page, and the cursor to the next page."""
    files._ids += 1
    channel = files.client.request(str(files._ids), "resources/list", json.dumps(params))
    if files.world.was_sent("resources/list"):
        files.world.answer(files.world.take_sent("resources/list"), '{"resources":[]}')
    result = files.only_message(channel)
    return [e["name"] for e in result["resources"] if e["uri"].startswith("artifact:")], result.get("nextCursor")


@pytest.mark.parametrize(("page_max", "sizes"), [(1, [1, 1, 1]), (2, [2, 1]), (3, [3]), (4, [3])])
def test_a_page_is_the_last_when_nothing_is_left(page_max: int, sizes: list[int]) -> None:
    """Each artifact is listed once, the oldest first, and no empty page follows."""
    files = scene(writing(), limits={"artifact_page_max": page_max})
    for name in ("c.txt", "a.txt", "b.txt"):
        files.call("make", writes={name: b"x"})
        files.world.wait(1)
    names, cursor = page(files)
    pages = [names]
    while cursor is not None:
        names, cursor = page(files, cursor=cursor)
        pages.append(names)
    assert [len(names) for names in pages] == sizes
    assert list(itertools.chain(*pages)) == ["c.txt", "a.txt", "b.txt"]


def test_a_cursor_names_the_last_artifact_of_its_page() -> None:
    """The cursor has that artifact's end and id, so it stays valid when other artifacts go."""
    files, made = making("a.txt", "b.txt", artifact_page_max=1)
    first = min(made, key=lambda each: each["artifact_id"])
    _, cursor = page(files)
    ends_at_unix = UNIX_AT_ZERO + files.world.now + TTL_S
    assert cursor == f"isthmus-artifact:{ends_at_unix!r}:{first['artifact_id']}"


@pytest.mark.parametrize(
    ("cursor", "is_read"),
    [
        (f"{'1' * 40}:a", True),
        (f"{'1' * 41}:a", False),
        ("1:", True),
        ("0.5:a:b", True),
        ("1", False),
        (":a", False),
        ("x:a", False),
        ("", False),
    ],
)
def test_a_cursor_is_a_number_and_an_id(cursor: str, is_read: bool) -> None:
    """The number may have up to 40 characters. The refusal of another cursor quotes the beginning of it."""
    files, _ = making("a.txt")
    answer = files.ask("resources/list", cursor="isthmus-artifact:" + cursor)
    assert ("result" in answer) is is_read
    if not is_read:
        seen = ("isthmus-artifact:" + cursor)[:80]
        assert answer["error"]["message"] == f"got the cursor {seen!r}, expected one that was given"


def test_the_refusal_of_a_cursor_quotes_up_to_80_characters() -> None:
    """80 characters are quoted, however long the cursor is."""
    files, _ = making("a.txt")
    message = files.ask("resources/list", cursor="isthmus-artifact:" + "x" * 100)["error"]["message"]
    assert message == f"got the cursor 'isthmus-artifact:{'x' * 63}', expected one that was given"


@pytest.mark.parametrize("by_plan", [True, False])
@pytest.mark.parametrize("has_artifacts", [True, False])
@pytest.mark.parametrize("by_tools", [(), (True,), (False,), (False, True)])
@pytest.mark.parametrize("by_auto", [None, True, False])
def test_artifacts_are_listed_if_a_tool_may_expose_any(
    by_plan: bool, has_artifacts: bool, by_tools: tuple[bool, ...], by_auto: bool | None
) -> None:
    """Some tool must expose artifacts, by an adapter or automatically, and the plan must allow it. A cursor like the
    proxy's own shows whether it answers."""
    if by_auto is None and not by_tools:
        return  # a server without files
    files = scene(
        *(writing(is_exposed=is_exposed) for is_exposed in by_tools),
        auto=None if by_auto is None else AutoFiles(expose_as_resource=by_auto),
        expose_as_resources=by_plan,
        artifacts_enabled=has_artifacts,
    )
    files.client.request("1", "resources/list", '{"cursor":"isthmus-artifact:x"}')
    is_offered = by_plan and has_artifacts and (any(by_tools) or bool(by_auto))
    assert files.world.was_sent("resources/list") is not is_offered


# --- Subscriptions ----------------------------------------------------------------------------------------------------


def test_a_session_has_so_many_subscriptions_and_no_more() -> None:
    """An ended subscription makes room. The refusal names the limit."""
    files, made = making("a.txt", "b.txt", "c.txt", subscriptions_per_session_max=2)
    stream = files.client.listen()
    a, b, c = (each["artifact_uri"] for each in made)
    assert files.ask("resources/subscribe", uri=a)["result"] == {}
    assert files.ask("resources/subscribe", uri=b)["result"] == {}
    assert files.ask("resources/subscribe", uri=c)["error"] == {
        "code": OVERLOADED,
        "message": "2 resources are subscribed to, the most a session may have",
    }
    assert files.ask("resources/unsubscribe", uri=a)["result"] == {}
    assert files.ask("resources/subscribe", uri=c)["result"] == {}
    files.world.wait(TTL_S + 1)
    assert sorted(updates(files, stream)) == sorted([b, c])


def test_an_update_goes_only_to_the_subscribed_session() -> None:
    """Another session of the same principal may subscribe, too, and is told of nothing before."""
    files, made = making("a.txt", "b.txt")
    other = new_client(files.world, "http", "files")
    channel = other.initialize(f'{{"protocolVersion":"{LATEST}","capabilities":{{}}}}')
    files.world.start_server(capabilities='{"tools":{},"resources":{}}')
    other.session = files.world.sent[channel][-1].session
    other.notify("notifications/initialized")
    streams = {client.session: client.listen() for client in (files.client, other)}
    assert files.ask("resources/subscribe", uri=made[1]["artifact_uri"])["result"] == {}
    asked = other.request('"x"', "resources/subscribe", json.dumps({"uri": made[0]["artifact_uri"]}))
    assert files.world.only_message(asked)["result"] == {}
    files.world.wait(TTL_S + 1)
    assert updates(files, streams[files.client.session]) == [made[1]["artifact_uri"]]
    (told,) = files.world.frames(streams[other.session])
    assert told["params"] == {"uri": made[0]["artifact_uri"]}, "and not of a change of its own list"


def test_changes_are_notified_at_once_and_together() -> None:
    """Changes of one moment make one notification, which does not wait for more."""
    files = scene(writing())
    stream = files.client.listen()
    files.list_resources()
    files.call("make", writes={"a.txt": b"a", "b.txt": b"b"})
    due = files.world.engine.next_timeout()
    assert due is not None and due.at == files.world.now
    files.world.wait(0)
    assert list(files.world.frames(stream)) == [{"jsonrpc": "2.0", "method": "notifications/resources/list_changed"}]


@pytest.mark.parametrize("is_exposed", [True, False])
@pytest.mark.parametrize("by_plan", [True, False])
def test_an_artifact_that_is_not_listed_is_not_notified(is_exposed: bool, by_plan: bool) -> None:
    """Only an artifact that is listed as a resource is notified, when it comes and when it goes."""
    files = scene(writing(is_exposed=is_exposed), expose_as_resources=by_plan)
    stream = files.client.listen()
    if is_exposed and by_plan:
        files.list_resources()
    files.call("make", writes={"a.txt": b"a"})
    files.world.wait(TTL_S + 1)
    methods = [frame["method"] for frame in files.world.frames(stream)]
    assert methods == ["notifications/resources/list_changed"] * 2 * (is_exposed and by_plan)


def test_the_end_of_a_session_drops_its_pending_notifications() -> None:
    """The change, the subscription and the timer are forgotten with the session."""
    files, (made,) = making("a.txt")
    client: Client = files.client
    assert files.ask("resources/subscribe", uri=made["artifact_uri"])["result"] == {}
    assert ("resources", made["artifact_uri"].split("/")[3]) in tables(files.world.engine)["timers"]
    client.delete()
    assert not [purpose for purpose, _ in tables(files.world.engine)["timers"] if purpose == "resources"]
    files.world.wait(TTL_S + 1)
    inside = Inside(files.world.engine)
    assert not inside.file_store._gone and not inside.file_store.subscribers._uris
