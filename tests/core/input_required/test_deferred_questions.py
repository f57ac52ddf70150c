"""Tests of deferred questions, which wait for a call of the client: which calls they are asked with, and how they
end."""

from __future__ import annotations

import json
from typing import Any

import pytest
from isthmus.core.base.effects import Note
from isthmus.core.base.errors import RemoteProtocolError
from isthmus.core.base.events import Headers
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Kind, Plan, ServerPlan
from isthmus.core.bridge.request_meta import RequestMeta
from isthmus.core.bridge.request_state import RequestStateSigner
from isthmus.core.input_required.call_state import CallState
from isthmus.core.input_required.deferred_questions import DeferredQuestions
from isthmus.core.jsonrpc import envelope
from isthmus.core.jsonrpc.envelope import Frame
from isthmus.core.state.context import Context
from isthmus.core.state.exchange import Exchange, ExchangeKey, Reply
from isthmus.core.state.session import PendingQuestion, Session
from isthmus.core.state.stream import Stream
from parts import lone_session

ROOTS = b'{"roots":[{"uri":"file:///a"}]}'
ABLE, UNABLE = b'{"roots":{}}', b'{"sampling":{}}'
QUESTION = {"method": "roots/list"}


class Scene:
    """A session whose client can list its roots, and a record of the effects: `replies` to the server, `answered` calls
    of the client, and questions `asked` during calls."""

    def __init__(self, capabilities: bytes = ABLE) -> None:
        plan = Plan(servers=(ServerPlan(id="s", kind=Kind.PIPE),))
        self.context = Context(plan, entropy=bytes, unix_at_zero=1000.0, limits=Limits(held_timeout_s=10.0))
        self.context.now = 0.0
        stating = CallState(self.context, RequestStateSigner([b"k" * 32]), "o")
        self.deferred_questions = DeferredQuestions(self.context, stating, self)
        self.session = lone_session("sid", principal="", base_url="http://here", router=self)
        self.session.is_stateless = True
        self.session.client = RequestMeta("2026-07-28", capabilities)
        self.replies: list[tuple[bytes, Frame]] = []
        self.answered: list[tuple[Exchange, Any]] = []
        self.asked: list[tuple[bytes, bytes | None, Exchange | None]] = []

    def reply(self, session: Session, question: PendingQuestion, answer: Frame, headers: Headers) -> None:
        assert session is self.session
        self.replies.append((question.id_raw, answer))

    def answer(self, session: Session, exchange: Exchange, message: bytes) -> None:
        self.answered.append((exchange, json.loads(message)["result"]))

    def receive_sent(self, exchange: Exchange) -> None:
        for question, params in self.deferred_questions.take_waiting(self.session, exchange):
            self.asked.append((question.id_raw, params, exchange))

    def take(self, id_raw: bytes = b'"q"', method: str = "roots/list", params: bytes | None = None) -> bool:
        return self.deferred_questions.take(self.session, PendingQuestion(id_raw, None, method, 1, None), params)

    def call(self, method: str = "tools/call", capabilities: bytes | None = ABLE) -> Exchange:
        reply = Reply(Stream(ChannelId(1)), ends_channel=True, can_stream=False)
        exchange = Exchange(
            ExchangeKey(ChannelId(1), 1),
            reply,
            sid="sid",
            id_raw=b"7",
            id_key=envelope.id_key(b"7") or ("number", 7),
            method=method,
            params=b'{"name":"x"}',
            token_raw=None,
        )
        exchange.request = None if capabilities is None else RequestMeta("2026-07-28", capabilities)
        return exchange

    def due(self) -> Any:
        return self.context.timers.next_timeout()


CLAIMS: Any = None
"""Claims are not looked at: a resumed call is known by its state."""


