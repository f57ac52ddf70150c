"""Tests of the header `Isthmus-Hop`: what was signed is read again, and nothing else is."""

from __future__ import annotations

import hmac

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from isthmus.core.base.errors import LocalProtocolError
from isthmus.core.base.grants import Grants
from isthmus.core.wire.http.hop import HOP_MAX_BYTES, TIME_MAX_S, HopCaller, HopSigner, Reason

SECRET = b"0123456789abcdef"
RUN = "5a" * 16
NOW = 1_800_000_000.0
SIGNER = HopSigner(SECRET, "a")
CALLER = HopCaller("token:ci", Grants(frozenset({"read"}), frozenset({"team"}), 1.5), "192.0.2.1", "https://x.example")

callers = st.builds(
    HopCaller,
    st.none() | st.text(max_size=20),
    st.builds(
        Grants, st.frozensets(st.text(max_size=8)), st.frozensets(st.text(max_size=8)), st.none() | st.floats(0, 2e9)
    ),
    st.text(max_size=20),
    st.text(max_size=20),
    st.booleans(),
)


@given(callers, st.text(max_size=9), st.text(max_size=40), st.floats(0, 2e9))
def test_what_was_signed_is_read_again(caller: HopCaller, method: str, target: str, now: float) -> None:
    header = SIGNER.sign(RUN, method, target, caller, now)
    expected = msgspec.structs.replace(caller, sender="a", signed_at_unix=int(now))
    assert HopSigner(SECRET, "b").check(header, RUN, method, target, now) == expected


@given(st.data(), st.integers(1, 255))
def test_a_header_with_another_byte_is_refused(data: st.DataObject, change: int) -> None:
    header = bytearray(SIGNER.sign(RUN, "POST", "/mcp", CALLER, NOW))
    header[data.draw(st.integers(0, len(header) - 1))] ^= change
    assert SIGNER.check(bytes(header), RUN, "POST", "/mcp", NOW) in (Reason.MALFORMED, Reason.FORGED)


@given(st.text(max_size=9), st.text(max_size=40))
def test_a_header_is_for_one_request_line(method: str, target: str) -> None:
    """A line that is divided at another place is another line."""
    header = SIGNER.sign(RUN, "POST", "/mcp", CALLER, NOW)
    if (method, target) != ("POST", "/mcp"):
        assert SIGNER.check(header, RUN, method, target, NOW) is Reason.FORGED
    whole = "POST/mcp\n4\n"
    for at in range(len(whole)):
        moved = SIGNER.sign(RUN, whole[:at], whole[at:], CALLER, NOW)
        assert SIGNER.check(moved, RUN, whole[: at + 1], whole[at + 1 :], NOW) is Reason.FORGED


def test_a_header_is_for_one_run_and_one_secret() -> None:
    header = SIGNER.sign(RUN, "POST", "/mcp", CALLER, NOW)
    assert SIGNER.check(header, "5b" * 16, "POST", "/mcp", NOW) is Reason.OTHER_RUN
    assert HopSigner(b"another secret 16", "a").check(header, RUN, "POST", "/mcp", NOW) is Reason.FORGED


def test_a_header_counts_for_a_while() -> None:
    """Clocks may differ by a minute in both directions."""
    header = SIGNER.sign(RUN, "POST", "/mcp", CALLER, NOW)
    for seconds in (-TIME_MAX_S + 1, -60, 60, TIME_MAX_S - 1):
        assert isinstance(SIGNER.check(header, RUN, "POST", "/mcp", NOW + seconds), HopCaller)
    for seconds in (-1e9, -TIME_MAX_S, TIME_MAX_S, 1e9):
        assert SIGNER.check(header, RUN, "POST", "/mcp", NOW + seconds) is Reason.EXPIRED


def test_signatures_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = []
    compare = hmac.compare_digest

    def note(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return compare(one, other)

    monkeypatch.setattr(hmac, "compare_digest", note)
    header = SIGNER.sign(RUN, "POST", "/mcp", CALLER, NOW)
    SIGNER.check(header[:-1] + b"0", RUN, "POST", "/mcp", NOW)
    assert [len(one) for one, _ in compared] == [64]


def test_a_caller_that_is_too_long_is_not_signed() -> None:
    with pytest.raises(LocalProtocolError):
        SIGNER.sign(RUN, "POST", "/mcp", HopCaller("x" * HOP_MAX_BYTES), NOW)
    with pytest.raises(LocalProtocolError):
        SIGNER.sign(RUN, "POST", "/mcp", HopCaller("\ud800"), NOW)
    assert SIGNER.check(b"1." + b"x" * HOP_MAX_BYTES, RUN, "POST", "/mcp", NOW) is Reason.MALFORMED


def test_a_short_secret_is_refused() -> None:
    with pytest.raises(LocalProtocolError):
        HopSigner(b"short", "a")
