"""A question of a server that waits for a call: who is asked, who is not, and how it ends."""

from __future__ import annotations

import json
from typing import Any

import pytest
from isthmus.core.base.effects import Headers, Note
from isthmus.core.base.errors import RemoteProtocolError
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Kind, Plan, ServerPlan
from isthmus.core.bridge.request_meta import Envelope
from isthmus.core.bridge.request_state import Seal
from isthmus.core.input_required.call_state import Stating
from isthmus.core.input_required.deferred_questions import Deferring
from isthmus.core.jsonrpc import envelope
from isthmus.core.jsonrpc.envelope import Frame
from isthmus.core.state.context import Desk
from isthmus.core.state.exchange import Exchange, ExchangeKey, Reply
from isthmus.core.state.session import Ask, Session
from isthmus.core.state.stream import Stream

ROOTS = b'{"roots":[{"uri":"file:///a"}]}'
ABLE, UNABLE = b'{"roots":{}}', b'{"sampling":{}}'
QUESTION = {"method": "roots/list"}


class Scene:
    """One session whose client can tell its roots, and all that comes of what is done: `said` to the server, `answered`
    to the client, and what is `asked` in the course of calls."""

    def __init__(self, capabilities: bytes = ABLE) -> None:
        plan = Plan(servers=(ServerPlan(id="s", kind=Kind.PIPE),))
        self.desk = Desk(plan, entropy=bytes, unix_at_zero=1000.0, limits=Limits(held_timeout_s=10.0))
        self.desk.now = 0.0
        stating = Stating(self.desk, Seal([b"k" * 32]), "o")
        self.deferring = Deferring(self.desk, stating, self)
        self.deferring.up = self
        self.deferring.parking = self
        self.session = Session(
            id="i", sid="sid", workspace="w", server="s", principal="", pipe=None, base_url="http://here"
        )
        self.session.is_stateless = True
        self.session.client = Envelope("2026-07-28", capabilities)
        self.said: list[tuple[bytes, Frame]] = []
        self.answered: list[tuple[Exchange, Any]] = []
        self.asked: list[tuple[bytes, bytes | None, Exchange | None]] = []

    def reply(self, session: Session, ask: Ask, answer: Frame, headers: Headers) -> None:
        assert session is self.session
        self.said.append((ask.id_raw, answer))

    def answer(self, session: Session, exchange: Exchange, message: bytes) -> None:
        self.answered.append((exchange, json.loads(message)["result"]))

    def ask(self, session: Session, ask: Ask, params: bytes | None, related: Exchange | None) -> None:
        self.asked.append((ask.id_raw, params, related))

    def take(self, id_raw: bytes = b'"q"', method: str = "roots/list", params: bytes | None = None) -> bool:
        return self.deferring.take(self.session, Ask(id_raw, None, method, 1, None), params)

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
        exchange.leg = None if capabilities is None else Envelope("2026-07-28", capabilities)
        return exchange

    def due(self) -> Any:
        return self.desk.timers.next_timeout()


CLAIMS: Any = None
"""They are not looked at: who comes back is known by its state."""


def test_a_call_is_answered_with_all_that_waits_and_brings_the_answers() -> None:
    scene = Scene()
    assert not scene.deferring.is_asking(scene.session)
    assert scene.take(b'"q"') and scene.take(b'"r"')
    assert scene.deferring.is_asking(scene.session)
    call = scene.call()
    assert scene.deferring.ask_first(scene.session, call)
    assert call.is_native
    ((answered, result),) = scene.answered
    assert answered is call
    assert result["inputRequests"] == {"r1": QUESTION, "r2": QUESTION}
    assert result["resultType"] == "input_required"
    scene.deferring.resume(scene.session, CLAIMS, {"r2": ROOTS, "r9": ROOTS})
    assert scene.said == [(b'"r"', Frame(result=ROOTS))]
    assert scene.deferring.is_asking(scene.session), "the other waits on"
    scene.deferring.resume(scene.session, CLAIMS, {"r1": ROOTS, "r2": ROOTS})
    assert scene.said[1:] == [(b'"q"', Frame(result=ROOTS))]
    assert not scene.deferring.is_asking(scene.session)
    assert not scene.session.asks
    assert scene.due() is None
    assert not scene.deferring.ask_first(scene.session, scene.call())


