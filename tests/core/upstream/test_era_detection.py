"""What is known of a server's era: what follows from it, how long it stands, and what counts as evidence."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from isthmus.core.base.effects import Cause, End
from isthmus.core.base.limits import Limits
from isthmus.core.base.revisions import LATEST_MODERN, LEGACY, Era
from isthmus.core.upstream.era_detection import (
    NO_EVIDENCE,
    OTHER,
    Verdict,
    denies_handshake,
    denies_stateless,
    is_modern,
    lacks_revision,
    lacks_session,
)
from stateless_server import failure, refused

LIMITS = Limits(verdict_ttl_s=100.0)
KNOWN = (None, True, False)


def told(era: Era, known: bool | None, verdict: Verdict) -> None:
    if known is True:
        verdict.receive_proof(era, None)
    elif known is False:
        verdict.receive_denial(era, 0.0)


@pytest.mark.parametrize("wanted", list(Era))
@pytest.mark.parametrize("own, other, is_mute", list(itertools.product(KNOWN, KNOWN, (False, True))))
def test_each_client_is_served_in_its_own_era_unless_the_server_has_it_not(
    wanted: Era, own: bool | None, other: bool | None, is_mute: bool
) -> None:
    """The other era is tried only where the own one was denied and the other was not; or, for a client with a session,
    where the server begins none and can do without."""
    verdict = Verdict(None, LIMITS)
    told(wanted, own, verdict)
    told(OTHER[wanted], other, verdict)
    verdict.is_mute = is_mute
    is_bridged = (own is False and other is not False) or (wanted is Era.HANDSHAKE and is_mute and other is True)
    assert verdict.choose(wanted, 1.0) is (OTHER[wanted] if is_bridged else wanted)


@pytest.mark.parametrize("forced", list(Era))
@pytest.mark.parametrize("wanted", list(Era))
@pytest.mark.parametrize("known, others", list(itertools.product(KNOWN, KNOWN)))
def test_what_is_configured_is_never_doubted(forced: Era, wanted: Era, known: bool | None, others: bool | None) -> None:
    """A forced era is chosen whatever is heard, and there is no turning from it."""
    verdict = Verdict(forced, LIMITS)
    told(forced, known, verdict)
    told(OTHER[forced], others, verdict)
    assert verdict.choose(wanted, 1.0) is forced
    assert not verdict.may_turn(forced, 1.0)
    assert verdict.may_ask(1.0) is (forced is Era.STATELESS)


def test_a_denial_has_its_time_and_a_proof_has_none() -> None:
    """A "no" is believed for a day, a "yes" until the server says otherwise."""
    verdict = Verdict(None, LIMITS)
    verdict.receive_denial(Era.STATELESS, 50.0)
    verdict.receive_proof(Era.HANDSHAKE, None)
    assert verdict.speaks(Era.STATELESS, 149.9) is False
    assert verdict.speaks(Era.STATELESS, 150.0) is None
    assert verdict.speaks(Era.HANDSHAKE, 1e9) is True


@given(st.lists(st.sampled_from(["proof", "denial", "silence", "forget", "wait"]), max_size=12), st.sampled_from(Era))
def test_silence_never_turns_a_yes_into_a_no(steps: list[str], era: Era) -> None:
    """A failure never overwrites a verdict: it takes two of them, and nothing heard between."""
    verdict, now = Verdict(None, LIMITS), 0.0
    for step in steps:
        before = verdict.speaks(era, now)
        if step == "proof":
            verdict.receive_proof(era, None)
            assert verdict.speaks(era, now) is True
        elif step == "denial":
            verdict.receive_denial(era, now)
            assert verdict.speaks(era, now) is False
        elif step == "silence":
            verdict.receive_silence(era, now)
            assert verdict.speaks(era, now) is (None if before is True else False)
        elif step == "forget":
            verdict.forget(era)
            assert verdict.speaks(era, now) is None
        else:
            now += 60.0
        assert verdict.speaks(OTHER[era], now) is None, "one era says nothing of the other"


@pytest.mark.parametrize("known, others, is_said", list(itertools.product(KNOWN, KNOWN, (False, True))))
def test_the_other_era_is_tried_if_that_can_help(known: bool | None, others: bool | None, is_said: bool) -> None:
    """After words, always: it may have been replaced. After silence, unless the other era was denied."""
    verdict = Verdict(None, LIMITS)
    told(Era.STATELESS, known, verdict)
    told(Era.HANDSHAKE, others, verdict)
    assert verdict.may_turn(Era.STATELESS, 1.0, is_said=is_said) is (is_said or others is not False)


def test_a_question_is_asked_once_a_verdict() -> None:
    """Whether a server that begins no session can do without is asked once, whatever comes of it."""
    verdict = Verdict(None, LIMITS)
    assert verdict.may_ask(10.0)
    verdict.receive_question(10.0)
    assert not verdict.may_ask(109.9)
    assert verdict.may_ask(110.0)
    verdict.receive_denial(Era.STATELESS, 110.0)
    assert not verdict.may_ask(111.0)
    verdict.receive_proof(Era.STATELESS, None)
    assert verdict.may_ask(111.0)


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
    """-32022 speaks for a server without sessions only if it names such a revision among texts."""
    assert is_modern(error(-32022, data)) is is_evidence
    assert denies_handshake(error(-32022, data)) is is_evidence
    assert denies_stateless(refused(400, failure(-32022, data=data))) is not is_evidence
    assert lacks_revision(refused(400, failure(-32022, data=data))) is is_evidence


@pytest.mark.parametrize("status", range(300, 600))
def test_which_statuses_deny_the_stateless_era(status: int) -> None:
    """Refusals over credentials, load, time and place say nothing of an era; all others do, without a modern error."""
    says_nothing = status in (401, 403, 408, 429) or status >= 500 or status < 400
    assert denies_stateless(refused(status)) is not says_nothing
    assert denies_stateless(refused(status, b"<html>")) is not says_nothing
    assert denies_stateless(refused(status, failure(-32601))) is not says_nothing
    assert not denies_stateless(refused(status, failure(-32020)))
    assert frozenset({401, 403, 408, 429}) == NO_EVIDENCE


@pytest.mark.parametrize("end", list(End))
def test_which_ends_deny_the_stateless_era(end: End) -> None:
    """A response that says nothing is an answer; no response is none."""
    if end is not End.REFUSED:
        assert denies_stateless(Cause(end)) is (end is End.DONE)
    assert not lacks_session(Cause(end), 1)


@pytest.mark.parametrize("code", [-32700, -32600, -32601, -32602, -32603, -32000, -32002, -32020, -32021, 1, 0])
@pytest.mark.parametrize("id", [None, "server-error", 7, "7", 8])
@pytest.mark.parametrize("status", [400, 404, 405, 500])
def test_what_only_a_server_with_sessions_says_to_a_request_without(code: int, id: object, status: int) -> None:
    """That one is missing, in an error that is not about the request."""
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
    """That `initialize` is unknown, or lacks what every request must have since 2026-07-28."""
    assert denies_handshake(error(code, data)) is expected
