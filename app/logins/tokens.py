"""The tokens of one server, for the requests that are sent to it: `UpstreamTokens` of the transports.

`PersonTokens` are those of a login that a person made: they are in the store, which other processes use as well.
`ClientTokens` are those of the proxy itself: each process gets its own, and forgets them.
"""

from __future__ import annotations

import logging
import math
import shlex
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Final

import anyio
import msgspec

from ...core.logins.challenges import BearerChallenge, find_bearer
from ...core.logins.credentials import (
    RETRY_AFTER_S,
    Credential,
    CredentialState,
    LogIn,
    Read,
    Record,
    Renew,
    Use,
    Wait,
    decode_record,
    encode_record,
    record_of,
    renew,
)
from ...core.logins.metadata import resource_of
from ...core.logins.requests import Fetch, Fetched, FetchFailed, LoginFailed
from ...core.logins.step_up import StepUps
from ...transports.base.tokens import LoginWanted, UpstreamTokens
from ..config.login_checks import http_url
from ..config.login_settings import OAuth, Unattended
from ..config.settings import Upstream
from .flows import carry_out, fetch, fetch_settings_of
from .interface import HeldRecord, LoginKey, LoginStore, WrittenMeanwhile
from .records import client_of, key_of, login_settings_of, records_of
from .sealing import StoreError
from .unattended import flow_of

_SCHEME: Final = b"Bearer "
LISTED_AFTER_S: Final = 1.0
"""Seconds for which a listing of the store counts that has not changed since, as far as the store says."""
READ_AGAIN_S: Final = 10.0
"""Seconds after which a login that has changed is read again if the store was away. Until then, requests take the token
in memory, and do not wait."""
TRIED_AFTER_S: Final = 5.0
"""Seconds after which a login of the proxy itself that failed is tried again, if a request wants it."""
ACCEPTED_AFTER_S: Final = 5.0
"""Seconds after which a token that is in use counts as accepted: a refusal comes sooner."""

_log = logging.getLogger("isthmus.logins")


class _Tokens:
    """The tokens of one server.

    Args:
        name: the id of the server, for people.
    """

    def __init__(self, name: str, upstream: Upstream, *, can_log_in: bool, clock: Callable[[], float]) -> None:
        self._name = name
        self._upstream = upstream
        self._fetch_settings = fetch_settings_of(upstream)
        self._credential = Credential(can_log_in=can_log_in)
        self._clock = clock
        self._renewed = anyio.Event()
        self._loading = anyio.Lock()
        self._used_since: tuple[str, float] = ("", 0.0)
        self._problem: LoginWanted | None = None

    def current(self) -> bytes | None:
        now = self._clock()
        token = self._credential.fresh(now)
        return None if token is None else self._value(token, now)

    async def header(self) -> bytes | None:
        is_loaded = is_renewed = False
        while True:
            now = self._clock()
            record = self._credential.record
            if is_renewed and record is not None and self._credential.state is CredentialState.FRESH:
                # Taken though it may be about to expire again: it does not get better than this.
                answer: Use | Renew | Wait | LogIn = Use(record.access_token)
            else:
                answer = self._credential.ask(now)
            if isinstance(answer, Use):
                self._problem = None
                return self._value(answer.access_token, now)
            if isinstance(answer, Wait):
                await self._renewed.wait()
                is_renewed = True
            elif isinstance(answer, Renew):
                with anyio.CancelScope(shield=True):  # what was sent counts for all who wait
                    await self._renew_once(answer.seen)
                is_renewed = True
            else:
                if is_loaded:
                    self._problem = self._wanted(answer)
                    return None
                is_loaded = True
                with anyio.CancelScope(shield=True):
                    async with self._loading:
                        await self._load()

    async def refused(self, value: bytes, challenge: str, status: int) -> bool:
        token, now = value.removeprefix(_SCHEME).decode("latin-1"), self._clock()
        bearer = find_bearer([challenge]) or BearerChallenge()
        if status != 401:
            return await self._step_up(token, status, bearer)
        if self._used_since[0] == token and now - self._used_since[1] >= ACCEPTED_AFTER_S:
            self._credential.receive_accepted(token)
        self._credential.receive_rejected(token, now)
        found = await self.header()
        return found not in (None, value)

    def login_wanted(self) -> LoginWanted | None:
        return self._problem

    def _value(self, token: str, now: float) -> bytes:
        if self._used_since[0] != token:
            self._used_since = (token, now)
        return _SCHEME + token.encode("latin-1")

    async def _renew_once(self, seen: Record) -> None:
        credential = self._credential
        try:
            credential.receive_renewed(await self._renew(seen))
            _log.info("%s: the login is renewed", self._name)
        except LoginFailed as error:
            _log.warning("%s: %s", self._name, error)
            if error.is_refused:
                at = time.strftime("%H:%M", time.localtime(self._clock()))
                credential.receive_refused(f"the login was taken back (invalid_grant, {at})")
            else:
                credential.receive_failed(str(error), self._clock() + RETRY_AFTER_S if error.is_unanswered else None)
        except StoreError as error:
            _log.warning("%s: %s", self._name, error)
            credential.receive_failed(str(error), self._clock() + RETRY_AFTER_S)
        finally:
            if credential.state is CredentialState.REFRESHING:
                credential.receive_failed("an internal error", self._clock() + RETRY_AFTER_S)
            self._renewed.set()
            self._renewed = anyio.Event()

    async def _renew(self, seen: Record) -> Record | None:
        raise NotImplementedError

    async def _load(self) -> None:
        raise NotImplementedError

    async def _step_up(self, token: str, status: int, challenge: BearerChallenge) -> bool:
        raise NotImplementedError

    def _wanted(self, answer: LogIn) -> LoginWanted:
        raise NotImplementedError


