"""Questions of servers with sessions in calls whose clients have none: asked, answered, withdrawn."""

from __future__ import annotations

import json
from typing import Any

import pytest
from driving import notification, request
from hypothesis import given, settings
from hypothesis import strategies as st
from isthmus.core.base.limits import Limits
from stateless_driving import (
    ABLE,
    ACCEPT,
    ANSWERS,
    PROMPT,
    QUESTIONS,
    ask,
    assert_idle,
    collect,
    give,
    parked,
    rise,
    rounds,
    served,
    speak,
)

UPS = pytest.mark.parametrize("up", ["pipe", "http"])
DOWNS = pytest.mark.parametrize("down", ["pipe", "http"])


# --- Rounds -----------------------------------------------------------------------------------------------------------

KINDS = sorted(QUESTIONS)


@given(
    batches=st.lists(st.lists(st.sampled_from(KINDS), min_size=1, max_size=3), max_size=4),
    up=st.sampled_from(["pipe", "http"]),
    down=st.sampled_from(["pipe", "http"]),
    data=st.data(),
)
@settings(max_examples=60, deadline=None)
def test_a_server_gets_each_answer_once_whatever_it_asks(
    batches: list[list[str]], up: str, down: str, data: st.DataObject
) -> None:
    """For any script of questions: those asked at once share a round, each is answered once under the server's own id
    with the answer to it, in no more rounds than batches; keys are never used again; the call is written once."""
    world, client, _ = served(up, down)
    answered: dict[str, dict[str, Any]] = {}
    keys: list[str] = []
    channel = client.call(arguments={"n": 1})
    heard = world.hear("tools/call")
    for number, batch in enumerate(batches):
        for index, method in enumerate(batch):
            ask(world, heard, method, json.dumps(f"{number}.{index}"))
        assert world.messages(channel) == [] or down == "pipe", "nothing is told before more could have come"
        collect(world)
        questions, state = rounds(client, channel, client.last_id)
        assert [question["method"] for question in questions.values()] == batch
        keys += questions
        answers = {
            key: {**ANSWERS[question["method"]], "mark": data.draw(st.integers())}
            for key, question in questions.items()
        }
        channel = client.call(arguments={"n": 1}, requestState=state, inputResponses=answers)
        expected = {f"{number}.{index}": answer for index, answer in enumerate(answers.values())}
        while world.hears(""):
            frame = world.hear("").frame
            assert frame["id"] not in answered
            answered[frame["id"]] = frame["result"]
        for id, answer in expected.items():
            assert answered[id] == answer
        assert not world.hears("tools/call")
    assert len(keys) == len(set(keys))
    assert sum(map(len, batches)) == len(answered)
    give(world, heard)
    assert client.answered(channel, client.last_id)["result"]["resultType"] == "complete"
    assert_idle(world)


@UPS
@DOWNS
def test_a_question_is_embedded_without_what_belonged_to_its_request(up: str, down: str) -> None:
    """Method and params only: no id, token, task or name of a visit; what vendors put there stays."""
    world, client, _ = served(up, down)
    channel = client.call()
    heard = world.hear("tools/call")
    params = {
        "mode": "url",
        "message": "m",
        "url": "http://x",
        "elicitationId": "e",
        "task": {"ttl": 1},
        "x-vendor": 1.50,
        "_meta": {"progressToken": 5, "io.modelcontextprotocol/related-task": {"taskId": "t"}, "vendor": 1},
    }
    speak(world, heard, request("5", "elicitation/create", json.dumps(params)))
    collect(world)
    questions, _ = rounds(client, channel)
    kept = {"mode": "url", "message": "m", "url": "http://x", "x-vendor": 1.5, "_meta": {"vendor": 1}}
    assert questions == {"r1": {"method": "elicitation/create", "params": kept}}
    assert b'"x-vendor": 1.5' in world.messages(channel)[-1]


@UPS
@pytest.mark.parametrize("method", KINDS)
@pytest.mark.parametrize("leg", ["first", "second"])
def test_nobody_is_asked_what_this_request_cannot_be_asked(up: str, method: str, leg: str) -> None:
    """No question needs a capability that its request has not declared. The server hears what a client without it
    says; where the next leg declares less, so for what is open."""
    able = {"elicitation/create": "elicitation", "sampling/createMessage": "sampling", "roots/list": "roots"}
    less = {name: value for name, value in ABLE.items() if name != able[method]}
    world, client, _ = served(up)
    if leg == "first":
        client.capabilities = less
        channel = client.call()
        rise(world, session="S2")
        heard = world.hear("tools/call")
        ask(world, heard, method)
    else:
        heard, _, state = parked(world, client, method)
        channel = client.call(capabilities=less, requestState=state)
    refused = world.hear("").frame
    assert refused["id"] == "q"
    assert refused["error"]["code"] == (-32602 if method == "elicitation/create" else -32601)
    collect(world)
    assert not world.messages(channel)
    give(world, heard)
    assert "result" in client.answered(channel)
    assert_idle(world)


@UPS
def test_a_question_of_another_kind_is_refused(up: str) -> None:
    """What a result cannot ask is refused at once: one bad entry would spoil all of them."""
    world, client, _ = served(up)
    channel = client.call()
    heard = world.hear("tools/call")
    speak(world, heard, request("1", "vendor/ask", "{}"))
    assert world.hear("").frame["error"]["code"] == -32601
    speak(world, heard, request("2", "elicitation/create", '{"message":5}'))
    assert world.hear("").frame["error"]["code"] == -32602
    collect(world)
    assert not world.messages(channel)


