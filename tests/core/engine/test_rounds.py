"""Tests of `input_required` rounds: a stateless server ends a call with questions, which its client gets as requests
while the call waits."""

from __future__ import annotations

import json
from typing import Any

import pytest
from driving import Driver, driver, new_client, notification, result
from hypothesis import given
from hypothesis import strategies as st
from isthmus.core.base.events import Connected
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import ArtifactProducer, Kind, LocatorMode, OutputLocator
from stateless_server import (
    DIED,
    META,
    Pair,
    bare,
    discovered,
    input_required_result,
    modern_call,
    modern_plan,
    pair,
)

FORM: Any = {"message": "who?", "requestedSchema": {"type": "object", "properties": {"n": {"type": "string"}}}}
SAMPLE: Any = {"messages": [{"role": "user", "content": {"type": "text", "text": "hi"}}], "maxTokens": 5}
PAGE: Any = {"mode": "url", "message": "go", "url": "https://example.com/x"}
ASK = {
    "elicitation/create": FORM,
    "sampling/createMessage": SAMPLE,
    "roots/list": {},
}
REPLIES = {
    "elicitation/create": '{"action":"accept","content":{"n":"me"}}',
    "sampling/createMessage": '{"role":"assistant","content":{"type":"text","text":"x"},"model":"m"}',
    "roots/list": '{"roots":[{"uri":"file:///a"}]}',
}
DONE = '{"resultType":"complete","content":[]}'
KINDS = pytest.mark.parametrize("up", [Kind.PIPE, Kind.HTTP])
SIDES = pytest.mark.parametrize("down", ["pipe", "http"])

questions = st.dictionaries(
    st.text(min_size=1, max_size=5), st.sampled_from(sorted(ASK)).map(lambda method: (method, ASK[method])), max_size=3
)
rounds = st.lists(
    st.tuples(questions, st.none() | st.text(max_size=8)).filter(lambda r: bool(r[0]) or r[1] is not None), max_size=4
)


@given(
    script=rounds,
    down=st.sampled_from(["pipe", "http"]),
    up=st.sampled_from([Kind.PIPE, Kind.HTTP]),
    method=st.sampled_from(["tools/call", "prompts/get", "resources/read"]),
    order=st.randoms(use_true_random=False),
)
def test_every_round_reaches_the_client_and_makes_one_retry(
    script: list[tuple[dict[str, Any], str | None]], down: str, up: Kind, method: str, order: Any
) -> None:
    """The client gets the questions of each round. The retry differs from the first request only in its id, in `_meta`,
    and in the answers and state of that round."""
    both = pair(down, up)
    params = {"name": "t", "uri": "a:b", "arguments": {"x": 1.0}}
    channel, received = both.call("7", json.dumps(params), method)
    first = bare(received.frame["params"])
    assert first == params
    numbers = {received.id}
    count = 0
    for asked, state in script:
        both.world.answer(received, input_required_result(asked or None, state))
        seen = both.asked(channel)[count:]
        count += len(seen)
        assert [(frame["method"], frame.get("params")) for frame in seen] == list(asked.values())
        assert both.answer(channel) is None
        order.shuffle(seen)
        for index, frame in enumerate(seen):
            assert not both.world.unread, f"{len(seen) - index} answers are missing"
            both.reply(frame["id"], REPLIES[frame["method"]])
        both.world.wait(5.0 if not asked else 0.0)
        received = both.world.take_sent(method)
        assert received.id not in numbers
        numbers.add(received.id)
        extra = {} if not asked else {"inputResponses": {k: json.loads(REPLIES[m]) for k, (m, _) in asked.items()}}
        extra |= {} if state is None else {"requestState": state}
        assert bare(received.frame["params"]) == first | extra
    both.world.answer(
        received, '{"resultType":"complete","content":[{"type":"text","text":"\\u00e9"}],"contents":[],"messages":[]}'
    )
    answer = both.answer(channel)
    assert answer is not None
    assert "resultType" not in answer["result"]
    assert answer["id"] == 7
    assert not both.world.unread


