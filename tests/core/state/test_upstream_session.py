"""A session with a server, made again after each failure: its pauses, and the state that is replayed to it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from isthmus.core.base.errors import LocalProtocolError, RemoteProtocolError
from isthmus.core.base.limits import Limits
from isthmus.core.state.upstream_session import TRANSITIONS, UpstreamSession, UpstreamSessionInput, UpstreamSessionState

RESULT = b'{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"logging":{}},"serverInfo":{}}'


def upstream(limits: Limits | None = None) -> UpstreamSession:
    return UpstreamSession(b"{}", limits or Limits())


def start(machine: UpstreamSession, result: bytes = RESULT, session: str | None = None) -> None:
    """Takes the machine from IDLE to READY."""
    machine.receive_need()
    machine.step(UpstreamSessionInput.CONNECTED)
    machine.receive_head(session)
    machine.receive_initialized(result)
    machine.step(UpstreamSessionInput.CONFIRMED)
    machine.step(UpstreamSessionInput.LISTENED)
    machine.receive_replayed(0.0)
    assert machine.state is UpstreamSessionState.READY


@pytest.mark.parametrize(("first_s", "max_s"), [(1.0, 30.0), (0.5, 0.7), (2.0, 1e9)])
def test_the_pause_doubles_up_to_its_bound(first_s: float, max_s: float) -> None:
    """Each failure in a row doubles the wait; no number of failures passes the bound or overflows."""
    machine = upstream(Limits(restart_backoff_s=first_s, restart_backoff_max_s=max_s))
    now, expected = 100.0, first_s
    assert machine.pause_left(now) == 0
    for attempt in range(40):
        machine.receive_need()
        machine.receive_lost("no such file", now)
        assert machine.failure == "no such file"
        assert machine.pause_left(now) == pytest.approx(min(expected, max_s))
        assert machine.pause_left(now + min(expected, max_s)) == 0
        assert machine.pause_left(now + min(expected, max_s) / 2) > 0
        if attempt < 16:
            expected *= 2
        now += 1e6


@pytest.mark.parametrize(
    "state", [state for state in UpstreamSessionState if UpstreamSessionInput.LOST in TRANSITIONS[state]]
)
def test_only_a_server_that_never_was_ready_must_wait(state: UpstreamSessionState) -> None:
    """A server that served and died is started anew at once; one that did not come up waits."""
    machine = upstream()
    machine.state = state
    machine.receive_lost("gone", 5.0)
    assert machine.state is UpstreamSessionState.IDLE
    assert (machine.pause_left(5.0) == 0) == (state is UpstreamSessionState.READY)


def test_success_forgets_failures() -> None:
    """A good start makes the next first pause short again, and clears the old failure."""
    machine = upstream()
    for _ in range(5):
        machine.receive_need()
        machine.receive_lost("no", 0.0)
    start(machine)
    machine.receive_proof()
    assert machine.failures == 0
    machine.receive_lost("died", 50.0)
    machine.receive_need()
    machine.receive_lost("no", 100.0)
    assert machine.pause_left(100.0) == Limits().restart_backoff_s


def test_every_handshake_is_an_incarnation_without_the_old_session() -> None:
    """The session id of a lost upstream is never shown to the next one."""
    machine = upstream()
    start(machine, session="secret")
    assert (machine.incarnation, machine.session) == (1, "secret")
    machine.receive_lost("gone", 0.0)
    machine.receive_need()
    assert (machine.incarnation, machine.session) == (2, None)
    with pytest.raises(LocalProtocolError):
        machine.receive_need()
    assert machine.incarnation == 2


# --- The initialize result ------------------------------------------------------------------------------------------


def initializing() -> UpstreamSession:
    machine = upstream()
    machine.receive_need()
    machine.step(UpstreamSessionInput.CONNECTED)
    return machine


@pytest.mark.parametrize(
    ("result", "revision", "capabilities"),
    [
        (RESULT, "2025-11-25", {"tools", "logging"}),
        (b"{}", None, set()),
        (b'{"protocolVersion":1,"capabilities":[]}', None, set()),
        (
            b'{"protocolVersion":"2025-06-18","capabilities":{"\\u0074ools":null,"x":1e400}}',
            "2025-06-18",
            {"tools", "x"},
        ),
        (b'{"protocolVersion":"2025-06-18\\r\\nX: y"}', None, set()),
        (b'{"protocolVersion":""}', None, set()),
        (b'{"serverInfo":{"name":"\\ud800"},"protocolVersion":"9999-01-01"}', "9999-01-01", set()),
    ],
)
def test_the_initialize_result_is_read(result: bytes, revision: str | None, capabilities: set[str]) -> None:
    """The revision and the capabilities are read by value; a revision that no header could carry counts as none."""
    machine = initializing()
    machine.receive_head("s")
    machine.receive_initialized(result)
    assert (machine.revision, machine.capabilities, machine.session) == (revision, capabilities, "s")
    assert machine.state is UpstreamSessionState.CONFIRMING


@pytest.mark.parametrize(
    "result",
    [
        b"null",
        b"[]",
        b'"ok"',
        b'{"capabilities":{},"capabilities":{}}',
        b'{"capabilities":{"tools":1,"\\u0074ools":2}}',
    ],
)
def test_an_unusable_answer_changes_nothing(result: bytes) -> None:
    """A result that is no object, or has a member twice, is refused."""
    machine = initializing()
    with pytest.raises(RemoteProtocolError):
        machine.receive_initialized(result)
    assert (machine.state, machine.session, machine.revision) == (UpstreamSessionState.INITIALIZING, None, None)
    assert machine.capabilities is None


# --- Replay ---------------------------------------------------------------------------------------------------------

URIS = ["file:///a", "file:///b", "file:///c"]
OPERATIONS = st.tuples(
    st.sampled_from(["logging/setLevel", "resources/subscribe", "resources/unsubscribe", "tools/call"]),
    st.sampled_from(URIS),
    st.booleans(),
)


@given(operations=st.lists(OPERATIONS, max_size=20), max_count=st.integers(1, 3))
def test_a_new_upstream_gets_the_state_of_the_last_one(operations: list[tuple[str, str, bool]], max_count: int) -> None:
    """The level last set and the open subscriptions are replayed, oldest first, up to the bound; nothing else is."""
    machine = upstream(Limits(subscriptions_per_session_max=max_count))
    level: list[tuple[str, object]] = []
    open_uris: list[str] = []
    for method, text, is_escaped in operations:
        key = "level" if method == "logging/setLevel" else "uri"
        spelled = json.dumps(text).replace("/", "\\/") if is_escaped else json.dumps(text)
        machine.remember(method, f'{{"{key}":{spelled},"_meta":{{"progressToken":1}}}}'.encode())
        if method == "logging/setLevel":
            level = [(method, {"level": text})]
        elif method == "resources/subscribe" and text not in open_uris and len(open_uris) < max_count:
            open_uris.append(text)
        elif method == "resources/unsubscribe" and text in open_uris:
            open_uris.remove(text)
    expected = level + [("resources/subscribe", {"uri": uri}) for uri in open_uris]
    assert [(method, json.loads(params)) for method, params in machine.replay()] == expected
    assert machine.has_subscriptions == bool(open_uris)
    start(machine)
    machine.receive_lost("died", 0.0)
    assert [(method, json.loads(params)) for method, params in machine.replay()] == expected


@pytest.mark.parametrize(
    "params",
    [
        None,
        b"[]",
        b"{}",
        b'{"uri":1}',
        b'{"uri":"a","uri":"b"}',
        b'{"uri":"a","_meta":{},"_meta":{}}',
        b'{"uri":"\\ud800"}',
    ],
)
def test_a_subscription_that_cannot_be_read_is_not_remembered(params: bytes | None) -> None:
    """Unreadable params name no resource to subscribe to again."""
    machine = upstream()
    machine.remember("resources/subscribe", params)
    assert machine.replay() == []


def test_a_progress_token_is_not_replayed() -> None:
    """A client's progress token is for one request; replayed, it could name another client's."""
    machine = upstream()
    machine.remember("logging/setLevel", b'{"_meta":{"progressToken":1},"level": "debug"}')
    assert machine.replay() == [("logging/setLevel", b'{"level": "debug"}')]


@pytest.mark.parametrize(
    ("method", "params", "is_kept"),
    [
        ("tools/call", b'{"uri":"c"}', True),
        ("resources/subscribe", None, True),
        ("resources/subscribe", b"[]", True),
        ("resources/subscribe", b"{}", True),
        ("resources/subscribe", b'{"_meta":1,"_meta":2,"uri":"c"}', True),
        ("logging/setLevel", b'{"level":"info"}', True),
        ("resources/unsubscribe", b'{"uri":"c"}', True),
        ("resources/unsubscribe", b'{"uri":"a"}', True),
        ("resources/subscribe", b'{"uri":"a"}', True),
        ("resources/subscribe", b'{"uri":"c"}', False),
    ],
)
def test_only_a_subscription_too_many_is_not_remembered(method: str, params: bytes | None, is_kept: bool) -> None:
    """Only a subscription above the bound is reported as lost."""
    machine = upstream(Limits(subscriptions_per_session_max=2))
    for uri in ("a", "b"):
        assert machine.remember("resources/subscribe", json.dumps({"uri": uri}).encode()) is True
    assert machine.remember(method, params) is is_kept
    assert ("resources/subscribe", b'{"uri":"c"}') not in machine.replay()


def test_a_forgotten_subscription_is_not_replayed() -> None:
    """A subscription that is not known changes nothing."""
    machine = upstream()
    machine.remember("resources/subscribe", b'{"uri":"a"}')
    machine.forget_subscription("b")
    assert machine.has_subscriptions
    machine.forget_subscription("a")
    assert not machine.has_subscriptions
    assert machine.replay() == []


def test_a_server_lost_twice_without_an_answer_must_wait() -> None:
    """The first loss is followed by a start at once. An answer, or the longest pause without a loss, clears the
    count."""
    limits = Limits(restart_backoff_s=2.0, restart_backoff_max_s=30.0)
    machine = upstream(limits)
    for _ in range(2):
        start(machine)
        assert not machine.is_suspect
        machine.receive_lost("died", 1.0)
        assert machine.is_suspect
        assert (machine.failures, machine.pause_left(1.0)) == (0, 0.0)
        start(machine)
        machine.receive_proof()
        assert not machine.is_suspect
        machine.receive_rest()
    start(machine)
    machine.receive_lost("died", 1.0)
    start(machine)
    machine.receive_lost("died", 29.5)
    assert (machine.failures, machine.pause_left(29.5)) == (1, 2.0)
    start(machine)
    machine.receive_lost("died", 30.0)
    assert (machine.is_suspect, machine.failures, machine.pause_left(40.0)) == (True, 0, 0.0)


def test_a_session_that_was_forgotten_is_made_anew_at_once_and_counted() -> None:
    """A forgotten session is no sign of a broken server, however often it happens. An answer ends the count."""
    machine = upstream()
    for count in range(1, 4):
        start(machine, session=f"s{count}")
        machine.receive_lost("forgot", 1.0, is_forgotten=True)
        assert (machine.times_forgotten, machine.failures, machine.is_suspect) == (count, 0, False)
        assert machine.pause_left(1.0) == 0.0
    start(machine)
    machine.receive_lost("died", 1.0)
    assert (machine.times_forgotten, machine.is_suspect) == (3, True)
    start(machine)
    machine.receive_lost("forgot", 1.0, is_forgotten=True)
    assert (machine.times_forgotten, machine.failures) == (4, 0)
    start(machine)
    machine.receive_proof()
    assert machine.times_forgotten == 0


def test_the_negotiated_revision_is_known_once_agreed() -> None:
    """The revision is unknown while it is negotiated anew; a stateless server has no session."""
    machine = upstream()
    assert (machine.agreed_revision, machine.capabilities, machine.failure, machine.is_denied) == (
        None,
        None,
        "",
        False,
    )
    start(machine, session="s")
    assert (machine.agreed_revision, machine.ready_at) == ("2025-11-25", 0.0)
    machine.is_denied = True
    machine.receive_lost("died", 5.0)
    assert (machine.failure, machine.agreed_revision) == ("died", "2025-11-25")
    machine.receive_need()
    assert not machine.is_denied
    machine.step(UpstreamSessionInput.CONNECTED)
    assert machine.agreed_revision is None
    machine.receive_head("t")
    machine.receive_discovered(b'{"capabilities":{"tools":{}}}', "2026-07-28")
    assert (machine.state, machine.agreed_revision, machine.session) == (
        UpstreamSessionState.REPLAYING,
        "2026-07-28",
        None,
    )
    assert machine.capabilities == {"tools"}
    machine.receive_replayed(6.5)
    assert (machine.state, machine.ready_at) == (UpstreamSessionState.READY, 6.5)


@pytest.mark.parametrize(
    ("revision", "is_named"),
    [("x" * 64, True), ("x" * 65, False), ("!", True), ("~", True), (" ", False), ("a b", False), ("é", False)],
)
def test_a_revision_is_named_if_a_header_can_carry_it(revision: str, is_named: bool) -> None:
    machine = initializing()
    machine.receive_initialized(json.dumps({"protocolVersion": revision}).encode())
    assert machine.revision == (revision if is_named else None)


def test_states_and_inputs_have_the_names_that_drawings_and_errors_show() -> None:
    assert {state: state.value for state in UpstreamSessionState} == {
        state: state.name.lower() for state in UpstreamSessionState
    }
    assert {taken: taken.value for taken in UpstreamSessionInput} == {
        taken: taken.name.lower() for taken in UpstreamSessionInput
    }
    with pytest.raises(LocalProtocolError, match=r"^UpstreamSession is idle: connected is not possible there$"):
        upstream().step(UpstreamSessionInput.CONNECTED)
