"""The login of a person at a server: one at a time, over all processes of the user.

A process that logs a person in holds a lock, and the login in progress is in the store: its state, verifier, issuer and
port. A second process waits for the first. If the first one is killed, the second takes over its port and the page that
is open, so that a program that starts isthmus anew opens no further page.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Final
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
import msgspec

from ...core.logins.challenges import BearerChallenge, find_bearer
from ...core.logins.credentials import Record
from ...core.logins.device import log_in_device
from ...core.logins.login import LoginSettings, OpenLogin, begin_login, end_login
from ...core.logins.metadata import resource_of
from ...core.logins.requests import Browse, Login, LoginFailed, Returned, ShowCode
from ...transports import web_fetch
from ...transports.web_fetch import FetchFailed, FetchSettings
from ..config.login_checks import http_url
from ..config.settings import Upstream
from . import callback
from .flows import carry_out, fetch_settings_of
from .interface import HeldRecord, LoginKey, LoginStore, RecordLocked
from .records import Kept, client_of, keep, known_registrations, login_settings_of, records_of
from .sealing import StoreError, UnreadableRecord

PORT: Final = 33418
"""The port of the redirect URI, if it is free: a client that is registered by hand has to name one."""
LOGIN_TIMEOUT_S: Final = 600.0
"""Seconds for a person to log in, and for which a login in progress can be taken over. Providers forget a login after 5
to 15 minutes."""

_PROBE: Final = b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}'
_OPEN: Final = "import sys, webbrowser; sys.exit(not webbrowser.open(sys.argv[1]))"

Say = Callable[[str], None]
"""A function that prints lines for a person."""


class How(msgspec.Struct, frozen=True):
    """The way in which a person logs in.

    Attributes:
        port: the port of the redirect URI; None: `PORT`, or another if that is taken.
        opens: a browser is opened here.
        pastes: the person pastes the address of the page at which the browser ended.
        survives: a process that is stopped leaves its login for another one to take over.
    """

    scope: tuple[str, ...] = ()
    port: int | None = None
    opens: bool = True
    pastes: bool = False
    is_device: bool = False
    survives: bool = False
    principal: str = ""
    """The caller whose login it is; "": it is for everyone."""


class _InProgress(msgspec.Struct, frozen=True):
    """A login in progress, as it is in the store. `began_at`: Unix seconds."""

    login: OpenLogin
    began_at: float

    @property
    def port(self) -> int | None:
        return urlsplit(self.login.redirect).port


def progress_key(upstream: Upstream, principal: str = "") -> LoginKey:
    """Returns the place of the login in progress at a server. Its issuer is not known from the beginning."""
    assert upstream.url is not None
    return LoginKey("", client_of(upstream.auth), resource_of(http_url(upstream.url)), principal)


async def log_in_person(
    upstream: Upstream, how: How, store: LoginStore, say: Say, *, before: Record | None = None
) -> Record:
    """Logs a person in, or waits for another process that does, and puts the login into the store.

    Args:
        before: the login there is already. Another one that is found counts; so does any one if this is None.

    Raises:
        LoginFailed: there is no login.
        StoreError: the store cannot be used.
    """
    key = progress_key(upstream, how.principal)
    try:
        with anyio.fail_after(LOGIN_TIMEOUT_S):
            async with AsyncExitStack() as stack:
                try:
                    held = await stack.enter_async_context(store.lock(key, timeout_s=0))
                except RecordLocked:
                    say(f"another isthmus is logging in at {key.resource}: waiting for it{await _page(store, key)}")
                    held = await stack.enter_async_context(store.lock(key, timeout_s=LOGIN_TIMEOUT_S))
                found = await latest_login(store, upstream, how.principal)
                if found is not None and found != before and set(how.scope) <= set(found.requested):
                    return found
                return await _log_in(upstream, how, store, say, held)
    except TimeoutError:
        raise LoginFailed(f"nobody logged in within {LOGIN_TIMEOUT_S:g} s: log in again") from None


async def latest_login(store: LoginStore, upstream: Upstream, principal: str = "") -> Record | None:
    """Returns the latest login at a server; None if nobody is logged in.

    Args:
        principal: the caller whose login it is; "": one for everyone.

    Raises:
        StoreError: the store cannot be used.
    """
    return next(
        (kept.record for kept in await records_of(store, upstream, principal) if kept.record.access_token), None
    )


async def _page(store: LoginStore, key: LoginKey) -> str:
    found = _fresh(await _read(store, key))
    return "" if found is None else f". Its page:\n{found.login.page}"


async def _log_in(upstream: Upstream, how: How, store: LoginStore, say: Say, held: HeldRecord) -> Record:
    # A store that cannot be used is told of before anybody logs in, not after.
    earlier = await records_of(store, upstream, how.principal)
    if how.is_device:
        login = await _log_in_device(upstream, how, store, say, earlier)
        return (await keep(store, upstream, login, how.principal, time.time()))[1]
    left = None if how.pastes else _fresh(await _read(store, progress_key(upstream, how.principal)))
    async with AsyncExitStack() as stack:
        arrived = None if left is None else await _listen_again(left, how, stack)
        if left is not None and arrived is not None:
            begun, is_open = left.login, True
            say(f"a login that was begun before goes on, with this page:\n{begun.page}")
        else:
            arrived = await _listen(how, stack)
            begun, is_open = await _begin(upstream, how, store, earlier, arrived.port), False
            if not how.pastes:
                await held.write(msgspec.json.encode(_InProgress(begun, time.time())))
        queries = arrived

        async def browse(page: Browse) -> Returned:
            if not page.is_open:
                await _open(page, how, say)
            return Returned(await _pasted() if how.pastes else await queries.query())

        is_left = False
        try:
            login = await carry_out(end_login(begun, is_open=is_open), fetch_settings_of(upstream), browse=browse)
            return (await keep(store, upstream, login, how.principal, time.time()))[1]
        except anyio.get_cancelled_exc_class():
            is_left = how.survives
            raise
        finally:
            if not is_left:
                with anyio.CancelScope(shield=True):
                    await _forget(held)


async def _listen_again(left: _InProgress, how: How, stack: AsyncExitStack) -> callback.Callback | None:
    """Listens where the page of a login in progress leads; None if it is another login, or the port is taken."""
    if left.port is None or how.port not in (None, left.port) or not set(how.scope) <= set(left.login.scope):
        return None
    try:
        return await stack.enter_async_context(callback.listening(left.port))
    except OSError:
        return None


async def _listen(how: How, stack: AsyncExitStack) -> callback.Callback:
    """Listens at the redirect URI."""
    wanted = PORT if how.port is None else how.port
    try:
        return await stack.enter_async_context(callback.listening(wanted))
    except OSError as error:
        if how.port is not None:
            raise LoginFailed(
                f"cannot listen on port {wanted}: {error.strerror or error}; take another --port"
            ) from None
        return await stack.enter_async_context(callback.listening(0))


async def _begin(upstream: Upstream, how: How, store: LoginStore, earlier: list[Kept], port: int) -> OpenLogin:
    fetch_settings = fetch_settings_of(upstream)
    challenge, is_asked = await _probe(upstream, fetch_settings)
    flow = begin_login(
        _settings(upstream, how, earlier),
        challenge,
        port=port,
        entropy=os.urandom,
        now=time.time(),
        known=await known_registrations(store, upstream, how.principal),
        earlier=earlier[0].record.requested if earlier and how.scope else (),
        is_asked=is_asked,
    )
    return await carry_out(flow, fetch_settings)


async def _log_in_device(upstream: Upstream, how: How, store: LoginStore, say: Say, earlier: list[Kept]) -> Login:
    fetch_settings = fetch_settings_of(upstream)
    challenge, _ = await _probe(upstream, fetch_settings)

    async def show(code: ShowCode) -> None:
        say(f"to log in, open {code.url} on any device, and type the code {code.code}")
        if code.complete_url:
            say(f"or open {code.complete_url}")

    flow = log_in_device(
        _settings(upstream, how, earlier),
        challenge,
        now=time.time(),
        known=await known_registrations(store, upstream, how.principal),
        earlier=earlier[0].record.requested if earlier and how.scope else (),
    )
    return await carry_out(flow, fetch_settings, show=show)


def _settings(upstream: Upstream, how: How, earlier: list[Kept]) -> LoginSettings:
    settings = login_settings_of(upstream, earlier[0].key.issuer if earlier and client_of(upstream.auth) else "")
    return msgspec.structs.replace(settings, scope=tuple(dict.fromkeys((*settings.scope, *how.scope))))


async def _probe(upstream: Upstream, settings: FetchSettings) -> tuple[BearerChallenge, bool]:
    """Returns the challenge of a server for a request without a token, and whether it asks for one at all.

    Many servers let `initialize` pass, so it is asked for something else.
    """
    assert upstream.url is not None
    headers = [
        (b"content-type", b"application/json"),
        (b"accept", b"application/json, text/event-stream"),
        *((name.lower().encode(), value.encode()) for name, value in upstream.headers.items()),
    ]
    try:
        found = await web_fetch.fetch("POST", http_url(upstream.url), tuple(headers), _PROBE, settings=settings)
    except FetchFailed:
        return BearerChallenge(), True  # what is asked next says why
    values = [value.decode("latin-1") for name, value in found.headers if name == b"www-authenticate"]
    return find_bearer(values) or BearerChallenge(), found.status in (401, 403)


async def _open(page: Browse, how: How, say: Say) -> None:
    say(f"to log in, open this page in a browser:\n{page.url}")
    if how.pastes:
        say("then paste here the address at which the browser has ended, even if it shows no page:")
    elif how.opens:
        # A browser in the terminal needs it. Without one, stdin and stdout may be those of an MCP client.
        has_terminal = sys.stdin is not None and sys.stdin.isatty()
        pipe = None if has_terminal else subprocess.DEVNULL
        command = [sys.executable, "-c", _OPEN, page.url]
        done = await anyio.run_process(command, stdin=pipe, stdout=pipe, stderr=pipe, check=False)
        if done.returncode:
            say("no browser could be opened")


async def _pasted() -> str:
    line: str = await anyio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True)
    if not line:
        raise LoginFailed("got no address on stdin: log in again")
    return urlsplit(line.strip()).query


async def _read(store: LoginStore, key: LoginKey) -> bytes | None:
    try:
        return await store.read(key)
    except UnreadableRecord:
        return None


def _fresh(data: bytes | None) -> _InProgress | None:
    """Returns a login in progress that can be taken over."""
    try:
        found = None if data is None else msgspec.json.decode(data, type=_InProgress)
    except msgspec.DecodeError:
        return None
    return found if found is not None and 0 <= time.time() - found.began_at < LOGIN_TIMEOUT_S else None


async def _forget(held: HeldRecord) -> None:
    """Removes a login in progress. One that cannot be read is overwritten by the next."""
    with contextlib.suppress(StoreError):
        data = await held.read()
        if data is not None:
            await held.remove(data)
