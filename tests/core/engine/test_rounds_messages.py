"""Tests of the texts, pauses and bounds of `input_required` rounds with a stateless server."""

from __future__ import annotations

import json
from typing import Any

import pytest
from driving import error
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import ArtifactProducer, Kind, LocatorMode, OutputLocator
from stateless_server import Pair, input_required_result, pair

FORM: Any = {"message": "who?", "requestedSchema": {"type": "object", "properties": {"n": {"type": "string"}}}}
SAMPLE: Any = {"messages": [{"role": "user", "content": {"type": "text", "text": "hi"}}], "maxTokens": 5}
ASK: dict[str, Any] = {"elicitation/create": FORM, "sampling/createMessage": SAMPLE, "roots/list": {}}
ROOTS = ("roots/list", {})


def ended(both: Pair, channel: Any) -> tuple[str, Any]:
    """Returns the text that ended a call, and the code if it is an error."""
    answer = both.answer(channel)
    assert answer is not None
    if "error" in answer:
        return answer["error"]["message"], answer["error"]["code"]
    assert answer["result"]["isError"] is True
    (block,) = answer["result"]["content"]
    return block["text"], None


@pytest.mark.parametrize("method", ["tools/call", "prompts/get"])
@pytest.mark.parametrize("question", ["sampling/createMessage", "roots/list"])
@pytest.mark.parametrize(
    ("refusal", "reason"),
    [
        ('{"code":-1,"message":"never"}', "never"),
        ('{"code":-1,"message":""}', "no reason was given"),
    ],
)
def test_a_refusal_names_its_reason(refusal: str, reason: str, question: str, method: str) -> None:
    """A tool call gets the reason as its result, any other request as an error."""
    both = pair()
    channel, received = both.call(method=method)
    both.world.answer(received, input_required_result({"a": (question, ASK[question])}))
    (asked,) = both.asked(channel)
    both.client.send(error(json.dumps(asked["id"]), refusal))
    text = f"the server asked for {question}, which the client refused: {reason}"
    found = ended(both, channel)
    assert found[0] == text
    assert (found[1] is None) is (method == "tools/call")
    assert both.world.engine.exchange_count == 0


@pytest.mark.parametrize("question", ["sampling/createMessage", "roots/list"])
@pytest.mark.parametrize("text", ["{}", "[]", '"yes"'])
def test_an_answer_of_another_shape_is_a_refusal(question: str, text: str) -> None:
    """The server never gets the answer."""
    both = pair()
    channel, received = both.call()
    both.world.answer(received, input_required_result({"a": (question, ASK[question])}))
    (asked,) = both.asked(channel)
    both.reply(asked["id"], text)
    message, _ = ended(both, channel)
    assert message.startswith(f"the server asked for {question}, which the client refused: got an answer to {question}")
    assert not both.world.was_sent("tools/call")


@pytest.mark.parametrize("down", ["pipe", "http"])
def test_a_withdrawn_question_has_a_reason(down: str) -> None:
    both = pair(down)
    channel, received = both.call()
    both.world.answer(received, input_required_result({"a": ROOTS, "b": ("elicitation/create", FORM)}))
    asked = [frame["id"] for frame in both.asked(channel)]
    both.client.notify("notifications/cancelled", '{"requestId":1}')
    cancelled = [frame for frame in both.world.frames(channel) if frame.get("method") == "notifications/cancelled"]
    assert [frame["params"] for frame in cancelled] == [{"requestId": id, "reason": "the call is over"} for id in asked]


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_the_pause_before_a_retry_ends_with_its_call(is_cancelled: bool) -> None:
    """The pause before the retry ends with the call."""
    both = pair()
    _, received = both.call()
    both.world.answer(received, input_required_result(None, "s"))
    if is_cancelled:
        both.client.notify("notifications/cancelled", '{"requestId":1}')
    reasons = set()
    for _ in range(5):
        due = both.world.engine.next_timeout()
        if due is None:
            break
        reasons.add(due.why)
        both.world.wait(max(0.0, due.at - both.world.now))
    assert ("request to be repeated" in reasons) is not is_cancelled
    assert both.world.was_sent("tools/call") is not is_cancelled


def test_pauses_grow_up_to_their_bound() -> None:
    """Each pause is twice the one before. A question in between resets them."""
    both = pair(limits=Limits(round_pause_s=1.0, round_pause_max_s=5.0))
    world = both.world
    channel, received = both.call()
    for pause_s in (1.0, 2.0, 4.0, 5.0, 5.0):
        world.answer(received, input_required_result(None, "s"))
        world.wait(pause_s - 0.1)
        assert not world.was_sent("tools/call")
        world.wait(0.2)
        received = world.take_sent("tools/call")
    world.answer(received, input_required_result({"a": ROOTS}))
    both.reply(both.asked(channel)[-1]["id"], '{"roots":[]}')
    world.answer(world.take_sent("tools/call"), input_required_result(None, "s"))
    world.wait(1.1)
    assert world.was_sent("tools/call")


@pytest.mark.parametrize("method", ["tools/call", "resources/read"])
@pytest.mark.parametrize("most", [1, 2])
def test_a_call_is_given_up_after_the_limit_of_rounds(method: str, most: int) -> None:
    both = pair(limits=Limits(rounds_max=most))
    channel, received = both.call(method=method, params='{"name":"t","uri":"a:b"}')
    for _ in range(most):
        both.world.answer(received, input_required_result({"a": ROOTS}))
        both.reply(both.asked(channel)[-1]["id"], '{"roots":[]}')
        received = both.world.take_sent(method)
    assert both.answer(channel) is None
    both.world.answer(received, input_required_result({"a": ROOTS}))
    message, code = ended(both, channel)
    assert message == f"the server asked {most} times and was not content: given up"
    assert (code is None) is (method == "tools/call")


@pytest.mark.parametrize("count", [2, 3])
def test_a_round_has_a_limit_of_questions(count: int) -> None:
    both = pair(limits=Limits(questions_per_session_max=2))
    channel, received = both.call()
    both.world.answer(received, input_required_result({f"q{number}": ROOTS for number in range(count)}))
    assert len(both.asked(channel)) == (2 if count == 2 else 0)
    if count == 3:
        message, code = ended(both, channel)
        assert message == (
            "the server asked what cannot be asked: got 3 questions at once, more than the client can be asked"
        )
        assert code == -32603


@pytest.mark.parametrize("has_files", [False, True])
@pytest.mark.parametrize("question", sorted(ASK))
def test_a_question_that_a_client_did_not_declare_ends_the_call(question: str, has_files: bool) -> None:
    """Only `roots/list` is answered for the client, if the folders are the proxy's own."""
    producer = ArtifactProducer(tools=("w",), output_locator=OutputLocator(mode=LocatorMode.NONE))
    both = pair("pipe", Kind.PIPE, declared="{}", **({"producers": (producer,)} if has_files else {}))
    channel, received = both.call()
    both.world.answer(received, input_required_result({"a": (question, ASK[question])}))
    assert both.asked(channel) == []
    if has_files and question == "roots/list":
        assert both.world.was_sent("tools/call")
        return
    message, code = ended(both, channel)
    assert message.startswith(f"the server asked what cannot be asked: got {question}, expected nothing that needs ")
    assert code == -32603
    assert not both.world.was_sent("tools/call")