def test_params_travel_byte_for_byte_into_every_retry() -> None:
    """Unread params are as the client wrote them in each retry, and so is the server's state."""
    both = pair("pipe", Kind.PIPE)
    arguments = '"arguments":{"a":1.0,"b":1e2,"c":-0,"d":10000000000000000000000000000000000000000,"e":"\\u00e9"}'
    _, received = both.call("1", f'{{"name":"t",{arguments}}}')
    state = '{"resultType":"input_required","requestState":"a\\u00e9\\/b\\ud83d\\ude00"}'
    both.world.answer(received, state)
    both.world.wait(0.25)
    again = both.world.take_sent("tools/call").raw
    assert b'"requestState":"a\\u00e9\\/b\\ud83d\\ude00"' in again
    assert arguments.encode() in again


@pytest.mark.parametrize("count", [1, 6, 40])
def test_results_with_only_a_state_are_retried_with_growing_pauses(count: int) -> None:
    """Results with only a state make retries without limit, at least 250 ms apart, doubled up to 5 s."""
    both = pair("http", Kind.HTTP)
    channel, received = both.call()
    pause = 0.25
    for number in range(count):
        both.world.answer(received, input_required_result(None, str(number)))
        both.world.wait(pause - 0.01)
        assert not both.world.was_sent("tools/call")
        both.world.wait(0.02)
        received = both.world.take_sent("tools/call")
        assert received.frame["params"]["requestState"] == str(number)
        pause = min(pause * 2, 5.0)
    both.world.answer(received, DONE)
    assert both.answer(channel) == {"jsonrpc": "2.0", "id": 1, "result": {"content": []}}


def test_a_round_with_questions_makes_pauses_short_again() -> None:
    """A round with questions resets the pauses."""
    both = pair("pipe", Kind.PIPE)
    channel, received = both.call()
    for _ in range(4):
        both.world.answer(received, input_required_result(None, "s"))
        both.world.wait(5.0)
        received = both.world.take_sent("tools/call")
    both.world.answer(received, input_required_result({"k": ("elicitation/create", FORM)}))
    both.reply(both.asked(channel)[-1]["id"], REPLIES["elicitation/create"])
    both.world.answer(both.world.take_sent("tools/call"), input_required_result(None, "s"))
    both.world.wait(0.25)
    assert both.world.was_sent("tools/call")


@pytest.mark.parametrize("method", ["tools/call", "prompts/get", "resources/read"])
def test_rounds_are_bounded(method: str) -> None:
    """After too many rounds the call is given up, and a tool's caller gets the reason as a result."""
    both = pair("pipe", Kind.PIPE, limits=Limits(rounds_max=3))
    channel, received = both.call("1", '{"name":"t","uri":"a:b"}', method)
    for _ in range(3):
        both.world.answer(received, input_required_result({"k": ("roots/list", {})}))
        both.reply(both.asked(channel)[-1]["id"], REPLIES["roots/list"])
        received = both.world.take_sent(method)
    both.world.answer(received, input_required_result({"k": ("roots/list", {})}))
    answer = both.answer(channel)
    assert answer is not None
    if method == "tools/call":
        assert answer["result"]["isError"] is True
    else:
        assert answer["error"]["code"] == -31006
    assert len(both.asked(channel)) == 3
    assert not both.world.unread


# --- Answers of the client --------------------------------------------------------------------------------------------


@KINDS
@SIDES
@pytest.mark.parametrize("method", ["tools/call", "prompts/get", "resources/read"])
@pytest.mark.parametrize("question", ["sampling/createMessage", "roots/list"])
def test_a_refusal_ends_the_call(question: str, method: str, down: str, up: Kind) -> None:
    """A retry cannot carry an error: the client gets one final answer, the server no retry, and the other questions of
    the round are withdrawn."""
    both = pair(down, up)
    channel, received = both.call("1", '{"name":"t","uri":"a:b"}', method)
    both.world.answer(
        received, input_required_result({"a": (question, ASK[question]), "b": ("elicitation/create", FORM)})
    )
    refusing, other = both.asked(channel)
    both.client.send(b'{"jsonrpc":"2.0","id":%d,"error":{"code":-1,"message":"never"}}' % refusing["id"])
    answer = both.answer(channel)
    assert answer is not None
    if method == "tools/call":
        assert answer["result"]["isError"] is True
        assert "never" in answer["result"]["content"][0]["text"]
    else:
        assert answer["error"]["code"] == -31005
        assert "never" in answer["error"]["message"]
    withdrawn = [f for f in both.world.frames(channel) if f.get("method") == "notifications/cancelled"]
    assert [frame["params"]["requestId"] for frame in withdrawn] == [other["id"]]
    both.reply(other["id"], REPLIES["elicitation/create"])
    both.world.wait(60.0)
    assert not both.world.unread


