"""Tests of suspended calls: questions of servers of the handshake era in calls of stateless clients."""

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
    respond,
    rounds,
    send_during,
    served,
    start_legacy_server,
    suspended,
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
def test_a_server_gets_each_answer_once(batches: list[list[str]], up: str, down: str, data: st.DataObject) -> None:
    """Questions at once share a round, in no more rounds than batches. Each is answered once, under the server's own
    id. Keys are never used again, and the call is written once."""
    world, client, _ = served(up, down)
    answered: dict[str, dict[str, Any]] = {}
    keys: list[str] = []
    channel = client.call(arguments={"n": 1})
    received = world.take_sent("tools/call")
    for number, batch in enumerate(batches):
        for index, method in enumerate(batch):
            ask(world, received, method, json.dumps(f"{number}.{index}"))
        assert world.messages(channel) == [] or down == "pipe", "nothing is sent before more questions could have come"
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
        while world.was_sent(""):
            frame = world.take_sent("").frame
            assert frame["id"] not in answered
            answered[frame["id"]] = frame["result"]
        for id, answer in expected.items():
            assert answered[id] == answer
        assert not world.was_sent("tools/call")
    assert len(keys) == len(set(keys))
    assert sum(map(len, batches)) == len(answered)
    respond(world, received)
    assert client.answered(channel, client.last_id)["result"]["resultType"] == "complete"
    assert_idle(world)


@UPS
@DOWNS
def test_a_question_is_embedded_without_what_belonged_to_its_request(up: str, down: str) -> None:
    """The client gets method and params only, without id, token, task or elicitation id. Vendor members stay."""
    world, client, _ = served(up, down)
    channel = client.call()
    received = world.take_sent("tools/call")
    params = {
        "mode": "url",
        "message": "m",
        "url": "http://x",
        "elicitationId": "e",
        "task": {"ttl": 1},
        "x-vendor": 1.50,
        "_meta": {"progressToken": 5, "io.modelcontextprotocol/related-task": {"taskId": "t"}, "vendor": 1},
    }
    send_during(world, received, request("5", "elicitation/create", json.dumps(params)))
    collect(world)
    questions, _ = rounds(client, channel)
    kept = {"mode": "url", "message": "m", "url": "http://x", "x-vendor": 1.5, "_meta": {"vendor": 1}}
    assert questions == {"r1": {"method": "elicitation/create", "params": kept}}
    assert b'"x-vendor": 1.5' in world.messages(channel)[-1]


@UPS
@pytest.mark.parametrize("method", KINDS)
@pytest.mark.parametrize("which", ["first", "second"])
def test_a_question_needs_a_capability_of_its_request(up: str, method: str, which: str) -> None:
    """A server whose question lacks the capability gets the refusal of such a client. The capabilities of a retry apply
    to the open questions."""
    able = {"elicitation/create": "elicitation", "sampling/createMessage": "sampling", "roots/list": "roots"}
    less = {name: value for name, value in ABLE.items() if name != able[method]}
    world, client, _ = served(up)
    if which == "first":
        client.capabilities = less
        channel = client.call()
        start_legacy_server(world, session="S2")
        received = world.take_sent("tools/call")
        ask(world, received, method)
    else:
        received, _, state = suspended(world, client, method)
        channel = client.call(capabilities=less, requestState=state)
    refused = world.take_sent("").frame
    assert refused["id"] == "q"
    assert refused["error"]["code"] == (-32602 if method == "elicitation/create" else -32601)
    collect(world)
    assert not world.messages(channel)
    respond(world, received)
    assert "result" in client.answered(channel)
    assert_idle(world)


@UPS
def test_another_request_of_the_server_is_refused(up: str) -> None:
    """A result cannot carry it, and one bad entry would spoil all of them."""
    world, client, _ = served(up)
    channel = client.call()
    received = world.take_sent("tools/call")
    send_during(world, received, request("1", "vendor/ask", "{}"))
    assert world.take_sent("").frame["error"]["code"] == -32601
    send_during(world, received, request("2", "elicitation/create", '{"message":5}'))
    assert world.take_sent("").frame["error"]["code"] == -32602
    collect(world)
    assert not world.messages(channel)


@UPS
def test_a_question_with_the_id_of_an_open_one_is_refused(up: str) -> None:
    """The duplicate is the server's fault, and the first question is still asked."""
    world, client, _ = served(up)
    channel = client.call()
    received = world.take_sent("tools/call")
    ask(world, received, id_raw="1")
    ask(world, received, "roots/list", id_raw="1")
    assert world.take_sent("").frame["error"]["code"] == -32600
    collect(world)
    questions, _ = rounds(client, channel)
    assert [question["method"] for question in questions.values()] == ["elicitation/create"]