Ask = Callable[[str, tuple[str, ...]], LoginWanted]
"""Returns how a person is told to log in, from what was seen and the scopes to ask for."""


def ask_for_command(name: str, command: tuple[str, ...]) -> Ask:
    """Tells a person to run a command. `command`: its words, without scopes."""

    def ask(seen: str, scope: tuple[str, ...]) -> LoginWanted:
        text = shlex.join([*command, *(word for each in scope for word in ("--scope", each))])
        login = msgspec.json.encode({"command": text, **({"scope": list(scope)} if scope else {})})
        return LoginWanted(f"{name} {seen}: {text}", login)

    return ask


class PersonTokens(_Tokens):
    """The tokens of a login that a person made.

    Args:
        ask: says how a person logs in.
        principal: the caller whose login it is; "": one for everyone.
    """

    def __init__(
        self,
        name: str,
        upstream: Upstream,
        store: LoginStore,
        ask: Ask,
        principal: str = "",
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(name, upstream, can_log_in=False, clock=clock)
        assert upstream.url is not None
        self._store = store
        self._ask = ask
        self._principal = principal
        self.group = LoginKey("", client_of(upstream.auth), resource_of(http_url(upstream.url)), principal).group
        self._outdated_from: float | None = None  # from then on what another process has written is to be read
        self._stored: Record | None = None  # as it was read last under its lock
        # A record that could not be written, and the one that it replaces: the tokens of that one are used up.
        self._unwritten: tuple[Record | None, Record] | None = None
        self._step_ups = StepUps()
        self._listed_at = -LISTED_AFTER_S
        self._listed = 0
        self._store_problem = ""

    def note_change(self) -> None:
        """Says that another process has written or removed a login of this caller, or may have. The next request reads
        the store."""
        self._outdated_from = -math.inf

    def current(self) -> bytes | None:
        return None if self._is_outdated() else super().current()

    async def header(self) -> bytes | None:
        if self._is_outdated():
            with anyio.CancelScope(shield=True):
                async with self._loading:
                    await self._load()
        return await super().header()

    async def _load(self) -> None:
        now, changed_at = time.monotonic(), self._store.changed_at()
        if now - self._listed_at < LISTED_AFTER_S and changed_at == self._listed:
            return
        self._listed_at, self._listed = now, changed_at
        self._store_problem = ""
        was_outdated, self._outdated_from = self._outdated_from is not None, None
        try:
            await self._write_left()
            found = await records_of(self._store, self._upstream, self._principal)
        except StoreError as error:
            self._store_problem = str(error)
            if was_outdated and self._outdated_from is None:
                self._outdated_from = time.monotonic() + READ_AGAIN_S
            return
        usable = next((self._newest(kept.record) for kept in found if kept.record.access_token), None)
        self._credential.receive_record(None if usable is None else self._configured(usable))

    def _is_outdated(self) -> bool:
        return self._outdated_from is not None and time.monotonic() >= self._outdated_from

    def _newest(self, stored: Record) -> Record:
        """Returns the record that counts in place of one that is stored."""
        return self._unwritten[1] if self._unwritten is not None and stored == self._unwritten[0] else stored

    async def _renew(self, seen: Record) -> Record | None:
        async with self._lock(seen) as held:
            flow = renew(seen, self._clock)
            reply: Fetched | FetchFailed | Record | None = None
            while True:
                try:
                    asked = flow.send(reply)
                except StopIteration as end:
                    found: Record | None = end.value
                    return found
                if isinstance(asked, Fetch):
                    held.check()  # a refresh token is sent once
                    reply = await fetch(asked, self._fetch_settings)
                elif isinstance(asked, Read):
                    reply = await self._read(held)
                else:
                    reply = None
                    try:
                        await self._write(held, asked.record)
                    except WrittenMeanwhile:
                        return await self._read(held)

    async def _read(self, held: HeldRecord) -> Record | None:
        data = await held.read()
        self._stored = None if data is None else decode_record(data)
        return None if self._stored is None else self._configured(self._newest(self._stored))

    async def _write(self, held: HeldRecord, record: Record) -> None:
        try:
            await held.write(encode_record(record))
            self._unwritten = None
        except WrittenMeanwhile:
            self._unwritten = None
            raise
        except StoreError as error:
            _log.error("%s: the login is renewed in this process only: %s", self._name, error)
            if self._unwritten is None:
                self._unwritten = self._stored, record
            else:
                self._unwritten = self._unwritten[0], record

    async def _write_left(self) -> None:
        """Writes a record that could not be written before, unless another process has written meanwhile."""
        if self._unwritten is None:
            return
        before, record = self._unwritten
        async with self._lock(record) as held:
            data = await held.read()
            if data is not None and decode_record(data) == before:
                await held.write(encode_record(record))
        self._unwritten = None

    def _lock(self, record: Record) -> AbstractAsyncContextManager[HeldRecord]:
        return self._store.lock(key_of(record, client_of(self._upstream.auth), self._principal))

    def _configured(self, record: Record) -> Record:
        """Returns the record with the secret that the configuration has now, if its client is registered by hand."""
        auth, registration = self._upstream.auth, record.registration
        if auth is None or not auth.client_secret or auth.client_id != registration.client_id:
            return record
        secret = msgspec.structs.replace(registration, client_secret=auth.client_secret)
        return msgspec.structs.replace(record, registration=secret)

    async def _step_up(self, token: str, status: int, challenge: BearerChallenge) -> bool:
        """A browser is never opened here: the request goes on if a person has logged in with more scopes meanwhile."""
        await self._load()
        record = self._credential.record
        if record is not None and record.access_token != token:
            return await self.header() is not None
        self._problem = None
        wanted = challenge.scope or ()
        if record is not None and not set(wanted) <= set(record.granted):
            scope = self._step_ups.begin(self._name, " ".join(wanted), status, challenge, record.requested)
            if scope is not None:
                self._problem = self._ask(f"needs the scope {' '.join(wanted)}", scope)
        return False

    def _wanted(self, answer: LogIn) -> LoginWanted:
        seen = self._store_problem or answer.reason
        return self._ask(f"wants you to log in{f' ({seen})' if seen else ''}", ())


class ClientTokens(_Tokens):
    """The tokens that the proxy gets as itself: with the secret or the key of its client, or for another token.

    Args:
        shown: returns the token that the caller has shown, which is exchanged; None: that of the settings is.
    """

    def __init__(
        self,
        name: str,
        upstream: Upstream,
        shown: Callable[[], str | None] | None = None,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._shown = shown
        super().__init__(name, upstream, can_log_in=True, clock=clock)
        self._challenge = BearerChallenge()
        self._earlier: tuple[str, ...] = ()
        self._step_ups = StepUps()
        self._reason = ""
        self._tried_at = -TRIED_AFTER_S

    async def _load(self) -> None:
        now = time.monotonic()
        if (
            self._credential.state not in (CredentialState.NONE, CredentialState.LOST)
            or now < self._tried_at + TRIED_AFTER_S
        ):
            return
        self._tried_at = now
        try:
            self._credential.receive_record(await self._log_in())
        except LoginFailed as error:
            _log.warning("%s: %s", self._name, error)
            self._reason = str(error)

    async def _renew(self, seen: Record) -> Record | None:
        return await self._log_in()

    async def _log_in(self) -> Record:
        auth, now = self._upstream.auth, self._clock()
        assert isinstance(auth, Unattended)
        settings = login_settings_of(self._upstream)
        shown = None if self._shown is None else self._shown()
        if self._shown is not None and shown is None:
            raise LoginFailed("the caller has shown no token that could be exchanged", is_unanswered=True)
        flow = await flow_of(auth, settings, self._challenge, now=now, earlier=self._earlier, shown=shown)
        login = await carry_out(flow, self._fetch_settings)
        self._earlier = login.scope
        return record_of(login, resource_of(settings.url), now)

    async def refused(self, value: bytes, challenge: str, status: int) -> bool:
        self._challenge = find_bearer([challenge]) or self._challenge
        return await super().refused(value, challenge, status)

    async def _step_up(self, token: str, status: int, challenge: BearerChallenge) -> bool:
        operation = " ".join(challenge.scope or ())
        scope = self._step_ups.begin(self._name, operation, status, challenge, self._earlier)
        if scope is None:
            self._problem = None
            return False
        self._earlier = scope
        try:
            with anyio.CancelScope(shield=True):
                found = await self._log_in()
        except LoginFailed as error:
            self._problem = self._wanted(LogIn(str(error)))
            return False
        self._credential.receive_record(found)
        return found.access_token != token

    def _wanted(self, answer: LogIn) -> LoginWanted:
        text = f"{self._name}: {answer.reason or self._reason or 'there is no token'}"
        return LoginWanted(text, msgspec.json.encode({"server": self._name}))


def tokens_of(name: str, upstream: Upstream, store: LoginStore, command: tuple[str, ...]) -> UpstreamTokens:
    """Returns the tokens of a server with one login. `command`: the words of the command that logs in there."""
    if isinstance(upstream.auth, OAuth):
        return PersonTokens(name, upstream, store, ask_for_command(name, command))
    return ClientTokens(name, upstream)