def test_a_call_is_answered_with_all_deferred_questions_and_brings_the_answers() -> None:
    scene = Scene()
    assert not scene.deferred_questions.is_asking(scene.session)
    assert scene.take(b'"q"') and scene.take(b'"r"')
    assert scene.deferred_questions.is_asking(scene.session)
    call = scene.call()
    assert scene.deferred_questions.ask_first(scene.session, call)
    assert call.is_native
    ((answered, result),) = scene.answered
    assert answered is call
    assert result["inputRequests"] == {"r1": QUESTION, "r2": QUESTION}
    assert result["resultType"] == "input_required"
    scene.deferred_questions.resume(scene.session, CLAIMS, {"r2": ROOTS, "r9": ROOTS})
    assert scene.replies == [(b'"r"', Frame(result=ROOTS))]
    assert scene.deferred_questions.is_asking(scene.session), "the other waits on"
    scene.deferred_questions.resume(scene.session, CLAIMS, {"r1": ROOTS, "r2": ROOTS})
    assert scene.replies[1:] == [(b'"q"', Frame(result=ROOTS))]
    assert not scene.deferred_questions.is_asking(scene.session)
    assert not scene.session.questions
    assert scene.due() is None
    assert not scene.deferred_questions.ask_first(scene.session, scene.call())


@pytest.mark.parametrize(
    ("method", "capabilities"),
    [
        ("tools/list", ABLE),
        ("tools/call", UNABLE),
        ("tools/call", b"{}"),
        ("tools/call", None),
    ],
)
def test_a_request_that_cannot_carry_the_question_does_not(method: str, capabilities: bytes | None) -> None:
    """The request is no call, or declares no roots, whatever an earlier one declared. The question waits on."""
    scene = Scene()
    scene.take()
    call = scene.call(method, capabilities)
    assert not scene.deferred_questions.ask_first(scene.session, call)
    assert not call.is_native
    scene.receive_sent(call)
    assert not scene.answered and not scene.asked
    assert scene.deferred_questions.is_asking(scene.session)
    assert len(scene.session.questions) == 1


@pytest.mark.parametrize("method", ["tools/call", "prompts/get", "resources/read"])
def test_a_call_that_was_sent_takes_all_deferred_questions(method: str) -> None:
    scene = Scene()
    call = scene.call(method)
    scene.receive_sent(call)
    assert not scene.asked, "nothing waits"
    scene.take(b'"q"')
    scene.take(b'"r"', params=b'{"_meta":{}}')
    scene.receive_sent(call)
    assert scene.asked == [(b'"q"', None, call), (b'"r"', b'{"_meta":{}}', call)]
    assert not scene.deferred_questions.is_asking(scene.session)
    assert not scene.session.questions
    assert scene.due() is None


@pytest.mark.parametrize("answer", [b"5", b"{}", b'{"roots":5}'])
def test_an_invalid_answer_changes_nothing(answer: bytes) -> None:
    scene = Scene()
    scene.take(b'"q"')
    scene.take(b'"r"')
    with pytest.raises(RemoteProtocolError):
        scene.deferred_questions.resume(scene.session, CLAIMS, {"r1": ROOTS, "r2": answer})
    assert not scene.replies
    assert len(scene.session.questions) == 2


def test_only_roots_questions_are_deferred_and_only_if_the_client_has_roots() -> None:
    form = b'{"message":"m","requestedSchema":{"type":"object","properties":{}}}'
    able = Scene(b'{"roots":{},"elicitation":{"form":{}}}')
    assert not able.take(method="elicitation/create", params=form)
    assert not Scene(UNABLE).take()
    assert not able.session.questions
    assert able.due() is None


def test_a_question_without_a_call_is_given_up_in_time() -> None:
    scene = Scene()
    scene.take(b'"q"')
    assert scene.due().at == 10.0
    scene.deferred_questions.handle_defer(scene.session, 1)
    ((id_raw, answer),) = scene.replies
    assert id_raw == b'"q"'
    assert answer.result is None or b"roots" in answer.result
    (note,) = [effect for effect in scene.context.out if isinstance(effect, Note)]
    assert (note.level, note.text, note.server) == ("info", "roots/list came, and no call after it to ask with", "s")
    assert not scene.deferred_questions.is_asking(scene.session)


def test_a_withdrawn_question_or_an_ended_session_leaves_nothing() -> None:
    scene = Scene()
    scene.take(b'"q"')
    scene.take(b'"r"')
    assert scene.deferred_questions.withdraw(scene.session, 1)
    assert not scene.deferred_questions.withdraw(scene.session, 1)
    assert not scene.deferred_questions.withdraw(scene.session, 9)
    assert list(scene.session.questions) == [2]
    scene.session.questions.clear()
    scene.deferred_questions.close_session(scene.session)
    assert scene.due() is None
    assert not scene.deferred_questions.is_asking(scene.session)
    assert not scene.replies, "the server gets no answer"
