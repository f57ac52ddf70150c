"""The tokens of a server that `isthmus wrap` stands in front of, which may want a login or not.

A request is sent without a token until the server refuses one. From then on it takes a login from the store, whenever
that was made.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import anyio

from ...core.logins.challenges import find_bearer
from ...core.logins.credentials import CredentialState, LogIn
from ...core.logins.requests import LoginFailed
from ...transports.base.tokens import LoginWanted
from ..config.settings import Upstream
from .interface import LoginStore
from .person import How, Say, log_in_person, progress_key
from .sealing import StoreError
from .tokens import PersonTokens, ask_for_command

HOLD_S: Final = 45.0
"""Seconds for which the requests of a client on stdio wait for a login in progress. Many clients wait 60 s."""
POLL_S: Final = 0.2


class Opener:
    """Opens a browser for a login, once requests want one. After a login that failed, none is opened any more.

    Args:
        say: called with lines for the person.
    """

    def __init__(self, upstream: Upstream, store: LoginStore, say: Say) -> None:
        self._upstream = upstream
        self._store = store
        self._say = say
        self._wanted = anyio.Event()
        self._is_spent = False

    @property
    def is_busy(self) -> bool:
        """True if a login is in progress, or about to be."""
        return self._wanted.is_set() and not self._is_spent

    def ask(self) -> None:
        """Has a person log in. Called while that goes on, nothing happens."""
        self._wanted.set()

    async def run(self) -> None:
        """Logs in whenever it is asked to. Returns after a login that failed."""
        while not self._is_spent:
            await self._wanted.wait()
            try:
                found = await log_in_person(self._upstream, How(survives=True), self._store, self._say)
                self._say(f"logged in at {found.registration.issuer} for {found.url}")
                self._wanted = anyio.Event()
            except (LoginFailed, StoreError) as error:
                self._is_spent = True
                self._say(str(error))


class WrapTokens(PersonTokens):
    """The tokens of a wrapped server.

    Args:
        holds_s: seconds for which requests wait for a login in progress.
        say: called once with the line for a person who has to log in.
        opener: opens a browser; None: nothing does.
    """

    def __init__(
        self,
        name: str,
        upstream: Upstream,
        store: LoginStore,
        command: tuple[str, ...],
        *,
        holds_s: float,
        say: Say,
        opener: Opener | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(name, upstream, store, ask_for_command(name, command), clock=clock)
        self._holds_s = holds_s
        self._say = say
        self._opener = opener
        self._holds_until: float | None = None
        self._said = ""
        self._is_without = False  # there is no login, and none was asked for since that was seen

    def current(self) -> bytes | None:
        found = super().current()
        return b"" if found is None and self._is_without else found

    async def header(self) -> bytes | None:
        found = await super().header()
        self._is_without = found is None and self._credential.state is CredentialState.NONE
        if self._is_without:
            self._problem = None
            return b""
        return await self._held() if found is None else found

    async def refused(self, value: bytes, challenge: str, status: int) -> bool:
        if value:
            is_renewed = await super().refused(value, challenge, status)
            if not self._is_without:
                return is_renewed
        elif challenge and find_bearer([challenge]) is None:
            self._problem = None  # it wants credentials of another kind
            return False
        self._is_without = False
        return await self._held() is not None

    async def _held(self) -> bytes | None:
        """Returns the token of a login; None if there is none. One that is in progress is waited for."""
        found = await super().header()
        if found is None and self._opener is not None:
            self._opener.ask()
        while found is None:
            waits = await self._is_in_progress() and self._may_wait()
            if waits:
                await anyio.sleep(POLL_S)
            found = await super().header()  # a login that is over by now was perhaps under way at the last look
            if not waits:
                break
        if found is not None:
            self._holds_until = None
        elif self._problem is not None and self._problem.message != self._said:
            self._said = self._problem.message
            self._say(self._said)
        return found

    def _may_wait(self) -> bool:
        """True during the first `holds_s`: what comes later is answered at once."""
        now = time.monotonic()
        if self._holds_until is None:
            self._holds_until = now + self._holds_s
        return now < self._holds_until

    async def _is_in_progress(self) -> bool:
        if self._opener is not None and self._opener.is_busy:
            return True
        try:
            return await self._store.is_locked(progress_key(self._upstream))
        except StoreError:
            return False

    def _wanted(self, answer: LogIn) -> LoginWanted:
        seen = self._store_problem or answer.reason
        return self._ask(f"wants credentials{f' ({seen})' if seen else ''}: give them with --header, or log in", ())