@KINDS
def test_an_error_to_an_elicitation_counts_as_cancelled(up: Kind) -> None:
    """The server gets {"action": "cancel"}."""
    both = pair("pipe", up)
    channel, received = both.call()
    both.world.answer(received, input_required_result({"a": ("elicitation/create", FORM)}, "s"))
    (asked,) = both.asked(channel)
    both.client.send(b'{"jsonrpc":"2.0","id":%d,"error":{"code":-32603,"message":"no window"}}' % asked["id"])
    assert both.world.take_sent("tools/call").frame["params"]["inputResponses"] == {"a": {"action": "cancel"}}


def test_an_unanswered_question_ends_the_call() -> None:
    """Each question has a timeout. After that it counts as refused, and the call ends."""
    both = pair("pipe", Kind.PIPE, limits=Limits(question_timeout_s=60.0))
    channel, received = both.call()
    both.world.answer(received, input_required_result({"a": ("sampling/createMessage", SAMPLE)}))
    both.world.wait(59.0)
    assert both.answer(channel) is None
    both.world.wait(2.0)
    answer = both.answer(channel)
    assert answer is not None
    assert answer["result"]["isError"] is True
    both.reply(both.asked(channel)[0]["id"], REPLIES["sampling/createMessage"])
    assert not both.world.unread


@pytest.mark.parametrize("text", ["[]", '{"action":"maybe"}', '"yes"', "null", '{"content":{}}'])
def test_an_invalid_answer_never_reaches_the_server(text: str) -> None:
    """An answer to a form that has not its shape counts as cancelled."""
    both = pair("pipe", Kind.PIPE)
    channel, received = both.call()
    both.world.answer(received, input_required_result({"a": ("elicitation/create", FORM)}))
    both.reply(both.asked(channel)[0]["id"], text)
    assert both.world.take_sent("tools/call").frame["params"]["inputResponses"] == {"a": {"action": "cancel"}}


@KINDS
def test_an_answer_counts_once(up: Kind) -> None:
    """Corner case 33: a second answer to a question, or one to no question, changes nothing."""
    both = pair("pipe", up)
    channel, received = both.call()
    both.world.answer(received, input_required_result({"a": ("elicitation/create", FORM), "b": ("roots/list", {})}))
    first, second = both.asked(channel)
    both.reply(first["id"], '{"action":"decline"}')
    both.reply(first["id"], REPLIES["elicitation/create"])
    both.reply(999, REPLIES["elicitation/create"])
    assert not both.world.unread
    both.reply(second["id"], REPLIES["roots/list"])
    responses = both.world.take_sent("tools/call").frame["params"]["inputResponses"]
    assert responses == {"a": {"action": "decline"}, "b": json.loads(REPLIES["roots/list"])}


# --- Questions of the server ------------------------------------------------------------------------------------------

UNASKABLE: dict[str, str] = {
    "nothing": '{"resultType":"input_required"}',
    "no object": '{"resultType":"input_required","inputRequests":[]}',
    "another method": input_required_result({"a": ("ping", {})}),
    "a method of its own": input_required_result({"a": ("vendor/ask", {})}),
    "one bad among good": input_required_result({"a": ("roots/list", {}), "b": ("tools/list", {})}),
    "a state that is no text": '{"resultType":"input_required","requestState":1}',
    "a form without a message": input_required_result({"a": ("elicitation/create", {"requestedSchema": {}})}),
}


@KINDS
@pytest.mark.parametrize("case", UNASKABLE)
def test_an_invalid_question_fails_the_call(case: str, up: Kind) -> None:
    """An invalid question is the server's fault: -32603, no question, no retry."""
    both = pair("pipe", up)
    channel, received = both.call()
    both.world.answer(received, UNASKABLE[case])
    answer = both.answer(channel)
    assert answer is not None
    assert answer["error"]["code"] == -32603
    assert not both.asked(channel)
    both.world.wait(60.0)
    assert not both.world.unread


