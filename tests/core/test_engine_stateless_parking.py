"""Questions of servers with sessions in calls whose clients have none: asked, answered, held for them, given up."""

from __future__ import annotations

import json

import pytest
from driving import Driver, Heard, notification
from isthmus.core.limits import Limits
from stateless_driving import (
    ACCEPT,
    ANSWERS,
    Modern,
    ask,
    assert_idle,
    collect,
    give,
    parked,
    rounds,
    served,
    speak,
)

UPS = pytest.mark.parametrize("up", ["pipe", "http"])
DOWNS = pytest.mark.parametrize("down", ["pipe", "http"])


def progress(heard: Heard, value: int) -> bytes:
    return notification("notifications/progress", f'{{"progressToken":{heard.id},"progress":{value}}}')


# --- Time -------------------------------------------------------------------------------------------------------------


@UPS
def test_a_server_is_not_timed_while_it_waits_for_the_client(up: str) -> None:
    """While a call is parked its server owes nothing, whatever it says meanwhile; with the next leg its time begins
    anew."""
    world, client, _ = served(up, limits=Limits(reply_timeout_s=50.0))
    heard, _, state = parked(world, client, token="t")
    speak(world, heard, progress(heard, 1))
    ask(world, heard, "roots/list", '"second"')
    world.wait(400)
    assert not world.hears("notifications/cancelled")
    channel = client.call(requestState=state, inputResponses={"r1": ACCEPT})
    _, state = rounds(client, channel, client.last_id)
    world.wait(400)
    channel = client.call(requestState=state, inputResponses={"r2": ANSWERS["roots/list"]})
    world.wait(49)
    assert not world.hears("notifications/cancelled")
    world.wait(1)
    assert world.hear("notifications/cancelled").frame["params"]["requestId"] == heard.id
    assert client.answered(channel, client.last_id)["error"]["data"]["outcome"] == "unknown"


# --- Meanwhile --------------------------------------------------------------------------------------------------------


def log(level: str, text: str = "x") -> bytes:
    return notification("notifications/message", json.dumps({"level": level, "data": text}))


def chatty(world: Driver, client: Modern, level: str, token: str) -> tuple[Heard, str]:
    """A parked call that wanted the log and progress. Returns it and its state."""
    channel = client.call(level=level, token=token)
    world.answer(world.hear("logging/setLevel"))
    heard = world.hear("tools/call")
    ask(world, heard)
    collect(world)
    return heard, rounds(client, channel, client.last_id)[1]


@pytest.mark.parametrize("is_over", [False, True], ids=["goes on", "is over"])
def test_what_came_between_two_legs_is_told_on_the_next(is_over: bool) -> None:
    """The log in order and the latest progress, under the next leg's token, before anything else; also where the call
    ended meanwhile."""
    world, client, _ = served()
    heard, state = chatty(world, client, "debug", "first")
    for text in ("a", "b"):
        speak(world, heard, log("info", text))
    for value in (1, 2, 3):
        speak(world, heard, progress(heard, value))
    if is_over:
        give(world, heard)
    channel = client.call(level="debug", token="second", requestState=state, inputResponses={"r1": ACCEPT})
    told = client.told(channel)
    assert [frame["params"].get("data") for frame in told] == ["a", "b", None]
    assert told[-1]["params"] == {"progressToken": "second", "progress": 3}
    if not is_over:
        give(world, heard)
    assert client.answered(channel)["result"]["resultType"] == "complete"
    assert list(world.frames(channel))[:3] == told
    assert_idle(world)


@pytest.mark.parametrize("level, heard_of", [(None, []), ("error", ["c"]), ("info", ["b", "c"])])
def test_a_leg_hears_of_the_log_only_what_it_asked_for(level: str | None, heard_of: list[str]) -> None:
    """A request without a log level is told no log message, and another none below its own, whatever the one before
    wanted."""
    world, client, _ = served()
    heard, state = chatty(world, client, "debug", "t")
    for each, text in (("debug", "a"), ("info", "b"), ("error", "c")):
        speak(world, heard, log(each, text))
    channel = client.call(level=level, requestState=state, inputResponses={"r1": ACCEPT})
    assert [frame["params"]["data"] for frame in client.told(channel)] == heard_of


def test_a_leg_without_a_token_is_told_no_progress() -> None:
    """Progress travels under the token of the leg that is open; without one it is dropped, and never under an old
    one."""
    world, client, _ = served()
    heard, state = chatty(world, client, "debug", "first")
    speak(world, heard, progress(heard, 1))
    channel = client.call(requestState=state, inputResponses={"r1": ACCEPT})
    speak(world, heard, progress(heard, 2))
    assert client.told(channel) == []


def test_only_so_much_of_the_log_is_kept() -> None:
    """The first of what came, up to the limit, and one progress: a server may talk without end."""
    world, client, _ = served(limits=Limits(park_logs_max=3))
    heard, state = chatty(world, client, "debug", "t")
    for number in range(10):
        speak(world, heard, log("info", str(number)))
    channel = client.call(level="debug", requestState=state, inputResponses={"r1": ACCEPT})
    assert [frame["params"]["data"] for frame in client.told(channel)] == ["0", "1", "2"]
