"""Tokens that expire and are renewed, and servers that check them."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

import anyio
from client_fakes import Peer
from isthmus.transports.base.tokens import LoginWanted

WANTED = LoginWanted("files wants you to log in: isthmus login files", b'{"command":"isthmus login files"}')
CHALLENGE = b'WWW-Authenticate: Bearer resource_metadata="https://s.example/.well-known/x", error="invalid_token"'
STEP_UP = b'WWW-Authenticate: Bearer error="insufficient_scope", scope="a b"'

_AUTHORIZATION = re.compile(rb"(?im)^authorization: ([^\r\n]*)\r$")


def authorizations(request: bytes) -> list[bytes]:
    return _AUTHORIZATION.findall(request.partition(b"\r\n\r\n")[0] + b"\r\n")


class FakeTokens:
    """Has `values` one after another. A refusal of the current one makes the next current.

    Args:
        values: b"" sends no header; behind the last one there is no token.
        is_ready: the current one is known without a wait.
    """

    def __init__(self, *values: bytes, is_ready: bool = True) -> None:
        self.values = list(values)
        self.is_ready = is_ready
        self.gate: anyio.Event | None = None  # what `header` waits for
        self.waiting = 0
        self.was_cancelled = 0
        self.refusals: list[tuple[bytes, str, int]] = []
        self.wanted: LoginWanted | None = WANTED
        self.failure: Exception | None = None

    def current(self) -> bytes | None:
        return self.values[0] if self.values and self.is_ready and self.gate is None else None

    async def header(self) -> bytes | None:
        await anyio.lowlevel.checkpoint()
        if self.failure is not None:
            raise self.failure
        if self.gate is not None:
            self.waiting += 1
            try:
                await self.gate.wait()
            except BaseException:
                self.was_cancelled += 1
                raise
            finally:
                self.waiting -= 1
        return self.values[0] if self.values else None

    async def refused(self, value: bytes, challenge: str, status: int) -> bool:
        await anyio.lowlevel.checkpoint()
        self.refusals.append((value, challenge, status))
        if self.values and self.values[0] == value:
            del self.values[0]
        return bool(self.values)

    def login_wanted(self) -> LoginWanted | None:
        return self.wanted


def refusal(status: bytes = b"401 Unauthorized", *headers: bytes, body: bytes = b"no") -> bytes:
    lines = [b"HTTP/1.1 " + status, b"Content-Length: %d" % len(body), *headers]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def wanting(accepted: set[bytes], answer: Callable[[Peer, bytes], Awaitable[None]], *headers: bytes):  # type: ignore[no-untyped-def]
    """A server that refuses each request without an accepted token with 401, and has `answer` for the others."""

    async def script(peer: Peer) -> None:
        while True:
            request = await peer.request()
            if accepted.issuperset(authorizations(request) or [b""]):
                await answer(peer, request)
            else:
                await peer.send(refusal(b"401 Unauthorized", *(headers or (CHALLENGE,))))

    return script
