"""A server without sessions asks by ending the call; its client, which has a session, is asked while it waits."""

from __future__ import annotations

import json
from typing import Any

import pytest
from driving import Driver, driver, newcomer, notification, result
from hypothesis import given
from hypothesis import strategies as st
from isthmus.core.base.effects import Connected
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import ArtifactProducer, Kind, LocatorMode, OutputLocator
from stateless_server import (
    DIED,
    META,
    Pair,
    asking,
    bare,
    discovered,
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
def test_every_round_is_asked_and_brings_one_retry(
    script: list[tuple[dict[str, Any], str | None]], down: str, up: Kind, method: str, order: Any
) -> None:
    """The client sees the questions of each round, and the server a retry that differs from the first request in its
    id, in `_meta`, and in the answers and the state of that round only."""
    both = pair(down, up)
    params = {"name": "t", "uri": "a:b", "arguments": {"x": 1.0}}
    channel, heard = both.call("7", json.dumps(params), method)
    first = bare(heard.frame["params"])
    assert first == params
    numbers = {heard.id}
    told = 0
    for asked, state in script:
        both.world.answer(heard, asking(asked or None, state))
        seen = both.asked(channel)[told:]
        told += len(seen)
        assert [(frame["method"], frame.get("params")) for frame in seen] == list(asked.values())
        assert both.answer(channel) is None
        order.shuffle(seen)
        for index, frame in enumerate(seen):
            assert not both.world.heard, f"{len(seen) - index} answers are missing"
            both.reply(frame["id"], REPLIES[frame["method"]])
        both.world.wait(5.0 if not asked else 0.0)
        heard = both.world.hear(method)
        assert heard.id not in numbers
        numbers.add(heard.id)
        extra = {} if not asked else {"inputResponses": {k: json.loads(REPLIES[m]) for k, (m, _) in asked.items()}}
        extra |= {} if state is None else {"requestState": state}
        assert bare(heard.frame["params"]) == first | extra
    both.world.answer(
        heard, '{"resultType":"complete","content":[{"type":"text","text":"\\u00e9"}],"contents":[],"messages":[]}'
    )
    answer = both.answer(channel)
    assert answer is not None
    assert "resultType" not in answer["result"]
    assert answer["id"] == 7
    assert not both.world.heard


def test_params_travel_byte_for_byte_into_every_retry() -> None:
    """What nobody reads of a request is in each retry as the client wrote it; so is the server's state."""
    both = pair("pipe", Kind.PIPE)
    arguments = '"arguments":{"a":1.0,"b":1e2,"c":-0,"d":10000000000000000000000000000000000000000,"e":"\\u00e9"}'
    _, heard = both.call("1", f'{{"name":"t",{arguments}}}')
    state = '{"resultType":"input_required","requestState":"a\\u00e9\\/b\\ud83d\\ude00"}'
    both.world.answer(heard, state)
    both.world.wait(0.25)
    again = both.world.hear("tools/call").raw
    assert b'"requestState":"a\\u00e9\\/b\\ud83d\\ude00"' in again
    assert arguments.encode() in again


@pytest.mark.parametrize("count", [1, 6, 40])
def test_a_server_that_wants_only_to_be_asked_again_is_with_growing_pauses(count: int) -> None:
    """State-only results cause as many retries, at least 250 ms apart, doubled to 5 s, not bounded by their number."""
    both = pair("http", Kind.HTTP)
    channel, heard = both.call()
    pause = 0.25
    for number in range(count):
        both.world.answer(heard, asking(None, str(number)))
        both.world.wait(pause - 0.01)
        assert not both.world.hears("tools/call")
        both.world.wait(0.02)
        heard = both.world.hear("tools/call")
        assert heard.frame["params"]["requestState"] == str(number)
        pause = min(pause * 2, 5.0)
    both.world.answer(heard, DONE)
    assert both.answer(channel) == {"jsonrpc": "2.0", "id": 1, "result": {"content": []}}


def test_a_round_with_questions_makes_pauses_short_again() -> None:
    """Pauses grow while there is nothing but pauses."""
    both = pair("pipe", Kind.PIPE)
    channel, heard = both.call()
    for _ in range(4):
        both.world.answer(heard, asking(None, "s"))
        both.world.wait(5.0)
        heard = both.world.hear("tools/call")
    both.world.answer(heard, asking({"k": ("elicitation/create", FORM)}))
    both.reply(both.asked(channel)[-1]["id"], REPLIES["elicitation/create"])
    both.world.answer(both.world.hear("tools/call"), asking(None, "s"))
    both.world.wait(0.25)
    assert both.world.hears("tools/call")


@pytest.mark.parametrize("method", ["tools/call", "prompts/get", "resources/read"])
def test_rounds_are_bounded(method: str) -> None:
    """A server that asks without end is given up, and the client told: a tool's caller in a result it reads."""
    both = pair("pipe", Kind.PIPE, limits=Limits(rounds_max=3))
    channel, heard = both.call("1", '{"name":"t","uri":"a:b"}', method)
    for _ in range(3):
        both.world.answer(heard, asking({"k": ("roots/list", {})}))
        both.reply(both.asked(channel)[-1]["id"], REPLIES["roots/list"])
        heard = both.world.hear(method)
    both.world.answer(heard, asking({"k": ("roots/list", {})}))
    answer = both.answer(channel)
    assert answer is not None
    if method == "tools/call":
        assert answer["result"]["isError"] is True
    else:
        assert answer["error"]["code"] == -31006
    assert len(both.asked(channel)) == 3
    assert not both.world.heard


# --- What the client says ---------------------------------------------------------------------------------------------


@KINDS
@SIDES
@pytest.mark.parametrize("method", ["tools/call", "prompts/get", "resources/read"])
@pytest.mark.parametrize("question", ["sampling/createMessage", "roots/list"])
def test_a_refusal_ends_the_call(question: str, method: str, down: str, up: Kind) -> None:
    """There is no place for an error in a retry: the client gets one final answer, the server no retry, and no other
    question of the round stays open."""
    both = pair(down, up)
    channel, heard = both.call("1", '{"name":"t","uri":"a:b"}', method)
    both.world.answer(heard, asking({"a": (question, ASK[question]), "b": ("elicitation/create", FORM)}))
    refusing, other = both.asked(channel)
    both.client.say(b'{"jsonrpc":"2.0","id":%d,"error":{"code":-1,"message":"never"}}' % refusing["id"])
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
    assert not both.world.heard


@KINDS
def test_a_form_that_cannot_be_shown_counts_as_turned_away(up: Kind) -> None:
    """An error to an elicitation is the user's turning away: the server learns that, as {"action": "cancel"}."""
    both = pair("pipe", up)
    channel, heard = both.call()
    both.world.answer(heard, asking({"a": ("elicitation/create", FORM)}, "s"))
    (asked,) = both.asked(channel)
    both.client.say(b'{"jsonrpc":"2.0","id":%d,"error":{"code":-32603,"message":"no window"}}' % asked["id"])
    assert both.world.hear("tools/call").frame["params"]["inputResponses"] == {"a": {"action": "cancel"}}


def test_nobody_answers_for_too_long() -> None:
    """Each question has its time; then it counts as refused, and the call ends."""
    both = pair("pipe", Kind.PIPE, limits=Limits(ask_timeout_s=60.0))
    channel, heard = both.call()
    both.world.answer(heard, asking({"a": ("sampling/createMessage", SAMPLE)}))
    both.world.wait(59.0)
    assert both.answer(channel) is None
    both.world.wait(2.0)
    answer = both.answer(channel)
    assert answer is not None
    assert answer["result"]["isError"] is True
    both.reply(both.asked(channel)[0]["id"], REPLIES["sampling/createMessage"])
    assert not both.world.heard


@pytest.mark.parametrize("text", ["[]", '{"action":"maybe"}', '"yes"', "null", '{"content":{}}'])
def test_an_answer_that_is_none_never_reaches_the_server(text: str) -> None:
    """A form's answer that is not of its shape is a turning away."""
    both = pair("pipe", Kind.PIPE)
    channel, heard = both.call()
    both.world.answer(heard, asking({"a": ("elicitation/create", FORM)}))
    both.reply(both.asked(channel)[0]["id"], text)
    assert both.world.hear("tools/call").frame["params"]["inputResponses"] == {"a": {"action": "cancel"}}


@KINDS
def test_an_answer_counts_once(up: Kind) -> None:
    """Corner case 33: a second answer to a question, or one to a question nobody asked, changes nothing."""
    both = pair("pipe", up)
    channel, heard = both.call()
    both.world.answer(heard, asking({"a": ("elicitation/create", FORM), "b": ("roots/list", {})}))
    first, second = both.asked(channel)
    both.reply(first["id"], '{"action":"decline"}')
    both.reply(first["id"], REPLIES["elicitation/create"])
    both.reply(999, REPLIES["elicitation/create"])
    assert not both.world.heard
    both.reply(second["id"], REPLIES["roots/list"])
    responses = both.world.hear("tools/call").frame["params"]["inputResponses"]
    assert responses == {"a": {"action": "decline"}, "b": json.loads(REPLIES["roots/list"])}


# --- What the server may ask ------------------------------------------------------------------------------------------

UNASKABLE: dict[str, str] = {
    "nothing": '{"resultType":"input_required"}',
    "no object": '{"resultType":"input_required","inputRequests":[]}',
    "another method": asking({"a": ("ping", {})}),
    "a method of its own": asking({"a": ("vendor/ask", {})}),
    "one bad among good": asking({"a": ("roots/list", {}), "b": ("tools/list", {})}),
    "a state that is no text": '{"resultType":"input_required","requestState":1}',
    "a form without a message": asking({"a": ("elicitation/create", {"requestedSchema": {}})}),
}


@KINDS
@pytest.mark.parametrize("case", UNASKABLE)
def test_what_cannot_be_asked_fails_the_call(case: str, up: Kind) -> None:
    """A broken question is the server's fault: -32603, nothing asked, no retry."""
    both = pair("pipe", up)
    channel, heard = both.call()
    both.world.answer(heard, UNASKABLE[case])
    answer = both.answer(channel)
    assert answer is not None
    assert answer["error"]["code"] == -32603
    assert not both.asked(channel)
    both.world.wait(60.0)
    assert not both.world.heard


@pytest.mark.parametrize(
    "declared", ["{}", '{"elicitation":{}}', '{"sampling":{}}', '{"roots":{}}', '{"elicitation":{"url":{}}}']
)
@pytest.mark.parametrize("question", [*ASK, "url"])
def test_a_client_is_asked_only_what_it_declared(declared: str, question: str) -> None:
    """The client never sees a request for a capability it has not declared: its server broke the rule."""
    both = pair("pipe", Kind.PIPE, declared=declared)
    channel, heard = both.call()
    method, params = ("elicitation/create", PAGE) if question == "url" else (question, ASK[question])
    both.world.answer(heard, asking({"a": (method, params)}))
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
def test_only_three_requests_may_ask(method: str) -> None:
    """Corner case 35: `input_required` where no question is allowed is no result."""
    both = pair("pipe", Kind.PIPE)
    channel, heard = both.call("1", "{}", method)
    both.world.answer(heard, asking({"a": ("roots/list", {})}))
    answer = both.answer(channel)
    assert answer is not None
    assert answer["error"]["code"] == -32603
    assert not both.asked(channel)


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
@pytest.mark.parametrize("up", [Kind.PIPE, Kind.HTTP])
def test_no_client_with_a_session_sees_a_result_that_asks(revision: str, up: Kind) -> None:
    """No frame to it ever has the resultType `input_required` or `task`, or a key of the other era."""
    both = pair("pipe", up, revision=revision)
    channel, heard = both.call()
    both.world.answer(heard, asking({"a": ("roots/list", {}), "b": ("sampling/createMessage", SAMPLE)}, "s"))
    for frame in both.asked(channel):
        both.reply(frame["id"], REPLIES[frame["method"]])
    both.world.answer(both.world.hear("tools/call"), DONE)
    said = b"".join(both.world.messages(channel))
    assert b"resultType" not in said
    assert b"requestState" not in said
    assert META.encode() not in said


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


def test_a_question_is_shown_as_the_client_s_revision_has_it() -> None:
    """2025-11-25 sees the whole form; 2025-06-18 one of plain fields, whose answer is put together again."""
    both = pair("pipe", Kind.PIPE, revision="2025-11-25")
    channel, heard = both.call()
    both.world.answer(heard, asking({"a": ("elicitation/create", CHOICES)}))
    assert both.asked(channel)[0]["params"] == CHOICES

    both = pair("pipe", Kind.PIPE, revision="2025-06-18", declared='{"elicitation":{}}')
    channel, heard = both.call()
    both.world.answer(heard, asking({"a": ("elicitation/create", CHOICES)}))
    shown = both.asked(channel)[0]["params"]
    assert "mode" not in shown
    properties = shown["requestedSchema"]["properties"]
    assert all(field["type"] in ("string", "number", "integer", "boolean") for field in properties.values())
    chosen = {key: True for key in properties if key not in ("one", "name")}
    assert len(chosen) == 3
    content = dict(zip(chosen, [True, False, True], strict=True)) | {"one": "a"}
    both.reply(both.asked(channel)[0]["id"], json.dumps({"action": "accept", "content": content}))
    given_back = both.world.hear("tools/call").frame["params"]["inputResponses"]["a"]
    assert given_back["content"] == {"one": "a", "many": ["x", "z"]}


# --- Pages to visit ---------------------------------------------------------------------------------------------------


@KINDS
@SIDES
@pytest.mark.parametrize("action", ["accept", "decline", "cancel"])
def test_a_visit_is_said_to_be_over_once_the_server_goes_on(action: str, down: str, up: Kind) -> None:
    """Per page to visit the client hears at most one `complete`, of the id it saw, only after "accept", and only when
    the server has taken the retry."""
    both = pair(down, up)
    channel, heard = both.call()
    both.world.answer(heard, asking({"a": ("elicitation/create", PAGE)}, "s"))
    (asked,) = both.asked(channel)
    visit = asked["params"]["elicitationId"]
    assert {**PAGE, "elicitationId": visit} == asked["params"]
    both.reply(asked["id"], json.dumps({"action": action}))

    def completed() -> list[str]:
        frames = both.world.frames(channel)
        return [f["params"]["elicitationId"] for f in frames if f.get("method") == "notifications/elicitation/complete"]

    assert completed() == []
    both.world.answer(both.world.hear("tools/call"), asking(None, "t"))
    assert completed() == ([visit] if action == "accept" else [])
    both.world.wait(1.0)
    both.world.answer(both.world.hear("tools/call"), DONE)
    assert completed() == ([visit] if action == "accept" else [])
    assert both.answer(channel) is not None


def test_word_of_an_unknown_visit_is_not_passed_on() -> None:
    """A server without sessions has no such notification: nothing comes of it."""
    both = pair("pipe", Kind.PIPE)
    channel, heard = both.call()
    both.world.say(heard.channel, notification("notifications/elicitation/complete", '{"elicitationId":"e"}'))
    assert both.world.messages(channel) == []


# --- Interruptions ----------------------------------------------------------------------------------------------------


def cancel(both: Pair, id_raw: str = "1") -> None:
    both.client.notify("notifications/cancelled", f'{{"requestId":{id_raw},"reason":"enough"}}')


@KINDS
@SIDES
@pytest.mark.parametrize("stage", ["sent", "asking", "half answered", "pausing", "retried"])
def test_a_cancelled_call_is_over_at_every_stage(stage: str, down: str, up: Kind) -> None:
    """After a cancellation nothing more is said of the call: not to the client, but that a question is withdrawn; and
    to the server only what it must know of a request that it works on."""
    both = pair(down, up)
    world = both.world
    channel, heard = both.call()
    if stage in ("asking", "half answered", "retried"):
        world.answer(heard, asking({"a": ("elicitation/create", FORM), "b": ("roots/list", {})}))
        first, second = both.asked(channel)
        if stage != "asking":
            both.reply(first["id"], REPLIES["elicitation/create"])
        if stage == "retried":
            both.reply(second["id"], REPLIES["roots/list"])
            heard = world.hear("tools/call")
    elif stage == "pausing":
        world.answer(heard, asking(None, "s"))
    before = len(both.asked(channel))
    cancel(both)
    is_running = stage in ("sent", "retried")
    if up is Kind.HTTP:
        assert (heard.channel in world.closed) is is_running, "closing the stream is the cancellation"
    else:
        assert world.hears("notifications/cancelled") is is_running
        if is_running:
            assert world.hear("notifications/cancelled").frame["params"]["requestId"] == heard.id
            world.answer(heard, DONE)
    for frame in both.asked(channel)[:before]:
        both.reply(frame["id"], REPLIES[frame["method"]])
    world.wait(60.0)
    assert not [h for h in world.heard if h.frame.get("method") == "tools/call"]
    assert all("result" not in frame for frame in world.frames(channel))
    cancelled = [f for f in world.frames(channel) if f.get("method") == "notifications/cancelled"]
    assert len(cancelled) == {"asking": 2, "half answered": 1}.get(stage, 0)
    assert world.engine.exchange_count == 0


@SIDES
@KINDS
@pytest.mark.parametrize("stage", ["sent", "asking", "pausing"])
def test_a_client_that_leaves_for_good_leaves_nothing_behind(stage: str, down: str, up: Kind) -> None:
    """The session ends with all that was asked in it, at every stage."""
    both = pair(down, up)
    world = both.world
    _channel, heard = both.call()
    if stage != "sent":
        world.answer(heard, asking({"a": ("roots/list", {})}) if stage == "asking" else asking(None, "s"))
    if both.client.pipe is not None:
        world.end(both.client.pipe)
    else:
        both.client.delete()
    world.wait(120.0)
    assert not [h for h in world.heard if h.frame.get("method") == "tools/call"]
    assert world.engine.session_count == 0
    assert world.engine.exchange_count == 0


@pytest.mark.parametrize("stage", ["asking", "pausing"])
@KINDS
def test_a_server_that_is_lost_between_two_rounds_is_asked_again_when_it_is_back(up: Kind, stage: str) -> None:
    """Between rounds the call is with the client, and its state in the retry: nothing of it is lost with a process."""
    both = pair("pipe", up)
    world = both.world
    channel, heard = both.call()
    world.answer(heard, asking({"a": ("roots/list", {})} if stage == "asking" else None, "s"))
    if up is Kind.PIPE:
        world.end(heard.channel, DIED)
    assert both.answer(channel) is None
    if stage == "asking":
        both.reply(both.asked(channel)[0]["id"], REPLIES["roots/list"])
    world.wait(0.25)
    if up is Kind.PIPE:
        discovered(world)
    again = world.hear("tools/call")
    assert again.frame["params"]["requestState"] == "s"
    assert ("inputResponses" in again.frame["params"]) is (stage == "asking")
    world.answer(again, DONE)
    assert both.answer(channel) == {"jsonrpc": "2.0", "id": 1, "result": {"content": []}}


def test_a_server_that_dies_while_it_works_on_a_retry_may_have_run_it() -> None:
    """A retry is a call like any other: its fate is unknown, and the client is told."""
    both = pair("pipe", Kind.PIPE)
    channel, heard = both.call()
    both.world.answer(heard, asking({"a": ("roots/list", {})}))
    both.reply(both.asked(channel)[0]["id"], REPLIES["roots/list"])
    both.world.end(both.world.hear("tools/call").channel, DIED)
    answer = both.answer(channel)
    assert answer is not None
    assert answer["error"]["data"]["outcome"] == "unknown"


@KINDS
def test_a_question_is_seen_once_by_a_client_that_was_cut_off(up: Kind) -> None:
    """A question sent before a disconnect is seen exactly once after the stream is resumed; to hang up is not to
    cancel."""
    both = pair("http", up)
    world = both.world
    channel, heard = both.call()
    world.wait(6.0)
    primed = world.primed[channel].event_id
    world.answer(heard, asking({"a": ("roots/list", {})}))
    (asked,) = both.asked(channel)
    event = world.event_ids(channel)[-1]
    world.end(channel)
    assert not world.hears("notifications/cancelled")
    again = both.client.resume(primed)
    assert [frame["id"] for frame in both.asked(again)] == [asked["id"]]
    world.end(again)
    after = both.client.resume(event)
    assert both.asked(after) == []
    both.reply(asked["id"], REPLIES["roots/list"])
    world.answer(world.hear("tools/call"), DONE)
    assert both.answer(after) == {"jsonrpc": "2.0", "id": 1, "result": {"content": []}}


@KINDS
def test_a_client_that_takes_no_events_is_not_left_hanging(up: Kind) -> None:
    """Who cannot be asked on the stream of its call, and has no other open, is answered all the same."""
    both = pair("http", up, limits=Limits(held_timeout_s=30.0))
    world = both.world
    channel = both.client.say(
        b'{"jsonrpc":"2.0","id":1,"method":"prompts/get","params":{"name":"t"}}', takes_events=False
    )
    world.answer(world.hear("prompts/get"), asking({"a": ("roots/list", {})}))
    world.wait(31.0)
    answer = both.answer(channel)
    assert answer is not None
    assert "error" in answer


@KINDS
def test_progress_follows_each_retry(up: Kind) -> None:
    """A token of ours is the number of the leg that is under way: those of finished legs mean nothing any more. What a
    leg says before it is further than the one before was is no news to the client, whose token is one."""
    both = pair("pipe", up)
    world = both.world
    channel, heard = both.call("1", '{"name":"t","_meta":{"progressToken":"p"}}')

    def progress(leg: Any, value: float) -> list[Any]:
        if leg.post is not None and leg.channel not in world.opened:
            world.open(leg.channel, Connected())
            world.opened.add(leg.channel)
        params = json.dumps({"progressToken": leg.id, "progress": value})
        before = len(world.messages(channel))
        world.say(leg.channel, notification("notifications/progress", params))
        return [json.loads(m)["params"] for m in world.messages(channel)[before:]]

    assert heard.frame["params"]["_meta"]["progressToken"] == heard.id
    assert progress(heard, 1) == [{"progressToken": "p", "progress": 1}]
    if heard.post is None:
        world.answer(heard, asking(None, "s"))
    else:
        world.say(heard.channel, result(str(heard.id), asking(None, "s")))
    assert progress(heard, 2) == []
    world.wait(0.25)
    again = world.hear("tools/call")
    assert again.frame["params"]["_meta"]["progressToken"] == again.id
    assert progress(heard, 3) == []
    assert progress(again, 0) == progress(again, 1) == []
    assert progress(again, 1.5) == [{"progressToken": "p", "progress": 1.5}]
    assert progress(again, 1.5) == []
    assert progress(again, 4) == [{"progressToken": "p", "progress": 4}]


# --- Roots that are the proxy's own -----------------------------------------------------------------------------------


def file_pair(up: Kind, declared: str) -> Pair:
    producer = ArtifactProducer(tools=("w",), output_locator=OutputLocator(mode=LocatorMode.NONE))
    return pair("pipe", up, declared=declared, producers=(producer,))


@pytest.mark.parametrize("declared", ["{}", '{"roots":{"listChanged":true}}'])
def test_with_files_roots_are_answered_here(declared: str) -> None:
    """The session's own folders are the roots: the client is not asked, whatever it has declared."""
    both = file_pair(Kind.PIPE, declared)
    channel, heard = both.call()
    assert heard.frame["params"]["_meta"][f"{META}clientCapabilities"]["roots"] == {}
    both.world.answer(heard, asking({"a": ("roots/list", {})}, "s"))
    again = both.world.hear("tools/call")
    (root,) = again.frame["params"]["inputResponses"]["a"]["roots"][:1]
    assert root["uri"].startswith("file:///w/")
    assert both.asked(channel) == []


def test_with_files_other_questions_wait_for_the_client() -> None:
    """Roots are known at once; the retry waits for all."""
    both = file_pair(Kind.PIPE, '{"elicitation":{}}')
    channel, heard = both.call()
    both.world.answer(heard, asking({"r": ("roots/list", {}), "e": ("elicitation/create", FORM)}))
    (asked,) = both.asked(channel)
    assert asked["method"] == "elicitation/create"
    assert not both.world.heard
    both.reply(asked["id"], '{"action":"decline"}')
    assert set(both.world.hear("tools/call").frame["params"]["inputResponses"]) == {"r", "e"}


def test_roots_are_asked_anew_each_time() -> None:
    """No memo of roots is kept: after roots/list_changed, which no such server hears of, the next question asks."""
    both = pair("pipe", Kind.PIPE)
    for number in (1, 2):
        channel, heard = both.call(str(number))
        both.world.answer(heard, asking({"a": ("roots/list", {})}))
        assert len(both.asked(channel)) == number
        both.client.notify("notifications/roots/list_changed")
        assert not both.world.heard
        roots = f'{{"roots":[{{"uri":"file:///{number}"}}]}}'
        both.reply(both.asked(channel)[-1]["id"], roots)
        again = both.world.hear("tools/call")
        assert again.frame["params"]["inputResponses"]["a"] == json.loads(roots)
        both.world.answer(again, DONE)


# --- Clients without sessions -----------------------------------------------------------------------------------------


@KINDS
def test_between_two_without_sessions_a_question_passes_as_it_is(up: Kind) -> None:
    """Questions, answers and state pass byte for byte: the client retries, not the proxy."""
    world = driver(modern_plan(up))
    client = newcomer(world, "http", up.value)
    channel = modern_call(client, "1", "tools/call", '{"name":"t"}', declared='{"roots":{}}')
    discovered(world)
    raw = '{"resultType":"input_required","inputRequests":{"a":{"method":"roots/list"}},"requestState":"\\u0041"}'
    world.answer(_call(world), raw)
    assert world.messages(channel)[-1].endswith(b'"result":' + raw.encode() + b"}")
    params = '{"name":"t","inputResponses":{"a":{"roots":[]}},"requestState":"A"}'
    channel = modern_call(client, "2", "tools/call", params, declared='{"roots":{}}')
    heard = _call(world)
    assert bare(heard.frame["params"]) == json.loads(params)
    world.answer(heard, DONE)
    assert world.said(channel)["result"] == {"resultType": "complete", "content": []}


def _call(world: Driver) -> Any:
    if world.hears("tools/list"):
        world.answer(world.hear("tools/list"), '{"resultType":"complete","tools":[]}')
    return world.hear("tools/call")