@pytest.mark.parametrize(
    "declared", ["{}", '{"elicitation":{}}', '{"sampling":{}}', '{"roots":{}}', '{"elicitation":{"url":{}}}']
)
@pytest.mark.parametrize("question", [*ASK, "url"])
def test_a_client_gets_only_questions_that_it_declared(declared: str, question: str) -> None:
    """The client never gets a request for a capability that it has not declared."""
    both = pair("pipe", Kind.PIPE, declared=declared)
    channel, received = both.call()
    method, params = ("elicitation/create", PAGE) if question == "url" else (question, ASK[question])
    both.world.answer(received, input_required_result({"a": (method, params)}))
    abilities = json.loads(declared)
    if question == "url":
        may_ask = "url" in abilities.get("elicitation", {})
    elif question == "elicitation/create":
        may_ask = abilities.get("elicitation") == {}
    else:
        may_ask = question.split("/")[0] in abilities
    assert bool(both.asked(channel)) is may_ask
    answer = both.answer(channel)
    assert (answer is None) is may_ask
    assert answer is None or answer["error"]["code"] == -32603


@pytest.mark.parametrize("method", ["tools/list", "prompts/list", "resources/list", "completion/complete"])
def test_input_required_is_allowed_for_three_methods(method: str) -> None:
    """Corner case 35: `input_required` is no valid result of any other method."""
    both = pair("pipe", Kind.PIPE)
    channel, received = both.call("1", "{}", method)
    both.world.answer(received, input_required_result({"a": ("roots/list", {})}))
    answer = both.answer(channel)
    assert answer is not None
    assert answer["error"]["code"] == -32603
    assert not both.asked(channel)


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
@pytest.mark.parametrize("up", [Kind.PIPE, Kind.HTTP])
def test_no_client_of_the_handshake_era_sees_input_required(revision: str, up: Kind) -> None:
    """No message to it has the resultType `input_required` or `task`, or a key of the other era."""
    both = pair("pipe", up, revision=revision)
    channel, received = both.call()
    both.world.answer(
        received, input_required_result({"a": ("roots/list", {}), "b": ("sampling/createMessage", SAMPLE)}, "s")
    )
    for frame in both.asked(channel):
        both.reply(frame["id"], REPLIES[frame["method"]])
    both.world.answer(both.world.take_sent("tools/call"), DONE)
    text = b"".join(both.world.messages(channel))
    assert b"resultType" not in text
    assert b"requestState" not in text
    assert META.encode() not in text


CHOICES: Any = {
    "message": "which?",
    "mode": "form",
    "requestedSchema": {
        "type": "object",
        "properties": {
            "one": {"type": "string", "oneOf": [{"const": "a", "title": "A"}, {"const": "b", "title": "B"}]},
            "many": {"type": "array", "items": {"type": "string", "enum": ["x", "y", "z"]}, "minItems": 1},
            "name": {"type": "string", "default": "n"},
        },
        "required": ["many"],
    },
}


def test_a_question_has_the_form_of_the_client_s_revision() -> None:
    """2025-11-25 gets the whole form. 2025-06-18 gets one of plain fields, whose answer is put together again."""
    both = pair("pipe", Kind.PIPE, revision="2025-11-25")
    channel, received = both.call()
    both.world.answer(received, input_required_result({"a": ("elicitation/create", CHOICES)}))
    assert both.asked(channel)[0]["params"] == CHOICES

    both = pair("pipe", Kind.PIPE, revision="2025-06-18", declared='{"elicitation":{}}')
    channel, received = both.call()
    both.world.answer(received, input_required_result({"a": ("elicitation/create", CHOICES)}))
    shown = both.asked(channel)[0]["params"]
    assert "mode" not in shown
    properties = shown["requestedSchema"]["properties"]
    assert all(field["type"] in ("string", "number", "integer", "boolean") for field in properties.values())
    chosen = {key: True for key in properties if key not in ("one", "name")}
    assert len(chosen) == 3
    content = dict(zip(chosen, [True, False, True], strict=True)) | {"one": "a"}
    both.reply(both.asked(channel)[0]["id"], json.dumps({"action": "accept", "content": content}))
    given_back = both.world.take_sent("tools/call").frame["params"]["inputResponses"]["a"]
    assert given_back["content"] == {"one": "a", "many": ["x", "z"]}


# --- URL elicitation --------------------------------------------------------------------------------------------------


