"""Logins of callers: the tokens of each, and how one that has none is told to log in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

import msgspec

from ...transports.base.tokens import LoginWanted, UpstreamTokens
from ..config.login_checks import exchanges_tokens
from ..config.settings import Upstream
from .interface import LoginStore
from .tokens import Ask, ClientTokens, PersonTokens

CALLERS_MAX: Final = 1000
"""Callers of a server whose tokens are in memory. At it: those of the one that has called least lately are dropped, and
read from the store again when it calls."""


class CallerTokens:
    """The tokens of each caller of one server, as `TokensOf` of the transports.

    Args:
        ask_of: returns how a caller is told to log in.
        token_of: returns the token that a caller has shown, for those that are exchanged.
    """

    def __init__(
        self,
        name: str,
        upstream: Upstream,
        store: LoginStore,
        ask_of: Callable[[str], Ask],
        token_of: Callable[[str], str | None],
    ) -> None:
        self._name = name
        self._upstream = upstream
        self._store = store
        self._ask_of = ask_of
        self._token_of = token_of
        self._known: dict[str, UpstreamTokens] = {}  # the one that has called last stands last

    def __call__(self, principal: str) -> UpstreamTokens:
        found = self._known.pop(principal, None)
        if found is None:
            found = self._make(principal)
            if len(self._known) >= CALLERS_MAX:
                del self._known[next(iter(self._known))]
        self._known[principal] = found
        return found

    def persons(self) -> Iterator[PersonTokens]:
        """Yields the tokens in memory that are those of a login which a person made."""
        return (each for each in self._known.values() if isinstance(each, PersonTokens))

    def _make(self, principal: str) -> UpstreamTokens:
        if not principal:
            return NoTokens(self._name)
        if exchanges_tokens(self._upstream):
            return ClientTokens(self._name, self._upstream, partial(self._token_of, principal))
        return PersonTokens(self._name, self._upstream, self._store, self._ask_of(principal), principal)


class NoTokens:
    """The tokens of a caller without a name: there are none, and there can be none."""

    def __init__(self, name: str) -> None:
        text = f"{name} has a login for each caller, and this one is not recognised: send a token of your own"
        self._wanted = LoginWanted(text, msgspec.json.encode({"server": name}))

    def current(self) -> bytes | None:
        return None

    async def header(self) -> bytes | None:
        return None

    async def refused(self, value: bytes, challenge: str, status: int) -> bool:
        return False

    def login_wanted(self) -> LoginWanted | None:
        return self._wanted