def test_a_question_on_the_event_stream_belongs_to_the_open_call() -> None:
    """Some servers ask there during a call. Of several open calls the latest that can be asked gets the question."""
    world, client, stream = served("http")
    assert stream is not None
    unable = client.call("unable", capabilities=ABLE)
    world.take_sent("tools/call")
    channel = client.call("able")
    received = world.take_sent("tools/call")
    client.request("tools/list")
    world.send(stream, request("1", "roots/list"))
    collect(world)
    assert not world.messages(unable)
    _, state = rounds(client, channel)
    client.call("able", requestState=state, inputResponses={"r1": ANSWERS["roots/list"]})
    assert world.take_sent("").frame == {"jsonrpc": "2.0", "id": 1, "result": ANSWERS["roots/list"]}
    respond(world, received)
    world.send(stream, request("2", "sampling/createMessage", PROMPT))
    collect(world)
    assert rounds(client, unable)[0]["r1"]["method"] == "sampling/createMessage", "the other call is open still"


# --- Withdrawn --------------------------------------------------------------------------------------------------------


def withdrawal(id_raw: str) -> bytes:
    return notification("notifications/cancelled", f'{{"requestId":{id_raw}}}')


@UPS
def test_a_question_withdrawn_in_time_is_never_asked(up: str) -> None:
    """A call whose last question is withdrawn runs on, and no round counts."""
    world, client, _ = served(up)
    channel = client.call()
    received = world.take_sent("tools/call")
    ask(world, received, id_raw="1")
    send_during(world, received, withdrawal("1"))
    world.wait(10)
    assert not world.messages(channel)
    ask(world, received, id_raw="2")
    collect(world)
    assert list(rounds(client, channel)[0]) == ["r2"]


@UPS
def test_a_withdrawn_question_is_never_answered(up: str) -> None:
    """The answer to a withdrawn question is dropped, and the other answers are delivered."""
    world, client, _ = served(up)
    channel = client.call()
    received = world.take_sent("tools/call")
    for number in ("1", "2", "3"):
        ask(world, received, id_raw=number)
    collect(world)
    questions, state = rounds(client, channel)
    send_during(world, received, withdrawal("2"))
    channel = client.call(requestState=state, inputResponses=dict.fromkeys(questions, ACCEPT))
    assert [world.take_sent("").id, world.take_sent("").id] == [1, 3]
    assert not world.was_sent("")
    respond(world, received)
    assert "result" in client.answered(channel)
    assert_idle(world)


def test_a_key_of_an_earlier_round_is_ignored() -> None:
    """An answered question is not answered again, and neither is an unknown one."""
    world, client, _ = served()
    received, _, state = suspended(world, client)
    channel = client.call(requestState=state, inputResponses={"r1": ACCEPT})
    world.take_sent("")
    ask(world, received, "roots/list", '"second"')
    collect(world)
    _, state = rounds(client, channel)
    answers = {"r1": {"action": "decline"}, "r2": ANSWERS["roots/list"], "r9": {"any": "thing"}}
    client.call(requestState=state, inputResponses=answers)
    assert world.take_sent("").frame["id"] == "second"
    assert not world.was_sent("")


def test_questions_while_the_client_is_away_are_the_next_round() -> None:
    """An issued round does not change. The next one comes with the answers to it, and the call goes on."""
    world, client, _ = served()
    received, questions, state = suspended(world, client)
    ask(world, received, "roots/list", '"second"')
    ask(world, received, "sampling/createMessage", '"third"')
    channel = client.call(requestState=state, inputResponses=dict.fromkeys(questions, ACCEPT))
    again, state = rounds(client, channel)
    assert {key: question["method"] for key, question in again.items()} == {
        "r2": "roots/list",
        "r3": "sampling/createMessage",
    }
    client.call(requestState=state, inputResponses={key: ANSWERS[q["method"]] for key, q in again.items()})
    assert [world.take_sent("").frame["id"] for _ in range(3)] == ["q", "second", "third"]


def test_an_answer_supersedes_unsent_questions() -> None:
    """A server that answers right after a question needs no answer to it."""
    world, client, _ = served()
    channel = client.call()
    received = world.take_sent("tools/call")
    ask(world, received)
    respond(world, received)
    assert client.answered(channel)["result"]["resultType"] == "complete"
    collect(world)
    assert len(world.messages(channel)) == 1
    assert_idle(world)


@UPS
def test_questions_that_come_within_the_pause_are_asked_together(up: str) -> None:
    """The pause begins again with each question."""
    world, client, _ = served(up, limits=Limits(collect_s=1.0))
    channel = client.call()
    received = world.take_sent("tools/call")
    ask(world, received, "elicitation/create", '"one"')
    world.wait(0.9)
    ask(world, received, "roots/list", '"two"')
    world.wait(0.9)
    assert not world.messages(channel)
    world.wait(0.1)
    questions, _ = rounds(client, channel)
    assert [question["method"] for question in questions.values()] == ["elicitation/create", "roots/list"]