@KINDS
@SIDES
@pytest.mark.parametrize("action", ["accept", "decline", "cancel"])
def test_elicitation_complete_is_sent_once_the_server_goes_on(action: str, down: str, up: Kind) -> None:
    """The client gets at most one `complete` for each elicitation, with its own id, only after "accept", and only when
    the server has taken the retry."""
    both = pair(down, up)
    channel, received = both.call()
    both.world.answer(received, input_required_result({"a": ("elicitation/create", PAGE)}, "s"))
    (asked,) = both.asked(channel)
    elicitation_id = asked["params"]["elicitationId"]
    assert {**PAGE, "elicitationId": elicitation_id} == asked["params"]
    both.reply(asked["id"], json.dumps({"action": action}))

    def completed() -> list[str]:
        frames = both.world.frames(channel)
        return [f["params"]["elicitationId"] for f in frames if f.get("method") == "notifications/elicitation/complete"]

    assert completed() == []
    both.world.answer(both.world.take_sent("tools/call"), input_required_result(None, "t"))
    assert completed() == ([elicitation_id] if action == "accept" else [])
    both.world.wait(1.0)
    both.world.answer(both.world.take_sent("tools/call"), DONE)
    assert completed() == ([elicitation_id] if action == "accept" else [])
    assert both.answer(channel) is not None


def test_elicitation_complete_of_a_stateless_server_is_dropped() -> None:
    """The stateless era has no such notification."""
    both = pair("pipe", Kind.PIPE)
    channel, received = both.call()
    both.world.send(received.channel, notification("notifications/elicitation/complete", '{"elicitationId":"e"}'))
    assert both.world.messages(channel) == []


# --- Interruptions ----------------------------------------------------------------------------------------------------


def cancel(both: Pair, id_raw: str = "1") -> None:
    both.client.notify("notifications/cancelled", f'{{"requestId":{id_raw},"reason":"enough"}}')


@KINDS
@SIDES
@pytest.mark.parametrize("stage", ["sent", "asking", "half answered", "pausing", "retried"])
def test_a_cancelled_call_is_over_at_every_stage(stage: str, down: str, up: Kind) -> None:
    """After a cancellation the client gets only withdrawals of questions, and the server only the cancellation of a
    request that it works on."""
    both = pair(down, up)
    world = both.world
    channel, received = both.call()
    if stage in ("asking", "half answered", "retried"):
        world.answer(received, input_required_result({"a": ("elicitation/create", FORM), "b": ("roots/list", {})}))
        first, second = both.asked(channel)
        if stage != "asking":
            both.reply(first["id"], REPLIES["elicitation/create"])
        if stage == "retried":
            both.reply(second["id"], REPLIES["roots/list"])
            received = world.take_sent("tools/call")
    elif stage == "pausing":
        world.answer(received, input_required_result(None, "s"))
    before = len(both.asked(channel))
    cancel(both)
    is_running = stage in ("sent", "retried")
    if up is Kind.HTTP:
        assert (received.channel in world.closed) is is_running, "closing the stream is the cancellation"
    else:
        assert world.was_sent("notifications/cancelled") is is_running
        if is_running:
            assert world.take_sent("notifications/cancelled").frame["params"]["requestId"] == received.id
            world.answer(received, DONE)
    for frame in both.asked(channel)[:before]:
        both.reply(frame["id"], REPLIES[frame["method"]])
    world.wait(60.0)
    assert not [h for h in world.unread if h.frame.get("method") == "tools/call"]
    assert all("result" not in frame for frame in world.frames(channel))
    cancelled = [f for f in world.frames(channel) if f.get("method") == "notifications/cancelled"]
    assert len(cancelled) == {"asking": 2, "half answered": 1}.get(stage, 0)
    assert world.engine.exchange_count == 0


@SIDES
@KINDS
@pytest.mark.parametrize("stage", ["sent", "asking", "pausing"])
def test_a_client_that_leaves_for_good_leaves_nothing_behind(stage: str, down: str, up: Kind) -> None:
    """The end of the session ends all of its calls and questions, at every stage."""
    both = pair(down, up)
    world = both.world
    _channel, received = both.call()
    if stage != "sent":
        world.answer(
            received,
            input_required_result({"a": ("roots/list", {})}) if stage == "asking" else input_required_result(None, "s"),
        )
    if both.client.pipe is not None:
        world.end(both.client.pipe)
    else:
        both.client.delete()
    world.wait(120.0)
    assert not [h for h in world.unread if h.frame.get("method") == "tools/call"]
    assert world.engine.session_count == 0
    assert world.engine.exchange_count == 0


