"""The credential of one login: when its token is used, when it is renewed, and when it is lost.

A login is of one authorization server, client, resource and principal. Its record is in a store that several processes
share, and each process has a `Credential` for it. NONE: there is no login. FRESH: its token is used. STALE: its token
is about to expire, or was rejected. REFRESHING: one request of this process renews it, and all others wait for that
one. LOGIN: it could not be renewed, and a person has to log in, or the provider did not answer and is asked again
later. LOST: the provider does not take its refresh token any more.

A refresh token may be used once: a provider that sees it twice revokes the whole login. So `renew` runs under a lock
that all processes share, and reads the record anew inside it. It sends a refresh token only if that is still the one
that this process has seen, and whatever it gets is written before the lock is released. A process that is refused has
lost nothing if another one has written meanwhile, and removes only what it has sent itself.

Source: RFC 6749, 6; RFC 9700, 4.14; 2026-07-28 …/client-registration, "Authorization Server Binding".
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Generator
from typing import Final

import msgspec

from ..base.state_machine import Machine
from .grants import refresh
from .requests import Fetch, Fetched, FetchFailed, Login, LoginFailed, Registration, Tokens
from .token_requests import Requesting

MARGIN_MIN_S: Final = 30.0
"""Seconds before its expiry from which on a token is renewed: a request takes that long, and clocks differ by it."""
MARGIN_SHARE: Final = 0.1
"""The share of its lifetime that a token is renewed before its expiry, if that is more than `MARGIN_MIN_S`."""
MARGIN_SHARE_MAX: Final = 0.5
"""The largest share: a token of 6 seconds is used for 3."""
REJECTIONS_MAX: Final = 1
"""The most tokens in a row that are renewed because the server rejected them, and accepted none. At it: LOGIN for
`RETRY_AFTER_S`."""
RETRY_AFTER_S: Final = 30.0
"""Seconds after which the provider is asked again, if it did not answer or the server rejected what it gave."""
ATTEMPTS: Final = 2
"""The most times that a refresh is sent which gets no answer."""


class CredentialState(enum.Enum):
    """The states of a credential."""

    NONE = "none"  # nobody has logged in
    FRESH = "fresh"  # the token is used
    STALE = "stale"  # the token is about to expire, or was rejected
    REFRESHING = "refreshing"  # one request of this process renews it, the others wait
    LOGIN = "login"  # it could not be renewed: a person logs in, or it is tried again later
    LOST = "lost"  # the provider does not take the refresh token any more


class CredentialInput(enum.Enum):
    """The inputs that move a credential from state to state."""

    READ = "read"  # the store has a record with tokens that is another than before
    ABSENT = "absent"  # the store has no record, or one without tokens
    AGE = "age"  # the token is about to expire
    REJECT = "reject"  # the server does not take the token (401)
    BEGIN = "begin"  # this process renews it
    RENEW = "renew"  # the record is of a later refresh, of this process or another
    REFUSE = "refuse"  # the provider does not take the refresh token (invalid_grant)
    FAIL = "fail"  # it cannot be renewed: no refresh token, no answer, or another error
    RETRY = "retry"  # the provider is asked again


# Source: the paragraphs above. An input missing from a row is illegal in that state.
TRANSITIONS: Final[dict[CredentialState, dict[CredentialInput, CredentialState]]] = {
    CredentialState.NONE: {
        CredentialInput.READ: CredentialState.FRESH,
        CredentialInput.ABSENT: CredentialState.NONE,
    },
    CredentialState.FRESH: {
        CredentialInput.READ: CredentialState.FRESH,
        CredentialInput.ABSENT: CredentialState.NONE,
        CredentialInput.AGE: CredentialState.STALE,
        CredentialInput.REJECT: CredentialState.STALE,
    },
    CredentialState.STALE: {
        CredentialInput.READ: CredentialState.FRESH,
        CredentialInput.ABSENT: CredentialState.NONE,
        CredentialInput.BEGIN: CredentialState.REFRESHING,
        CredentialInput.FAIL: CredentialState.LOGIN,
        CredentialInput.REJECT: CredentialState.STALE,
    },
    CredentialState.REFRESHING: {
        CredentialInput.RENEW: CredentialState.FRESH,
        CredentialInput.ABSENT: CredentialState.NONE,
        CredentialInput.REFUSE: CredentialState.LOST,
        CredentialInput.FAIL: CredentialState.LOGIN,
        CredentialInput.REJECT: CredentialState.REFRESHING,
    },
    CredentialState.LOGIN: {
        CredentialInput.READ: CredentialState.FRESH,
        CredentialInput.ABSENT: CredentialState.NONE,
        CredentialInput.RETRY: CredentialState.STALE,
        CredentialInput.REJECT: CredentialState.LOGIN,
    },
    CredentialState.LOST: {
        CredentialInput.READ: CredentialState.FRESH,
        CredentialInput.ABSENT: CredentialState.LOST,
        CredentialInput.REJECT: CredentialState.LOST,
    },
}


class Record(msgspec.Struct, frozen=True):
    """A stored login: its client, and its tokens if it has any. It is bound to the issuer of `registration`.

    Attributes:
        url: the MCP server, as its resource identifier.
        resource: the `resource` parameter.
        requested: the scopes that were requested.
        granted: the scopes that the token has, as far as it is known.
        logged_in_at: Unix seconds of the login; a refresh leaves it as it is.
        issued_at: Unix seconds; so is `expires_at`, None if it is not known.
    """

    registration: Registration
    url: str
    token_endpoint: str
    resource: str = ""
    requested: tuple[str, ...] = ()
    granted: tuple[str, ...] = ()
    access_token: str = ""
    refresh_token: str = ""
    issued_at: float = 0
    expires_at: float | None = None
    logged_in_at: float = 0

    def __repr__(self) -> str:
        return f"Record({self.url!r} at {self.registration.issuer!r}, expires_at={self.expires_at!r}, …)"

    @property
    def renews_at(self) -> float | None:
        """The time from which on the token is renewed; None: only when it is rejected."""
        if self.expires_at is None:
            return None
        lifetime_s = max(self.expires_at - self.issued_at, 0.0)
        margin_s = min(max(MARGIN_MIN_S, MARGIN_SHARE * lifetime_s), MARGIN_SHARE_MAX * lifetime_s)
        return self.expires_at - margin_s

    def with_tokens(self, tokens: Tokens, asked_at: float) -> Record:
        """Returns the record after a refresh. "The authorization server MAY issue a new refresh token"; else the one
        that was sent stays."""
        return msgspec.structs.replace(
            self,
            access_token=tokens.access_token,
            refresh_token=tokens.refresh_token or self.refresh_token,
            granted=self.granted if tokens.scope is None else tokens.scope,
            issued_at=asked_at,
            expires_at=None if tokens.expires_in_s is None else asked_at + tokens.expires_in_s,
        )

    def without_tokens(self) -> Record:
        """Returns what stays of a record that was taken back: the client, for the next login."""
        return msgspec.structs.replace(self, access_token="", refresh_token="", granted=(), expires_at=None)


def record_of(login: Login, url: str, asked_at: float) -> Record:
    """Returns the record of a login at the MCP server `url`, given as its resource identifier."""
    empty = Record(login.registration, url, login.token_endpoint, login.resource, login.scope, login.scope)
    return msgspec.structs.replace(empty.with_tokens(login.tokens, asked_at), logged_in_at=asked_at)


def encode_record(record: Record) -> bytes:
    """Returns the record as JSON. It has secrets in it."""
    return msgspec.json.encode(record)


def decode_record(data: bytes) -> Record | None:
    """Returns the record; None if it cannot be read."""
    try:
        return msgspec.json.decode(data, type=Record)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


# --- What a request does --------------------------------------------------------------------------------------------


class Use(msgspec.Struct, frozen=True):
    """The request takes this token."""

    access_token: str

    def __repr__(self) -> str:
        return "Use(…)"


class Renew(msgspec.Struct, frozen=True):
    """The request runs `renew` with this record first, and tells the credential what came of it."""

    seen: Record


class Wait(msgspec.Struct, frozen=True):
    """The request waits until another one of this process has renewed the token, and asks again."""


class LogIn(msgspec.Struct, frozen=True):
    """The request is not sent with a token: a person has to log in. `reason`: what was seen; "" if nobody ever did."""

    reason: str = ""


class Credential(Machine[CredentialState, CredentialInput]):
    """The login as this process knows it.

    Args:
        can_log_in: the login needs no person, so that a record without a refresh token is renewed as well.
    """

    __slots__ = ("_can_log_in", "_reason", "_record", "_rejected", "_rejections", "_retries_at")

    TRANSITIONS = TRANSITIONS

    def __init__(self, *, can_log_in: bool = False) -> None:
        super().__init__(CredentialState.NONE)
        self._can_log_in = can_log_in
        self._record: Record | None = None
        self._rejected = ""
        self._rejections = 0
        self._reason = ""
        self._retries_at: float | None = None

    @property
    def record(self) -> Record | None:
        """The record as this process has seen it last."""
        return self._record

    def fresh(self, now: float) -> str | None:
        """Returns the token that a request may take at once; None: `ask`. Changes nothing."""
        record = self._record
        if self.state is not CredentialState.FRESH or record is None:
            return None
        return record.access_token if record.renews_at is None or now < record.renews_at else None

    def ask(self, now: float) -> Use | Renew | Wait | LogIn:
        """Says what a request does that needs a token. After `Renew`, one of `receive_renewed`, `receive_refused` and
        `receive_failed` has to follow."""
        record = self._record
        if self.state is CredentialState.LOGIN and self._retries_at is not None and now >= self._retries_at:
            self.step(CredentialInput.RETRY)
        if self.state is CredentialState.FRESH:
            assert record is not None
            if record.renews_at is None or now < record.renews_at:
                return Use(record.access_token)
            self.step(CredentialInput.AGE)
        if self.state is CredentialState.REFRESHING:
            return Wait()
        if self.state is CredentialState.STALE:
            assert record is not None
            if record.refresh_token or self._can_log_in:
                self.step(CredentialInput.BEGIN)
                return Renew(record)
            if not self._is_usable(record, now):
                self._fail("the login has expired, and the provider gave no refresh token", None)
            else:
                return Use(record.access_token)
        if self.state is CredentialState.LOGIN and record is not None and self._is_usable(record, now):
            return Use(record.access_token)
        return LogIn(self._reason)

    def receive_record(self, record: Record | None) -> None:
        """The store has this record now. A process reads it before it asks for the first time, and whenever a person
        would have to log in: another process may have logged in meanwhile."""
        if self.state is CredentialState.REFRESHING:
            return  # what is read under the lock counts
        if record is None or not record.access_token:
            self._forget()
            self.step(CredentialInput.ABSENT)
        elif record != self._record:
            self._take(record)
            self.step(CredentialInput.READ)

    def receive_rejected(self, access_token: str, now: float) -> None:
        """The server rejected a token with 401. The request asks again, and is sent again if it gets another token.

        A 401 for an older token than the one known here says nothing of that one. A newer one may be in the store,
        where `renew` looks first. Of two tokens in a row that were never accepted, the second is not renewed at once:
        the server does not take what the provider gives.
        """
        record = self._record
        if record is None or access_token != record.access_token or self._rejected == access_token:
            return
        self._rejected = access_token
        self._rejections += 1
        self.step(CredentialInput.REJECT)
        if self.state is CredentialState.STALE and self._rejections > REJECTIONS_MAX:
            self._fail("the server does not take the token that the provider gave", now + RETRY_AFTER_S)

    def receive_accepted(self, access_token: str) -> None:
        """The server answered a request with this token otherwise than with 401."""
        if self._record is not None and access_token == self._record.access_token:
            self._rejections = 0

    def receive_renewed(self, record: Record | None) -> None:
        """The lock is released. This is the record now; None if the login was removed meanwhile."""
        if record is None or not record.access_token:
            self._forget()
            self.step(CredentialInput.ABSENT)
        else:
            self._take(record)
            self.step(CredentialInput.RENEW)

    def receive_refused(self, reason: str) -> None:
        """The lock is released. The provider does not take the refresh token, and its record has no tokens any more."""
        self._forget()
        self.step(CredentialInput.REFUSE)
        self._reason = reason

    def receive_failed(self, reason: str, retries_at: float | None) -> None:
        """The lock is released, and the record is as it was. `retries_at`: when the provider may be asked again."""
        self._fail(reason, retries_at)

    def _fail(self, reason: str, retries_at: float | None) -> None:
        self.step(CredentialInput.FAIL)
        self._reason = reason
        self._retries_at = retries_at

    def _take(self, record: Record) -> None:
        self._record = record
        self._forget_failure()

    def _forget(self) -> None:
        self._record = None
        self._forget_failure()

    def _forget_failure(self) -> None:
        self._rejected = ""
        self._reason = ""
        self._retries_at = None

    def _is_usable(self, record: Record, now: float) -> bool:
        """True if the token may still be taken by the server."""
        is_expired = record.expires_at is not None and now >= record.expires_at
        return not is_expired and self._rejected != record.access_token


# --- Under the lock -------------------------------------------------------------------------------------------------


class Read(msgspec.Struct, frozen=True):
    """The record is to be read anew. The reply is a `Record`, or None."""


class Write(msgspec.Struct, frozen=True):
    """The record is to be replaced, and is on the disk before the flow goes on. The reply is None."""

    record: Record


Renewing = Generator[Fetch | Read | Write, Fetched | FetchFailed | Record | None, Record | None]
Grant = Callable[[Record], Requesting]


def refresh_record(record: Record) -> Requesting:
    """Renews the tokens of a record with its refresh token."""
    return refresh(record.token_endpoint, record.registration, record.refresh_token, resource=record.resource)


def renew(seen: Record, clock: Callable[[], float], grant: Grant = refresh_record) -> Renewing:
    """Renews a login. The driver holds the lock of its record from before the first step until after the last.

    Returns the record as it is afterwards: renewed here, or by another process while this one waited for the lock, or
    None if it was removed.

    Args:
        seen: the record as this process knows it.
        clock: returns Unix seconds.
        grant: what is sent for new tokens.

    Raises:
        LoginFailed: `is_refused`: the stored record has no tokens any more. Otherwise it is as it was.
    """
    stored = yield from _read()
    if stored is None or not _is_same(stored, seen):
        return stored
    for attempt in range(1, ATTEMPTS + 1):
        asked_at = clock()
        try:
            tokens = yield from grant(stored)
        except LoginFailed as error:
            if error.is_unanswered and attempt < ATTEMPTS:
                continue
            if error.is_refused:
                again = yield from _read()
                if again is None or not _is_same(again, stored):
                    return again
                yield Write(again.without_tokens())
            raise
        renewed = stored.with_tokens(tokens, asked_at)
        yield Write(renewed)
        return renewed
    raise AssertionError("each attempt returns or raises")


def _is_same(stored: Record, seen: Record) -> bool:
    """True if nobody has renewed the login, or logged in, since it was seen."""
    return (
        stored.access_token == seen.access_token
        and stored.refresh_token == seen.refresh_token
        and stored.registration.issuer == seen.registration.issuer
    )


def _read() -> Generator[Read, Fetched | FetchFailed | Record | None, Record | None]:
    found = yield Read()
    assert found is None or isinstance(found, Record)
    return found
