"""What is said when a server without sessions asks: how soon it may again, what it may not ask, how a call ends."""

from __future__ import annotations

import json
from typing import Any

import pytest
from driving import error
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import ArtifactProducer, Kind, LocatorMode, OutputLocator
from stateless_server import Pair, asking, pair

FORM: Any = {"message": "who?", "requestedSchema": {"type": "object", "properties": {"n": {"type": "string"}}}}
SAMPLE: Any = {"messages": [{"role": "user", "content": {"type": "text", "text": "hi"}}], "maxTokens": 5}
ASK: dict[str, Any] = {"elicitation/create": FORM, "sampling/createMessage": SAMPLE, "roots/list": {}}
ROOTS = ("roots/list", {})


def ended(both: Pair, channel: Any) -> tuple[str, Any]:
    """How a call ended: what its caller reads of it, and the code if it is an error."""
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
    ("refusal", "said"),
    [
        ('{"code":-1,"message":"never"}', "never"),
        ('{"code":-1,"message":""}', "no reason was given"),
    ],
)
def test_a_refusal_is_told_with_its_reason(refusal: str, said: str, question: str, method: str) -> None:
    """To the caller of a tool as its result; any other request has an error of its own."""
    both = pair()
    channel, heard = both.call(method=method)
    both.world.answer(heard, asking({"a": (question, ASK[question])}))
    (asked,) = both.asked(channel)
    both.client.say(error(json.dumps(asked["id"]), refusal))
    text = f"the server asked for {question}, which the client refused: {said}"
    found = ended(both, channel)
    assert found[0] == text
    assert (found[1] is None) is (method == "tools/call")
    assert both.world.engine.exchange_count == 0


@pytest.mark.parametrize("question", ["sampling/createMessage", "roots/list"])
@pytest.mark.parametrize("text", ["{}", "[]", '"yes"'])
def test_an_answer_of_another_shape_is_a_refusal(question: str, text: str) -> None:
    """The server never sees it."""
    both = pair()
    channel, heard = both.call()
    both.world.answer(heard, asking({"a": (question, ASK[question])}))
    (asked,) = both.asked(channel)
    both.reply(asked["id"], text)
    said, _ = ended(both, channel)
    assert said.startswith(f"the server asked for {question}, which the client refused: got an answer to {question}")
    assert not both.world.hears("tools/call")


@pytest.mark.parametrize("down", ["pipe", "http"])
def test_a_question_that_is_withdrawn_says_why(down: str) -> None:
    both = pair(down)
    channel, heard = both.call()
    both.world.answer(heard, asking({"a": ROOTS, "b": ("elicitation/create", FORM)}))
    asked = [frame["id"] for frame in both.asked(channel)]
    both.client.notify("notifications/cancelled", '{"requestId":1}')
    told = [frame for frame in both.world.frames(channel) if frame.get("method") == "notifications/cancelled"]
    assert [frame["params"] for frame in told] == [{"requestId": id, "reason": "the call is over"} for id in asked]


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_a_call_that_is_over_is_not_waited_with(is_cancelled: bool) -> None:
    """The pause before it is made again ends with it."""
    both = pair()
    _, heard = both.call()
    both.world.answer(heard, asking(None, "s"))
    if is_cancelled:
        both.client.notify("notifications/cancelled", '{"requestId":1}')
    whys = set()
    for _ in range(5):
        due = both.world.engine.next_timeout()
        if due is None:
            break
        whys.add(due.why)
        both.world.wait(max(0.0, due.at - both.world.now))
    assert ("request to be repeated" in whys) is not is_cancelled
    assert both.world.hears("tools/call") is not is_cancelled


def test_pauses_grow_up_to_their_bound() -> None:
    """Each is twice the one before; a question in between begins anew."""
    both = pair(limits=Limits(round_pause_s=1.0, round_pause_max_s=5.0))
    world = both.world
    channel, heard = both.call()
    for pause_s in (1.0, 2.0, 4.0, 5.0, 5.0):
        world.answer(heard, asking(None, "s"))
        world.wait(pause_s - 0.1)
        assert not world.hears("tools/call")
        world.wait(0.2)
        heard = world.hear("tools/call")
    world.answer(heard, asking({"a": ROOTS}))
    both.reply(both.asked(channel)[-1]["id"], '{"roots":[]}')
    world.answer(world.hear("tools/call"), asking(None, "s"))
    world.wait(1.1)
    assert world.hears("tools/call")


@pytest.mark.parametrize("method", ["tools/call", "resources/read"])
@pytest.mark.parametrize("most", [1, 2])
def test_after_so_many_rounds_it_is_given_up(method: str, most: int) -> None:
    both = pair(limits=Limits(rounds_max=most))
    channel, heard = both.call(method=method, params='{"name":"t","uri":"a:b"}')
    for _ in range(most):
        both.world.answer(heard, asking({"a": ROOTS}))
        both.reply(both.asked(channel)[-1]["id"], '{"roots":[]}')
        heard = both.world.hear(method)
    assert both.answer(channel) is None
    both.world.answer(heard, asking({"a": ROOTS}))
    said, code = ended(both, channel)
    assert said == f"the server asked {most} times and was not content: given up"
    assert (code is None) is (method == "tools/call")


@pytest.mark.parametrize("count", [2, 3])
def test_no_more_is_asked_at_once_than_a_client_can_be(count: int) -> None:
    both = pair(limits=Limits(asks_per_session_max=2))
    channel, heard = both.call()
    both.world.answer(heard, asking({f"q{number}": ROOTS for number in range(count)}))
    assert len(both.asked(channel)) == (2 if count == 2 else 0)
    if count == 3:
        said, code = ended(both, channel)
        assert said == (
            "the server asked what cannot be asked: got 3 questions at once, more than the client can be asked"
        )
        assert code == -32603


@pytest.mark.parametrize("has_files", [False, True])
@pytest.mark.parametrize("question", sorted(ASK))
def test_what_a_client_did_not_declare_it_is_not_asked(question: str, has_files: bool) -> None:
    """Roots are answered for it where they are folders of ours, and nothing else is."""
    producer = ArtifactProducer(tools=("w",), output_locator=OutputLocator(mode=LocatorMode.NONE))
    both = pair("pipe", Kind.PIPE, declared="{}", **({"producers": (producer,)} if has_files else {}))
    channel, heard = both.call()
    both.world.answer(heard, asking({"a": (question, ASK[question])}))
    assert both.asked(channel) == []
    if has_files and question == "roots/list":
        assert both.world.hears("tools/call")
        return
    said, code = ended(both, channel)
    assert said.startswith(f"the server asked what cannot be asked: got {question}, expected nothing that needs ")
    assert code == -32603
    assert not both.world.hears("tools/call")