@pytest.mark.parametrize("stage", ["asking", "pausing"])
@KINDS
def test_a_retry_is_sent_when_a_server_lost_between_rounds_is_back(up: Kind, stage: str) -> None:
    """The state of a call between rounds is in its retry, so the loss of a process loses nothing."""
    both = pair("pipe", up)
    world = both.world
    channel, received = both.call()
    world.answer(received, input_required_result({"a": ("roots/list", {})} if stage == "asking" else None, "s"))
    if up is Kind.PIPE:
        world.end(received.channel, DIED)
    assert both.answer(channel) is None
    if stage == "asking":
        both.reply(both.asked(channel)[0]["id"], REPLIES["roots/list"])
    world.wait(0.25)
    if up is Kind.PIPE:
        discovered(world)
    again = world.take_sent("tools/call")
    assert again.frame["params"]["requestState"] == "s"
    assert ("inputResponses" in again.frame["params"]) is (stage == "asking")
    world.answer(again, DONE)
    assert both.answer(channel) == {"jsonrpc": "2.0", "id": 1, "result": {"content": []}}


def test_the_outcome_of_a_retry_is_unknown_if_its_server_dies() -> None:
    """A retry is a call like any other: the client gets an error with an unknown outcome."""
    both = pair("pipe", Kind.PIPE)
    channel, received = both.call()
    both.world.answer(received, input_required_result({"a": ("roots/list", {})}))
    both.reply(both.asked(channel)[0]["id"], REPLIES["roots/list"])
    both.world.end(both.world.take_sent("tools/call").channel, DIED)
    answer = both.answer(channel)
    assert answer is not None
    assert answer["error"]["data"]["outcome"] == "unknown"


@KINDS
def test_a_question_is_seen_once_by_a_client_that_was_cut_off(up: Kind) -> None:
    """A question sent before a disconnect is seen exactly once after the stream is resumed. A disconnect cancels
    nothing."""
    both = pair("http", up)
    world = both.world
    channel, received = both.call()
    world.wait(6.0)
    primed = world.primed[channel].event_id
    world.answer(received, input_required_result({"a": ("roots/list", {})}))
    (asked,) = both.asked(channel)
    event = world.event_ids(channel)[-1]
    world.end(channel)
    assert not world.was_sent("notifications/cancelled")
    again = both.client.resume(primed)
    assert [frame["id"] for frame in both.asked(again)] == [asked["id"]]
    world.end(again)
    after = both.client.resume(event)
    assert both.asked(after) == []
    both.reply(asked["id"], REPLIES["roots/list"])
    world.answer(world.take_sent("tools/call"), DONE)
    assert both.answer(after) == {"jsonrpc": "2.0", "id": 1, "result": {"content": []}}


@KINDS
def test_a_client_that_takes_no_events_gets_an_answer(up: Kind) -> None:
    """A call whose question has no stream to go on ends with an answer."""
    both = pair("http", up, limits=Limits(held_timeout_s=30.0))
    world = both.world
    channel = both.client.send(
        b'{"jsonrpc":"2.0","id":1,"method":"prompts/get","params":{"name":"t"}}', takes_events=False
    )
    world.answer(world.take_sent("prompts/get"), input_required_result({"a": ("roots/list", {})}))
    world.wait(31.0)
    answer = both.answer(channel)
    assert answer is not None
    assert "error" in answer


@KINDS
def test_progress_follows_each_retry(up: Kind) -> None:
    """The progress token of the proxy is the number of the current request: tokens of earlier requests mean nothing.
    Progress that is not beyond the last one is dropped, since the client has one token for all."""
    both = pair("pipe", up)
    world = both.world
    channel, received = both.call("1", '{"name":"t","_meta":{"progressToken":"p"}}')

    def progress(sent: Any, value: float) -> list[Any]:
        if sent.post is not None and sent.channel not in world.opened:
            world.open(sent.channel, Connected())
            world.opened.add(sent.channel)
        params = json.dumps({"progressToken": sent.id, "progress": value})
        before = len(world.messages(channel))
        world.send(sent.channel, notification("notifications/progress", params))
        return [json.loads(m)["params"] for m in world.messages(channel)[before:]]

    assert received.frame["params"]["_meta"]["progressToken"] == received.id
    assert progress(received, 1) == [{"progressToken": "p", "progress": 1}]
    if received.post is None:
        world.answer(received, input_required_result(None, "s"))
    else:
        world.send(received.channel, result(str(received.id), input_required_result(None, "s")))
    assert progress(received, 2) == []
    world.wait(0.25)
    again = world.take_sent("tools/call")
    assert again.frame["params"]["_meta"]["progressToken"] == again.id
    assert progress(received, 3) == []
    assert progress(again, 0) == progress(again, 1) == []
    assert progress(again, 1.5) == [{"progressToken": "p", "progress": 1.5}]
    assert progress(again, 1.5) == []
    assert progress(again, 4) == [{"progressToken": "p", "progress": 4}]


