"""Tokens for one server: which one a request has, and what happens once the server refuses it.

A request that was refused over its token (401, or 403 with a challenge) has not run. It is sent once more if there is
another token now. Source: 2026-07-28 basic/authorization, "Token Requirements", "Scope Challenge Handling".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

import msgspec

from ...core.base.events import Cause, End
from ...core.wire.http.failure import UNAUTHORIZED
from ...core.wire.http.request import is_value

FORBIDDEN: Final = 403
STEP_UPS_MAX: Final = 2
"""The most times that one request is sent once more with a token of wider scope."""
AUTHORIZATION: Final = b"authorization"


class LoginWanted(msgspec.Struct, frozen=True):
    """The words and the `data.login` of the error for requests that need a login.

    Args:
        message: for people: what is wanted, and the command for it.
        login: a JSON object for programs, such as `{"command": "isthmus login notion"}`.
    """

    message: str
    login: bytes


class UpstreamTokens(Protocol):
    """The tokens for one server. Any number of requests use it at once.

    A caller may be cancelled while it waits. What others wait for as well, such as a refresh, goes on then.
    """

    def current(self) -> bytes | None:
        """Returns what `header` would return at once; None if that has to be awaited."""

    async def header(self) -> bytes | None:
        """Returns the value of `Authorization` for a request that is to be sent now, after a refresh if it is due.

        b"" sends the request without that header. None: there is no token, and the request is not sent.
        """

    async def refused(self, value: bytes, challenge: str, status: int) -> bool:
        """Handles the refusal of a request. Returns True if `header` has another token now: the request is sent again.

        Args:
            value: what the request had; b"": no such header.
            challenge: the `WWW-Authenticate` of the refusal; "" if it has none.
            status: 401, or 403 with a challenge.
        """

    def login_wanted(self) -> LoginWanted | None:
        """Returns the error for a request that has no token, or was refused for good; None: the usual one."""


TokensOf = Callable[[str], UpstreamTokens]
"""Returns the tokens for one server, by the principal whose login it is: "" for that of the proxy itself."""


class Authorization:
    """The token of one request.

    Attributes:
        value: the value of the header; None while it is not known.
    """

    __slots__ = ("_is_repeated", "_step_ups", "_tokens", "value")

    def __init__(self, tokens: UpstreamTokens) -> None:
        self._tokens = tokens
        self._is_repeated = False  # sent once more after a 401
        self._step_ups = 0
        value = tokens.current()
        self.value = value if value is None or is_value(value) else None

    async def prepare(self) -> Cause | None:
        """Waits for a token. Returns the end of the request if there is none."""
        self.value = await self._tokens.header()
        if self.value is None:
            # A 401 without a challenge could be about a session.
            return self.explain(Cause(End.REFUSED, "there is no token for it", UNAUTHORIZED, challenge="Bearer"))
        if not is_value(self.value):
            return Cause(End.UNREACHABLE, "its token has characters that no header can carry", unsent=True)
        return None

    def may_ask(self, status: int, *, is_challenged: bool) -> bool:
        """True if a refusal may be about the token, and the request may be sent once more."""
        if status == FORBIDDEN:
            return is_challenged and self._step_ups < STEP_UPS_MAX
        return status == UNAUTHORIZED and not self._is_repeated

    async def renew(self, refusal: Cause) -> Cause | None:
        """Asks for another token after a refusal. Returns the end of the request if there is none."""
        assert self.value is not None
        if refusal.status == FORBIDDEN:
            self._step_ups += 1
        else:
            self._is_repeated = True
        if await self._tokens.refused(self.value, refusal.challenge, refusal.status):
            return await self.prepare()
        return self.explain(refusal)

    def explain(self, cause: Cause) -> Cause:
        """Adds to a refusal over credentials what a person can do about it."""
        if cause.end is not End.REFUSED or cause.status not in (UNAUTHORIZED, FORBIDDEN):
            return cause
        wanted = self._tokens.login_wanted()
        if wanted is None:
            return cause
        challenge = cause.challenge or "Bearer"
        return msgspec.structs.replace(cause, detail=wanted.message, login=wanted.login, challenge=challenge)


def with_value(headers: list[tuple[bytes, bytes]], value: bytes) -> list[tuple[bytes, bytes]]:
    """Returns headers, names in lower case, with this `Authorization` instead of any other; b"": with none."""
    others = [field for field in headers if field[0] != AUTHORIZATION]
    return [*others, (AUTHORIZATION, value)] if value else others