@UPS
def test_a_question_with_the_id_of_an_open_one_is_refused(up: str) -> None:
    """The second is its server's fault, and the first is still asked."""
    world, client, _ = served(up)
    channel = client.call()
    heard = world.hear("tools/call")
    ask(world, heard, id_raw="1")
    ask(world, heard, "roots/list", id_raw="1")
    assert world.hear("").frame["error"]["code"] == -32600
    collect(world)
    questions, _ = rounds(client, channel)
    assert [question["method"] for question in questions.values()] == ["elicitation/create"]


def test_a_question_on_the_event_stream_is_asked_with_the_call_that_is_open() -> None:
    """Some servers ask there even in the course of a call; of several open calls the latest that can be asked is it."""
    world, client, stream = served("http")
    assert stream is not None
    unable = client.call("unable", capabilities=ABLE)
    world.hear("tools/call")
    channel = client.call("able")
    heard = world.hear("tools/call")
    client.request("tools/list")
    world.say(stream, request("1", "roots/list"))
    collect(world)
    assert not world.messages(unable)
    _, state = rounds(client, channel)
    client.call("able", requestState=state, inputResponses={"r1": ANSWERS["roots/list"]})
    assert world.hear("").frame == {"jsonrpc": "2.0", "id": 1, "result": ANSWERS["roots/list"]}
    give(world, heard)
    world.say(stream, request("2", "sampling/createMessage", PROMPT))
    collect(world)
    assert rounds(client, unable)[0]["r1"]["method"] == "sampling/createMessage", "the other call is open still"


# --- Withdrawn --------------------------------------------------------------------------------------------------------


def withdrawal(id_raw: str) -> bytes:
    return notification("notifications/cancelled", f'{{"requestId":{id_raw}}}')


@UPS
def test_a_question_withdrawn_before_it_was_asked_is_not(up: str) -> None:
    """The last one gone, the call just runs on: nothing is told, and no round counted."""
    world, client, _ = served(up)
    channel = client.call()
    heard = world.hear("tools/call")
    ask(world, heard, id_raw="1")
    speak(world, heard, withdrawal("1"))
    world.wait(10)
    assert not world.messages(channel)
    ask(world, heard, id_raw="2")
    collect(world)
    assert list(rounds(client, channel)[0]) == ["r2"]


@UPS
def test_a_withdrawn_question_is_never_answered(up: str) -> None:
    """Of three questions one is withdrawn while the user answers: its answer is dropped, the others are delivered."""
    world, client, _ = served(up)
    channel = client.call()
    heard = world.hear("tools/call")
    for number in ("1", "2", "3"):
        ask(world, heard, id_raw=number)
    collect(world)
    questions, state = rounds(client, channel)
    speak(world, heard, withdrawal("2"))
    channel = client.call(requestState=state, inputResponses=dict.fromkeys(questions, ACCEPT))
    assert [world.hear("").id, world.hear("").id] == [1, 3]
    assert not world.hears("")
    give(world, heard)
    assert "result" in client.answered(channel)
    assert_idle(world)


def test_a_key_of_an_earlier_round_means_nothing() -> None:
    """What was answered is not answered again, whatever comes for it later; what is unknown neither."""
    world, client, _ = served()
    heard, _, state = parked(world, client)
    channel = client.call(requestState=state, inputResponses={"r1": ACCEPT})
    world.hear("")
    ask(world, heard, "roots/list", '"second"')
    collect(world)
    _, state = rounds(client, channel)
    answers = {"r1": {"action": "decline"}, "r2": ANSWERS["roots/list"], "r9": {"any": "thing"}}
    client.call(requestState=state, inputResponses=answers)
    assert world.hear("").frame["id"] == "second"
    assert not world.hears("")


def test_what_is_asked_while_the_client_is_away_is_the_next_round() -> None:
    """The round that was issued does not change; with its answers the next one comes at once, and the call goes on."""
    world, client, _ = served()
    heard, questions, state = parked(world, client)
    ask(world, heard, "roots/list", '"second"')
    ask(world, heard, "sampling/createMessage", '"third"')
    channel = client.call(requestState=state, inputResponses=dict.fromkeys(questions, ACCEPT))
    again, state = rounds(client, channel)
    assert {key: question["method"] for key, question in again.items()} == {
        "r2": "roots/list",
        "r3": "sampling/createMessage",
    }
    client.call(requestState=state, inputResponses={key: ANSWERS[q["method"]] for key, q in again.items()})
    assert [world.hear("").frame["id"] for _ in range(3)] == ["q", "second", "third"]


def test_the_answer_wins_over_questions_that_nobody_has_heard() -> None:
    """A server that answers right after it asked wants to know nothing any more."""
    world, client, _ = served()
    channel = client.call()
    heard = world.hear("tools/call")
    ask(world, heard)
    give(world, heard)
    assert client.answered(channel)["result"]["resultType"] == "complete"
    collect(world)
    assert len(world.messages(channel)) == 1
    assert_idle(world)


@UPS
def test_questions_that_come_within_the_pause_are_asked_together(up: str) -> None:
    """It begins anew with each, and is over when nothing has come in it."""
    world, client, _ = served(up, limits=Limits(collect_s=1.0))
    channel = client.call()
    heard = world.hear("tools/call")
    ask(world, heard, "elicitation/create", '"one"')
    world.wait(0.9)
    ask(world, heard, "roots/list", '"two"')
    world.wait(0.9)
    assert not world.messages(channel)
    world.wait(0.1)
    questions, _ = rounds(client, channel)
    assert [question["method"] for question in questions.values()] == ["elicitation/create", "roots/list"]