# --- Roots that are the proxy's own -----------------------------------------------------------------------------------


def file_pair(up: Kind, declared: str) -> Pair:
    producer = ArtifactProducer(tools=("w",), output_locator=OutputLocator(mode=LocatorMode.NONE))
    return pair("pipe", up, declared=declared, producers=(producer,))


@pytest.mark.parametrize("declared", ["{}", '{"roots":{"listChanged":true}}'])
def test_with_files_the_proxy_answers_roots(declared: str) -> None:
    """The session's own folders are the roots. The client is not asked, whatever it has declared."""
    both = file_pair(Kind.PIPE, declared)
    channel, received = both.call()
    assert received.frame["params"]["_meta"][f"{META}clientCapabilities"]["roots"] == {}
    both.world.answer(received, input_required_result({"a": ("roots/list", {})}, "s"))
    again = both.world.take_sent("tools/call")
    (root,) = again.frame["params"]["inputResponses"]["a"]["roots"][:1]
    assert root["uri"].startswith("file:///w/")
    assert both.asked(channel) == []


def test_with_files_other_questions_wait_for_the_client() -> None:
    """Roots are known at once. The retry waits for all answers."""
    both = file_pair(Kind.PIPE, '{"elicitation":{}}')
    channel, received = both.call()
    both.world.answer(received, input_required_result({"r": ("roots/list", {}), "e": ("elicitation/create", FORM)}))
    (asked,) = both.asked(channel)
    assert asked["method"] == "elicitation/create"
    assert not both.world.unread
    both.reply(asked["id"], '{"action":"decline"}')
    assert set(both.world.take_sent("tools/call").frame["params"]["inputResponses"]) == {"r", "e"}


def test_roots_are_not_cached() -> None:
    """After `roots/list_changed`, which a stateless server does not get, the next question asks for the roots again."""
    both = pair("pipe", Kind.PIPE)
    for number in (1, 2):
        channel, received = both.call(str(number))
        both.world.answer(received, input_required_result({"a": ("roots/list", {})}))
        assert len(both.asked(channel)) == number
        both.client.notify("notifications/roots/list_changed")
        assert not both.world.unread
        roots = f'{{"roots":[{{"uri":"file:///{number}"}}]}}'
        both.reply(both.asked(channel)[-1]["id"], roots)
        again = both.world.take_sent("tools/call")
        assert again.frame["params"]["inputResponses"]["a"] == json.loads(roots)
        both.world.answer(again, DONE)


# --- Clients without sessions -----------------------------------------------------------------------------------------


@KINDS
def test_between_stateless_peers_questions_pass_unchanged(up: Kind) -> None:
    """Questions, answers and state pass byte for byte: the client retries, not the proxy."""
    world = driver(modern_plan(up))
    client = new_client(world, "http", up.value)
    channel = modern_call(client, "1", "tools/call", '{"name":"t"}', declared='{"roots":{}}')
    discovered(world)
    raw = '{"resultType":"input_required","inputRequests":{"a":{"method":"roots/list"}},"requestState":"\\u0041"}'
    world.answer(_call(world), raw)
    assert world.messages(channel)[-1].endswith(b'"result":' + raw.encode() + b"}")
    params = '{"name":"t","inputResponses":{"a":{"roots":[]}},"requestState":"A"}'
    channel = modern_call(client, "2", "tools/call", params, declared='{"roots":{}}')
    received = _call(world)
    assert bare(received.frame["params"]) == json.loads(params)
    world.answer(received, DONE)
    assert world.only_message(channel)["result"] == {"resultType": "complete", "content": []}


def _call(world: Driver) -> Any:
    if world.was_sent("tools/list"):
        world.answer(world.take_sent("tools/list"), '{"resultType":"complete","tools":[]}')
    return world.take_sent("tools/call")
