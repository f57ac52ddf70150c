"""Tests of the era detection: which era follows from what is known of a server, how long that is believed, and what
counts as evidence."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from isthmus.core.base.events import Cause, End
from isthmus.core.base.limits import Limits
from isthmus.core.base.revisions import LATEST_MODERN, LEGACY, Era
from isthmus.core.upstream.era_detection import (
    NO_EVIDENCE,
    OTHER,
    ServerEra,
    denies_handshake,
    denies_stateless,
    is_modern,
    lacks_revision,
    lacks_session,
)
from stateless_server import failure, refused

LIMITS = Limits(server_era_ttl_s=100.0)
KNOWN = (None, True, False)


def learn(era: Era, known: bool | None, server_era: ServerEra) -> None:
    if known is True:
        server_era.receive_proof(era, None)
    elif known is False:
        server_era.receive_denial(era, 0.0)


@pytest.mark.parametrize("wanted", list(Era))
@pytest.mark.parametrize("own, other, is_mute", list(itertools.product(KNOWN, KNOWN, (False, True))))
def test_each_client_is_served_in_its_own_era_unless_the_server_lacks_it(
    wanted: Era, own: bool | None, other: bool | None, is_mute: bool
) -> None:
    """The other era is tried only if the client's own was denied and the other was not; or, for a client with a
    session, if the server begins no session and speaks the stateless era."""
    server_era = ServerEra(None, LIMITS)
    learn(wanted, own, server_era)
    learn(OTHER[wanted], other, server_era)
    server_era.is_mute = is_mute
    is_bridged = (own is False and other is not False) or (wanted is Era.HANDSHAKE and is_mute and other is True)
    assert server_era.choose(wanted, 1.0) is (OTHER[wanted] if is_bridged else wanted)


@pytest.mark.parametrize("forced", list(Era))
@pytest.mark.parametrize("wanted", list(Era))
@pytest.mark.parametrize("known, others", list(itertools.product(KNOWN, KNOWN)))
def test_a_configured_era_is_never_doubted(forced: Era, wanted: Era, known: bool | None, others: bool | None) -> None:
    """A forced era is chosen whatever is learnt, and the other era is never tried."""
    server_era = ServerEra(forced, LIMITS)
    learn(forced, known, server_era)
    learn(OTHER[forced], others, server_era)
    assert server_era.choose(wanted, 1.0) is forced
    assert not server_era.may_try_other_era(forced, 1.0)
    assert server_era.may_ask(1.0) is (forced is Era.STATELESS)


def test_a_denial_expires_and_a_proof_does_not() -> None:
    """A denial is believed for `server_era_ttl_s`, a proof until the server says otherwise."""
    server_era = ServerEra(None, LIMITS)
    server_era.receive_denial(Era.STATELESS, 50.0)
    server_era.receive_proof(Era.HANDSHAKE, None)
    assert server_era.speaks(Era.STATELESS, 149.9) is False
    assert server_era.speaks(Era.STATELESS, 150.0) is None
    assert server_era.speaks(Era.HANDSHAKE, 1e9) is True


@given(st.lists(st.sampled_from(["proof", "denial", "silence", "forget", "wait"]), max_size=12), st.sampled_from(Era))
def test_a_single_silence_never_turns_a_proof_into_a_denial(steps: list[str], era: Era) -> None:
    """A single silence never turns a proof into a denial. Two silences without anything learnt between them do."""
    server_era, now = ServerEra(None, LIMITS), 0.0
    for step in steps:
        before = server_era.speaks(era, now)
        if step == "proof":
            server_era.receive_proof(era, None)
            assert server_era.speaks(era, now) is True
        elif step == "denial":
            server_era.receive_denial(era, now)
            assert server_era.speaks(era, now) is False
        elif step == "silence":
            server_era.receive_silence(era, now)
            assert server_era.speaks(era, now) is (None if before is True else False)
        elif step == "forget":
            server_era.forget(era)
            assert server_era.speaks(era, now) is None
        else:
            now += 60.0
        assert server_era.speaks(OTHER[era], now) is None, "evidence of one era is none of the other"


@pytest.mark.parametrize("known, others, is_said", list(itertools.product(KNOWN, KNOWN, (False, True))))
def test_the_other_era_is_tried_if_that_can_help(known: bool | None, others: bool | None, is_said: bool) -> None:
    """After an error of the server the other era is always tried, because the server may have been replaced. After
    silence it is tried unless it was denied."""
    server_era = ServerEra(None, LIMITS)
    learn(Era.STATELESS, known, server_era)
    learn(Era.HANDSHAKE, others, server_era)
    assert server_era.may_try_other_era(Era.STATELESS, 1.0, is_said=is_said) is (is_said or others is not False)


def test_a_server_without_a_session_is_asked_once_per_ttl_for_the_stateless_era() -> None:
    """A server that begins no session is asked only once in `server_era_ttl_s` whether it speaks the stateless era,
    whatever comes of it."""
    server_era = ServerEra(None, LIMITS)
    assert server_era.may_ask(10.0)
    server_era.receive_question(10.0)
    assert not server_era.may_ask(109.9)
    assert server_era.may_ask(110.0)
    server_era.receive_denial(Era.STATELESS, 110.0)
    assert not server_era.may_ask(111.0)
    server_era.receive_proof(Era.STATELESS, None)
    assert server_era.may_ask(111.0)


# --- Evidence ---------------------------------------------------------------------------------------------------------


def error(code: int, data: object = None) -> bytes:
    body = failure(code, "no", data=data)
    return body[body.index(b'"error": ') + 9 : -1]


VERSIONS: list[tuple[object, bool]] = [
    (None, False),
    ({}, False),
    ({"supported": None}, False),
    ({"supported": []}, False),
    ({"supported": "2026-07-28"}, False),
    ({"supported": [LATEST_MODERN, 1]}, False),
    ({"supported": list(LEGACY)}, False),
    ({"supported": ["2099-01-01"]}, False),
    ({"supported": [LATEST_MODERN]}, True),
    ({"supported": [*LEGACY, LATEST_MODERN]}, True),
    ([LATEST_MODERN], False),
]


@pytest.mark.parametrize("data, is_evidence", VERSIONS)
def test_an_unsupported_version_counts_by_what_is_supported(data: object, is_evidence: bool) -> None:
    """Error -32022 is evidence of the stateless era only if `supported` is a list of strings that names such a
    revision."""
    assert is_modern(error(-32022, data)) is is_evidence
    assert denies_handshake(error(-32022, data)) is is_evidence
    assert denies_stateless(refused(400, failure(-32022, data=data))) is not is_evidence
    assert lacks_revision(refused(400, failure(-32022, data=data))) is is_evidence


@pytest.mark.parametrize("status", range(300, 600))
def test_which_statuses_deny_the_stateless_era(status: int) -> None:
    """Refusals about credentials, load, time and place are no evidence of an era. All others deny the stateless era,
    unless they carry an error of that era."""
    says_nothing = status in (401, 403, 408, 429) or status >= 500 or status < 400
    assert denies_stateless(refused(status)) is not says_nothing
    assert denies_stateless(refused(status, b"<html>")) is not says_nothing
    assert denies_stateless(refused(status, failure(-32601))) is not says_nothing
    assert not denies_stateless(refused(status, failure(-32020)))
    assert frozenset({401, 403, 408, 429}) == NO_EVIDENCE


@pytest.mark.parametrize("end", list(End))
def test_which_ends_deny_the_stateless_era(end: End) -> None:
    """An empty response is an answer, and denies it. No response does not."""
    if end is not End.REFUSED:
        assert denies_stateless(Cause(end)) is (end is End.DONE)
    assert not lacks_session(Cause(end), 1)


@pytest.mark.parametrize("code", [-32700, -32600, -32601, -32602, -32603, -32000, -32002, -32020, -32021, 1, 0])
@pytest.mark.parametrize("id", [None, "server-error", 7, "7", 8])
@pytest.mark.parametrize("status", [400, 404, 405, 500])
def test_a_missing_session_is_reported_only_by_a_server_with_sessions(code: int, id: object, status: int) -> None:
    """A server with sessions reports a missing one in an error that is not about the request."""
    is_about_it = id in (7, "7")
    expected = status in (400, 404) and code in (-32000, -32600) and not is_about_it
    assert lacks_session(refused(status, failure(code, id=id)), 7) is expected


@pytest.mark.parametrize(
    "code, data, expected",
    [
        (-32601, None, True),
        (-32020, None, True),
        (-32021, {"requiredCapabilities": {}}, True),
        (-32602, "io.modelcontextprotocol/protocolVersion is missing", True),
        (-32602, None, False),
        (-32600, None, False),
        (-32603, None, False),
        (-32000, None, False),
        (0, None, False),
    ],
)
def test_which_errors_deny_a_handshake(code: int, data: object, expected: bool) -> None:
    """An error denies it by saying that `initialize` is unknown, or lacks what every request must have since
    2026-07-28."""
    assert denies_handshake(error(code, data)) is expected
