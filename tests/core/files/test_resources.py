"""The artifacts of a session among its resources: what is said of each, where pages end, and what is refused."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from driving import LATEST, UNIX_AT_ZERO, Client, newcomer
from file_scenes import Scene, artifacts
from isthmus.core.base.errors import OVERLOADED, RESOURCE_NOT_FOUND
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import ArtifactProducer, AutoFiles, Kind, LocatorMode, OutputLocator, ServerPlan

TTL_S = 60.0


def writing(*, is_exposed: bool = True) -> ArtifactProducer:
    """Whatever its tools leave changed is an artifact."""
    locator = OutputLocator(mode=LocatorMode.CHANGED)
    return ArtifactProducer(tools=("make",), output_locator=locator, expose_as_resource=is_exposed)


def scene(
    *producers: ArtifactProducer, limits: dict[str, Any] | None = None, auto: AutoFiles | None = None, **more: Any
) -> Scene:
    plan = ServerPlan(id="files", kind=Kind.PIPE, producers=producers, auto_files=auto)
    return Scene(plan, limits=Limits(artifact_ttl_s=TTL_S, **(limits or {})), **more)


def making(*names: str, data: bytes = b"12345", **limits: Any) -> tuple[Scene, list[dict[str, Any]]]:
    """A session in which these files were written at once. Returns what their caller was told of each."""
    files = scene(writing(), limits=limits)
    made = artifacts(files.call("make", writes=dict.fromkeys(names, data)))
    return files, sorted(made, key=lambda each: names.index(each["filename"]))


def updates(files: Scene, stream: ChannelId) -> list[str]:
    frames = [frame for frame in files.world.frames(stream) if frame["method"] == "notifications/resources/updated"]
    return [frame["params"]["uri"] for frame in frames]


# --- Reading ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("size_bytes", "is_read"), [(99, True), (100, True), (101, False)])
def test_an_artifact_is_read_up_to_the_size_of_a_message(size_bytes: int, is_read: bool) -> None:
    """The limit itself is within. Beyond it the client is told how much there is, and where it can be had."""
    files, (made,) = making("a.txt", data=b"x" * size_bytes, inline_size_max_bytes=100)
    answer = files.ask("resources/read", uri=made["artifact_uri"])
    if is_read:
        assert answer["result"]["contents"][0]["text"] == "x" * size_bytes
        return
    said = f"{made['artifact_uri']} has 101 bytes, more than the 100 that are put into a message"
    assert answer["error"] == {"code": OVERLOADED, "message": f"{said}: download it from {made['download_url']}"}


def test_what_is_too_large_and_cannot_be_downloaded_is_just_too_large() -> None:
    """No link is spoken of where there is none."""
    files = scene(writing(), limits={"inline_size_max_bytes": 4}, downloads_enabled=False)
    (made,) = artifacts(files.call("make", writes={"a.txt": b"12345"}))
    message = files.ask("resources/read", uri=made["artifact_uri"])["error"]["message"]
    assert message == f"{made['artifact_uri']} has 5 bytes, more than the 4 that are put into a message"


@pytest.mark.parametrize("method", ["resources/read", "resources/subscribe"])
def test_what_is_not_there_is_named_and_what_became_of_it(method: str) -> None:
    """An unknown one is just not found; of one that there was it is said why it is gone."""
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
    """The names on one page, without those that the server has, and the cursor to the next."""
    files._ids += 1
    channel = files.client.request(str(files._ids), "resources/list", json.dumps(params))
    if files.world.hears("resources/list"):
        files.world.answer(files.world.hear("resources/list"), '{"resources":[]}')
    result = files.said(channel)
    return [e["name"] for e in result["resources"] if e["uri"].startswith("artifact:")], result.get("nextCursor")


@pytest.mark.parametrize(("page_max", "sizes"), [(1, [1, 1, 1]), (2, [2, 1]), (3, [3]), (4, [3])])
def test_a_page_is_the_last_when_nothing_is_left(page_max: int, sizes: list[int]) -> None:
    """Each artifact once, the oldest first, and no empty page behind them."""
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


def test_a_cursor_says_which_was_the_last() -> None:
    """When it ends, and its id: a place that others cannot move by going."""
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
    """A number of up to 40 characters; what is none is refused, and told of in part."""
    files, _ = making("a.txt")
    answer = files.ask("resources/list", cursor="isthmus-artifact:" + cursor)
    assert ("result" in answer) is is_read
    if not is_read:
        seen = ("isthmus-artifact:" + cursor)[:80]
        assert answer["error"]["message"] == f"got the cursor {seen!r}, expected one that was given"


def test_of_a_cursor_that_was_not_given_so_much_is_told_again() -> None:
    """80 characters of it, however long it is."""
    files, _ = making("a.txt")
    message = files.ask("resources/list", cursor="isthmus-artifact:" + "x" * 100)["error"]["message"]
    assert message == f"got the cursor 'isthmus-artifact:{'x' * 63}', expected one that was given"


@pytest.mark.parametrize("by_plan", [True, False])
@pytest.mark.parametrize("has_artifacts", [True, False])
@pytest.mark.parametrize("by_tools", [(), (True,), (False,), (False, True)])
@pytest.mark.parametrize("by_auto", [None, True, False])
def test_artifacts_are_offered_where_there_may_be_any_to_see(
    by_plan: bool, has_artifacts: bool, by_tools: tuple[bool, ...], by_auto: bool | None
) -> None:
    """By some tool, or by what is found out of tools; and not against the plan. A cursor like ours tells."""
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
    assert files.world.hears("resources/list") is not is_offered


# --- Subscriptions ----------------------------------------------------------------------------------------------------


def test_a_session_has_so_many_subscriptions_and_no_more() -> None:
    """One that is taken back makes room; the refusal says how many there may be."""
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


def test_whose_subscription_it_is_hears_of_it() -> None:
    """Another session of the same server does not, though it has subscriptions as well; both hear of their own."""
    files, made = making("a.txt", "b.txt")
    other = newcomer(files.world, "http", "files")
    channel = other.initialize(f'{{"protocolVersion":"{LATEST}","capabilities":{{}}}}')
    files.world.shake_hands(capabilities='{"tools":{},"resources":{}}')
    other.session = files.world.sent[channel][-1].session
    other.notify("notifications/initialized")
    streams = {client.session: client.listen() for client in (files.client, other)}
    assert files.ask("resources/subscribe", uri=made[1]["artifact_uri"])["result"] == {}
    refused = other.request('"x"', "resources/subscribe", json.dumps({"uri": made[1]["artifact_uri"]}))
    assert files.world.said(refused)["error"]["message"] == f"Resource not found: {made[1]['artifact_uri']}"
    files.world.wait(TTL_S + 1)
    assert updates(files, streams[files.client.session]) == [made[1]["artifact_uri"]]
    assert not list(files.world.frames(streams[other.session]))


def test_a_change_is_told_at_once_and_together() -> None:
    """All that comes at one moment makes one notification, without waiting for more."""
    files = scene(writing())
    stream = files.client.listen()
    files.call("make", writes={"a.txt": b"a", "b.txt": b"b"})
    due = files.world.engine.next_timeout()
    assert due is not None and due.at == files.world.now
    files.world.wait(0)
    assert list(files.world.frames(stream)) == [{"jsonrpc": "2.0", "method": "notifications/resources/list_changed"}]


@pytest.mark.parametrize("is_exposed", [True, False])
@pytest.mark.parametrize("by_plan", [True, False])
def test_nobody_is_told_of_what_nobody_sees(is_exposed: bool, by_plan: bool) -> None:
    """Only of an artifact that is among the resources, when it comes and when it goes."""
    files = scene(writing(is_exposed=is_exposed), expose_as_resources=by_plan)
    stream = files.client.listen()
    files.call("make", writes={"a.txt": b"a"})
    files.world.wait(TTL_S + 1)
    told = [frame["method"] for frame in files.world.frames(stream)]
    assert told == ["notifications/resources/list_changed"] * 2 * (is_exposed and by_plan)


def test_after_the_end_of_a_session_nobody_is_told_of_what_changed_at_that_moment() -> None:
    """The change, its subscription and its time are forgotten with the session."""
    files, (made,) = making("a.txt")
    client: Client = files.client
    assert files.ask("resources/subscribe", uri=made["artifact_uri"])["result"] == {}
    assert ("resources", made["artifact_uri"].split("/")[3]) in files.world.engine._desk.timers._live
    client.delete()
    assert not [purpose for purpose, _ in files.world.engine._desk.timers._live if purpose == "resources"]
    files.world.wait(TTL_S + 1)
    resources = files.world.engine._resources
    assert not resources._gone and not resources._subscribed
