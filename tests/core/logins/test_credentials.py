"""The states of a credential, and one renewal under the lock."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import msgspec
import pytest
from isthmus.core.base.errors import LocalProtocolError
from isthmus.core.logins.credentials import (
    ATTEMPTS,
    REJECTIONS_MAX,
    RETRY_AFTER_S,
    TRANSITIONS,
    Credential,
    CredentialInput,
    CredentialState,
    LogIn,
    Read,
    Record,
    Renew,
    Use,
    Wait,
    Write,
    decode_record,
    encode_record,
    record_of,
    renew,
)
from isthmus.core.logins.requests import Fetch, Fetched, FetchFailed, Login, LoginFailed, Registration, Tokens
from login_world import ISSUER, NOW, URL, json_reply

RECORD = Record(
    Registration(ISSUER, "c"), URL, f"{ISSUER}/token", URL, ("a",), ("a",), "access-1", "refresh-1", NOW, NOW + 3600
)
SECOND = msgspec.structs.replace(RECORD, access_token="access-2", refresh_token="refresh-2", issued_at=NOW + 3300)
ALONE = msgspec.structs.replace(RECORD, refresh_token="")


def credential(record: Record | None = RECORD, **options: Any) -> Credential:
    found = Credential(**options)
    found.receive_record(record)
    return found


# --- The machine ----------------------------------------------------------------------------------------------------


def test_the_table_is_total_and_every_state_is_reached() -> None:
    assert set(TRANSITIONS) == set(CredentialState)
    assert {taken for row in TRANSITIONS.values() for taken in row} == set(CredentialInput)
    assert {state for row in TRANSITIONS.values() for state in row.values()} == set(CredentialState)


def test_without_a_record_a_person_has_to_log_in() -> None:
    assert credential(None).ask(NOW) == LogIn()
    assert credential(RECORD.without_tokens()).ask(NOW) == LogIn()


@pytest.mark.parametrize(
    ("lifetime_s", "renews_after_s"), [(3600, 3240), (100, 70), (60, 30), (6, 3), (0, 0), (86400, 77760), (-5, -5)]
)
def test_when_a_token_is_renewed(lifetime_s: float, renews_after_s: float) -> None:
    """30 s or 10 % before its expiry, whichever is more, and not before half of its life."""
    found = msgspec.structs.replace(RECORD, expires_at=NOW + lifetime_s)
    assert found.renews_at == NOW + renews_after_s
    assert credential(found).ask(NOW + renews_after_s - 0.01) == Use("access-1")
    assert credential(found).ask(NOW + renews_after_s) == Renew(found)


def test_a_token_without_an_expiry_is_used_until_it_is_rejected() -> None:
    found = msgspec.structs.replace(RECORD, expires_at=None)
    asked = credential(found)
    assert asked.ask(NOW + 10**9) == Use("access-1")
    asked.receive_rejected("access-1", NOW)
    assert asked.ask(NOW) == Renew(found)


def test_others_wait_for_the_one_that_renews() -> None:
    asked = credential()
    assert asked.ask(NOW + 3300) == Renew(RECORD)
    assert asked.ask(NOW + 3300) == Wait()
    asked.receive_record(SECOND)  # read outside the lock: it decides nothing
    assert asked.ask(NOW + 3300) == Wait()
    asked.receive_renewed(SECOND)
    assert asked.ask(NOW + 3300) == Use("access-2")


def test_a_rejected_token_is_renewed_once() -> None:
    asked = credential()
    asked.receive_rejected("access-1", NOW)
    assert asked.ask(NOW) == Renew(RECORD)
    asked.receive_rejected("access-1", NOW)
    asked.receive_renewed(SECOND)
    assert asked.ask(NOW) == Use("access-2")


def test_a_401_for_an_older_token_renews_nothing() -> None:
    asked = credential(SECOND)
    asked.receive_rejected("access-1", NOW)
    assert asked.ask(NOW) == Use("access-2")


def test_a_server_that_takes_no_token_is_not_asked_for_ever() -> None:
    """The second of two tokens in a row that were never accepted is not renewed."""
    asked = credential()
    for number in range(REJECTIONS_MAX):
        record = asked.record
        assert record is not None
        asked.receive_rejected(record.access_token, NOW)
        assert asked.ask(NOW) == Renew(record)
        asked.receive_renewed(msgspec.structs.replace(SECOND, access_token=f"token-{number}"))
    last = asked.record
    assert last is not None
    asked.receive_rejected(last.access_token, NOW)
    assert asked.ask(NOW) == LogIn("the server does not take the token that the provider gave")
    assert asked.record == last
    assert asked.ask(NOW + RETRY_AFTER_S) == Renew(last)


def test_a_token_that_was_accepted_is_renewed_again() -> None:
    asked = credential()
    for before, after in ((RECORD, SECOND), (SECOND, RECORD)):
        asked.receive_rejected(before.access_token, NOW)
        assert asked.ask(NOW) == Renew(before)
        asked.receive_renewed(after)
        asked.receive_accepted(after.access_token)


def test_a_refused_refresh_loses_the_login_until_another() -> None:
    asked = credential()
    asked.ask(NOW + 3300)
    asked.receive_refused("invalid_grant")
    assert asked.state is CredentialState.LOST
    assert asked.ask(NOW + 3300) == LogIn("invalid_grant")
    asked.receive_record(None)
    assert asked.state is CredentialState.LOST
    asked.receive_record(SECOND)
    assert asked.ask(NOW + 3300) == Use("access-2")


def test_no_answer_keeps_the_record_and_is_tried_again_later() -> None:
    asked = credential()
    asked.ask(NOW + 3300)
    asked.receive_failed("no answer", NOW + 3330)
    assert asked.ask(NOW + 3301) == Use("access-1"), "the token has not expired yet"
    assert asked.state is CredentialState.LOGIN
    assert asked.ask(NOW + 3330) == Renew(RECORD)
    asked.receive_failed("no answer", NOW + 3630)
    assert asked.ask(NOW + 3600) == LogIn("no answer")
    assert asked.record == RECORD


def test_a_login_without_a_refresh_token_ends_with_its_token() -> None:
    asked = credential(ALONE)
    assert asked.ask(NOW + 3590) == Use("access-1")
    assert asked.ask(NOW + 3600) == LogIn("the login has expired, and the provider gave no refresh token")
    asked.receive_record(ALONE)
    assert isinstance(asked.ask(NOW + 3600), LogIn), "the same record is no news"
    rejected = credential(ALONE)
    rejected.receive_rejected("access-1", NOW)
    assert isinstance(rejected.ask(NOW), LogIn)


def test_a_client_that_needs_no_person_is_renewed_without_a_refresh_token() -> None:
    assert credential(ALONE, can_log_in=True).ask(NOW + 3600) == Renew(ALONE)


def test_a_login_that_was_removed_is_none() -> None:
    asked = credential()
    asked.ask(NOW + 3300)
    asked.receive_renewed(None)
    assert asked.state is CredentialState.NONE
    assert asked.ask(NOW) == LogIn()
    again = credential()
    again.receive_record(None)
    assert again.ask(NOW) == LogIn()


def test_an_answer_that_nobody_asked_for_is_our_mistake() -> None:
    for receive in (
        lambda each: each.receive_renewed(SECOND),
        lambda each: each.receive_refused("x"),
        lambda each: each.receive_failed("x", None),
    ):
        asked = credential()
        with pytest.raises(LocalProtocolError):
            receive(asked)


# --- Records --------------------------------------------------------------------------------------------------------


def test_a_record_is_read_as_it_was_written() -> None:
    assert decode_record(encode_record(RECORD)) == RECORD
    assert decode_record(b"{}") is None
    assert decode_record(b"\xff") is None


def test_a_record_shows_no_secret() -> None:
    found = msgspec.structs.replace(RECORD, registration=Registration(ISSUER, "c", "the-client-secret"))
    shown = f"{found!r} {Renew(found)!r} {Write(found)!r} {Use('access-1')!r}"
    assert not any(secret in shown for secret in ("access-1", "refresh-1", "the-client-secret"))


def test_the_record_of_a_login() -> None:
    login = Login(Registration(ISSUER, "c"), f"{ISSUER}/token", URL, ("a", "b"), Tokens("t", "r", 60.0, ("a",)))
    found = record_of(login, URL, NOW)
    assert (found.requested, found.granted, found.issued_at, found.expires_at) == (("a", "b"), ("a",), NOW, NOW + 60)


@pytest.mark.parametrize(
    ("tokens", "refresh_token", "granted"),
    [(Tokens("t"), "refresh-1", ("a",)), (Tokens("t", "new", scope=("b",)), "new", ("b",))],
)
def test_what_a_refresh_leaves_out_stays(tokens: Tokens, refresh_token: str, granted: tuple[str, ...]) -> None:
    """RFC 6749, 6: a new refresh token MAY come, and the scope is the one before if it is left out."""
    found = RECORD.with_tokens(tokens, NOW)
    assert (found.access_token, found.refresh_token, found.granted) == ("t", refresh_token, granted)


# --- A renewal ------------------------------------------------------------------------------------------------------

GRANTED = json_reply(
    {"access_token": "access-2", "refresh_token": "refresh-2", "token_type": "Bearer", "expires_in": 60}
)
REFUSED = json_reply({"error": "invalid_grant"}, 400)
LOST = FetchFailed("https://as.example: lost")


class Disk:
    """The stored record, and the replies of the provider. `written` has what was written."""

    def __init__(self, stored: Record | None, *replies: Fetched | FetchFailed) -> None:
        self.stored = stored
        self.replies = list(replies)
        self.asked: list[Fetch] = []
        self.written: list[Record] = []
        self.before_reply: Callable[[], None] = lambda: None

    def run(self, flow: Generator[Any, Any, Record | None]) -> Record | None:
        reply: Any = None
        while True:
            try:
                order = flow.send(reply)
            except StopIteration as end:
                found: Record | None = end.value
                return found
            reply = None
            if isinstance(order, Read):
                reply = self.stored
            elif isinstance(order, Write):
                self.stored = order.record
                self.written.append(order.record)
            else:
                self.asked.append(order)
                self.before_reply()
                reply = self.replies.pop(0)


def clock() -> float:
    return NOW + 3300


def test_a_renewal_is_written_before_the_lock_is_released() -> None:
    disk = Disk(RECORD, GRANTED)
    found = disk.run(renew(RECORD, clock))
    assert found == disk.stored
    assert found is not None
    assert (found.access_token, found.refresh_token, found.expires_at) == ("access-2", "refresh-2", NOW + 3360)
    assert b"refresh_token=refresh-1" in disk.asked[0].body


@pytest.mark.parametrize("stored", [SECOND, None, RECORD.without_tokens()])
def test_corner_case_21_what_another_process_wrote_is_taken(stored: Record | None) -> None:
    """A refresh token is sent only if the stored one is still the one that was seen."""
    disk = Disk(stored)
    assert disk.run(renew(RECORD, clock)) == stored
    assert (disk.asked, disk.written) == ([], [])


def test_a_login_at_another_issuer_is_not_renewed_with_this_one() -> None:
    other = msgspec.structs.replace(RECORD, registration=Registration("https://new.example", "c"))
    disk = Disk(other)
    assert disk.run(renew(RECORD, clock)) == other
    assert disk.asked == []


def test_a_lost_reply_is_asked_for_once_more() -> None:
    disk = Disk(RECORD, LOST, GRANTED)
    assert disk.run(renew(RECORD, clock)) == disk.stored
    assert len(disk.asked) == ATTEMPTS


def test_no_reply_twice_leaves_the_record() -> None:
    disk = Disk(RECORD, LOST, Fetched(502, b""))
    with pytest.raises(LoginFailed) as failed:
        disk.run(renew(RECORD, clock))
    assert failed.value.is_unanswered
    assert (disk.stored, disk.written) == (RECORD, [])


@pytest.mark.parametrize("replies", [(REFUSED,), (LOST, REFUSED)])
def test_a_refused_refresh_removes_the_tokens_that_were_sent(replies: tuple[Any, ...]) -> None:
    disk = Disk(RECORD, *replies)
    with pytest.raises(LoginFailed) as failed:
        disk.run(renew(RECORD, clock))
    assert failed.value.is_refused
    assert disk.stored == RECORD.without_tokens()
    assert disk.stored.registration == RECORD.registration, "the client stays for the next login"


@pytest.mark.parametrize("written", [SECOND, None])
def test_corner_case_21_a_loser_removes_nothing_of_the_winner(written: Record | None) -> None:
    """A program that does not know the lock wrote while the refresh was on its way."""
    disk = Disk(RECORD, REFUSED)
    disk.before_reply = lambda: setattr(disk, "stored", written)
    assert disk.run(renew(RECORD, clock)) == written
    assert (disk.stored, disk.written) == (written, [])


@pytest.mark.parametrize(
    ("code", "is_unanswered"),
    [
        ("invalid_client", False),
        ("unauthorized_client", False),
        ("server_error", True),
        ("temporarily_unavailable", True),
    ],
)
def test_another_error_leaves_the_record(code: str, is_unanswered: bool) -> None:
    """A provider that is out of order is asked again later, and costs nobody a login."""
    disk = Disk(RECORD, *[json_reply({"error": code}, 400)] * ATTEMPTS)
    with pytest.raises(LoginFailed) as failed:
        disk.run(renew(RECORD, clock))
    assert (failed.value.is_refused, failed.value.is_unanswered) == (False, is_unanswered)
    assert disk.written == []


def test_a_fresh_token_is_told_without_a_step() -> None:
    asked = credential()
    assert asked.fresh(NOW) == "access-1"
    assert asked.fresh(NOW + 3240) is None
    assert asked.state is CredentialState.FRESH, "a query changes nothing"
    assert credential(None).fresh(NOW) is None
    assert credential(msgspec.structs.replace(RECORD, expires_at=None)).fresh(NOW + 10**9) == "access-1"


def test_what_comes_of_a_token_that_is_not_known_changes_nothing() -> None:
    asked = credential(None)
    asked.receive_rejected("access-1", NOW)
    asked.receive_accepted("access-1")
    assert asked.state is CredentialState.NONE


def test_a_renewal_that_finds_no_tokens_ends_the_login() -> None:
    asked = credential()
    asked.ask(NOW + 3300)
    asked.receive_renewed(RECORD.without_tokens())
    assert asked.ask(NOW) == LogIn()


def test_a_token_without_an_expiry_is_used_while_it_cannot_be_renewed() -> None:
    asked = credential(msgspec.structs.replace(ALONE, expires_at=None))
    asked.receive_rejected("another", NOW)
    assert asked.ask(NOW) == Use("access-1")
    asked.receive_rejected("access-1", NOW)
    assert isinstance(asked.ask(NOW), LogIn)