@pytest.mark.parametrize(
    ("method", "capabilities"),
    [
        ("tools/list", ABLE),
        ("tools/call", UNABLE),
        ("tools/call", b"{}"),
        ("tools/call", None),
    ],
)
def test_who_cannot_be_asked_with_a_request_is_not(method: str, capabilities: bytes | None) -> None:
    """It is no call, or its client can tell no roots with it, whatever an earlier one could; the question waits on."""
    scene = Scene()
    scene.take()
    call = scene.call(method, capabilities)
    assert not scene.deferring.ask_first(scene.session, call)
    assert not call.is_native
    scene.deferring.receive_sent(scene.session, call)
    assert not scene.answered and not scene.asked
    assert scene.deferring.is_asking(scene.session)
    assert len(scene.session.asks) == 1


@pytest.mark.parametrize("method", ["tools/call", "prompts/get", "resources/read"])
def test_a_call_that_went_up_before_takes_all_that_waits(method: str) -> None:
    scene = Scene()
    call = scene.call(method)
    scene.deferring.receive_sent(scene.session, call)
    assert not scene.asked, "nothing waits"
    scene.take(b'"q"')
    scene.take(b'"r"', params=b'{"_meta":{}}')
    scene.deferring.receive_sent(scene.session, call)
    assert scene.asked == [(b'"q"', None, call), (b'"r"', b'{"_meta":{}}', call)]
    assert not scene.deferring.is_asking(scene.session)
    assert not scene.session.asks
    assert scene.due() is None


@pytest.mark.parametrize("answer", [b"5", b"{}", b'{"roots":5}'])
def test_an_answer_of_another_form_changes_nothing(answer: bytes) -> None:
    scene = Scene()
    scene.take(b'"q"')
    scene.take(b'"r"')
    with pytest.raises(RemoteProtocolError):
        scene.deferring.resume(scene.session, CLAIMS, {"r1": ROOTS, "r2": answer})
    assert not scene.said
    assert len(scene.session.asks) == 2


def test_only_roots_wait_and_only_for_who_tells_them() -> None:
    form = b'{"message":"m","requestedSchema":{"type":"object","properties":{}}}'
    able = Scene(b'{"roots":{},"elicitation":{"form":{}}}')
    assert not able.take(method="elicitation/create", params=form)
    assert not Scene(UNABLE).take()
    assert not able.session.asks
    assert able.due() is None


def test_a_question_that_no_call_comes_for_is_given_up_in_time() -> None:
    scene = Scene()
    scene.take(b'"q"')
    assert scene.due().at == 10.0
    scene.deferring.handle_defer(scene.session, 1)
    ((id_raw, answer),) = scene.said
    assert id_raw == b'"q"'
    assert answer.result is None or b"roots" in answer.result
    (note,) = [effect for effect in scene.desk.out if isinstance(effect, Note)]
    assert (note.level, note.text, note.server) == ("info", "roots/list came, and no call after it to ask with", "s")
    assert not scene.deferring.is_asking(scene.session)


def test_what_is_withdrawn_or_whose_session_ends_waits_no_longer() -> None:
    scene = Scene()
    scene.take(b'"q"')
    scene.take(b'"r"')
    assert scene.deferring.withdraw(scene.session, 1)
    assert not scene.deferring.withdraw(scene.session, 1)
    assert not scene.deferring.withdraw(scene.session, 9)
    assert list(scene.session.asks) == [2]
    scene.session.asks.clear()
    scene.deferring.close_session(scene.session)
    assert scene.due() is None
    assert not scene.deferring.is_asking(scene.session)
    assert not scene.said, "nobody is there to tell"
