"""The links at which callers log in: each is for one caller and one server, and says nothing about either."""

from __future__ import annotations

import base64
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st
from isthmus.core.connect.tickets import TICKET_CHARS, TICKET_TTL_S, Ticket, Tickets

NOW = 1_800_000_000.0
TICKETS = Tickets(b"k" * 32)
TEXTS = st.text(min_size=1, max_size=40)
IDS = st.text(string.ascii_lowercase + "-", min_size=1, max_size=20)


@given(IDS, TEXTS, st.integers(0, 0xFFFF), st.floats(0, 4e9), TEXTS)
def test_a_ticket_is_for_its_caller_alone(server: str, principal: str, issuer: int, now: float, other: str) -> None:
    text = TICKETS.make(server, principal, issuer, now)
    assert len(text) == TICKET_CHARS
    found = TICKETS.read(text, server, now)
    assert found is not None
    assert found.issuer == issuer
    assert TICKETS.is_for(found, server, principal)
    assert TICKETS.is_for(found, server, other) == (principal == other)


@given(st.binary(min_size=1, max_size=64) | st.binary(min_size=42, max_size=42))
def test_made_up_tickets_are_refused(data: bytes) -> None:
    assert TICKETS.read(base64.urlsafe_b64encode(data).decode(), "a", NOW) is None


@given(st.text(max_size=80))
def test_any_text_can_be_read(text: str) -> None:
    assert TICKETS.read(text, "a", NOW) is None


@given(st.integers(0, TICKET_CHARS - 1), st.sampled_from(string.ascii_letters + string.digits + "-_"))
def test_a_changed_ticket_is_refused(place: int, letter: str) -> None:
    text = TICKETS.make("a", "token:alice", 0, NOW)
    changed = text[:place] + letter + text[place + 1 :]
    assert (TICKETS.read(changed, "a", NOW) is not None) == (changed == text)


@pytest.mark.parametrize(
    ("server", "scope", "after", "key"),
    [("b", "", 0, b"k"), ("a", "write", 0, b"k"), ("a", "", TICKET_TTL_S + 1, b"k"), ("a", "", 0, b"K")],
    ids=["another server", "other scopes", "too late", "another gateway"],
)
def test_a_ticket_does_not_open_another_page(server: str, scope: str, after: float, key: bytes) -> None:
    text = TICKETS.make("a", "token:alice", 0, NOW)
    assert TICKETS.read(text, "a", NOW + TICKET_TTL_S - 61) is not None
    assert Tickets(key * 32).read(text, server, NOW + after, scope) is None


def test_a_question_is_the_same_whenever_it_is_asked() -> None:
    """Clients compare `elicitationId`; the link is the same for a minute, and good for as long in any case."""
    assert TICKETS.id_of("a", "token:alice") == TICKETS.id_of("a", "token:alice") != TICKETS.id_of("a", "token:bob")
    assert TICKETS.make("a", "p", 0, 1200.0) == TICKETS.make("a", "p", 0, 1259.0) != TICKETS.make("a", "p", 0, 1260.0)


def test_names_do_not_run_into_each_other() -> None:
    assert not TICKETS.is_for(Ticket(0, b"", b""), "a", "")
    assert TICKETS.id_of("ab", "c") != TICKETS.id_of("a", "bc")
