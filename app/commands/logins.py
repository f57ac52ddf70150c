"""`isthmus login`, `isthmus logout` and `isthmus auth`: logins of a person at servers."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
import time
import webbrowser
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Final
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
import msgspec

from ...core.logins.challenges import BearerChallenge, find_bearer
from ...core.logins.credentials import encode_record, record_of
from ...core.logins.device import log_in_device
from ...core.logins.login import log_in
from ...core.logins.metadata import origin_of, resource_of
from ...core.logins.requests import Browse, Login, LoginFailed, Returned, ShowCode
from ...transports import web_fetch
from ...transports.web_fetch import FetchFailed, FetchSettings
from ..base import logs, output
from ..base.errors import Failed
from ..config.login_checks import http_url
from ..config.settings import Upstream
from ..logins import callback
from ..logins.flows import carry_out, fetch_settings_of
from ..logins.records import client_of, key_of, known_registrations, login_settings_of, read_all, records_of
from ..logins.store import CredentialStore, StoreError, default_folder
from ..logins.transfer import export_logins, import_logins

PORT: Final = 33418
"""The port of the redirect URI, if it is free: a client that is registered by hand has to name one."""
LOGIN_TIMEOUT_S: Final = 600.0
"""Seconds for a person to log in. Providers forget a login after 5 to 15 minutes."""

_PROBE: Final = b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}'


class How(msgspec.Struct, frozen=True):
    """The way in which a person logs in.

    Attributes:
        port: the port of the redirect URI; None: `PORT`, or another if that is taken.
        opens: a browser is opened here.
        pastes: the person pastes the address of the page at which the browser ended.
    """

    scope: tuple[str, ...] = ()
    port: int | None = None
    opens: bool = True
    pastes: bool = False
    is_device: bool = False


async def log_in_at(upstream: Upstream, how: How) -> None:
    """Logs a person in, and puts the login into the store.

    Raises:
        Failed: there is no login.
    """
    store = CredentialStore(default_folder())
    try:
        with anyio.fail_after(LOGIN_TIMEOUT_S):
            await _log_in(upstream, how, store)
    except (LoginFailed, StoreError) as error:
        raise Failed(str(error)) from None
    except TimeoutError:
        raise Failed(f"nobody logged in within {LOGIN_TIMEOUT_S:g} s: log in again") from None


async def _log_in(upstream: Upstream, how: How, store: CredentialStore) -> None:
    fetch_settings = fetch_settings_of(upstream)
    # A store that cannot be used is told of before anybody logs in, not after.
    earlier = await records_of(store, upstream)
    known = await known_registrations(store, upstream)
    settings = login_settings_of(upstream, earlier[0].key.issuer if earlier and client_of(upstream.auth) else "")
    settings = msgspec.structs.replace(settings, scope=tuple(dict.fromkeys((*settings.scope, *how.scope))))
    scope = earlier[0].record.requested if earlier and how.scope else ()
    challenge, is_asked = await _probe(upstream, fetch_settings)
    asked_at = time.time()
    if how.is_device:
        flow = log_in_device(settings, challenge, now=asked_at, known=known, earlier=scope)
        login = await carry_out(flow, fetch_settings, show=_show)
    else:
        async with _redirects(how) as (port, arrived):

            async def browse(page: Browse) -> Returned:
                if not page.is_open:
                    await _open(page, how)
                return Returned(await _pasted() if how.pastes else await arrived.query())

            login = await carry_out(
                log_in(
                    settings,
                    challenge,
                    port=port,
                    entropy=os.urandom,
                    now=asked_at,
                    known=known,
                    earlier=scope,
                    is_asked=is_asked,
                ),
                fetch_settings,
                browse=browse,
            )
    await _keep(store, login, settings.url, client_of(upstream.auth))


async def _keep(store: CredentialStore, login: Login, url: str, client: str) -> None:
    now = time.time()
    record = record_of(login, resource_of(url), now)
    key = key_of(record, client)
    async with store.lock(key) as held:
        await held.write(encode_record(record))
    scopes = f", scopes {' '.join(record.granted)}" if record.granted else ""
    lasts = "renewed by itself" if record.refresh_token else f"until {_time(record.expires_at)}"
    output.say(f"logged in at {key.issuer} for {key.resource}: {lasts}{scopes}")


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


@asynccontextmanager
async def _redirects(how: How) -> AsyncIterator[tuple[int, callback.Callback]]:
    """Listens at the redirect URI."""
    wanted = PORT if how.port is None else how.port
    async with contextlib.AsyncExitStack() as stack:
        try:
            opened = await stack.enter_async_context(callback.listening(wanted))
        except OSError as error:
            if how.port is not None:
                raise LoginFailed(
                    f"cannot listen on port {wanted}: {error.strerror or error}; take another --port"
                ) from None
            opened = await stack.enter_async_context(callback.listening(0))
        yield opened.port, opened


async def _open(page: Browse, how: How) -> None:
    output.say(f"to log in, open this page in a browser:\n{page.url}")
    if how.pastes:
        output.say("then paste here the address at which the browser has ended, even if it shows no page:")
    elif how.opens and not await anyio.to_thread.run_sync(webbrowser.open, page.url):
        logs.say("no browser could be opened")


async def _pasted() -> str:
    line: str = await anyio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True)
    if not line:
        raise LoginFailed("got no address on stdin: log in again")
    return urlsplit(line.strip()).query


async def _show(code: ShowCode) -> None:
    output.say(f"to log in, open {code.url} on any device, and type the code {code.code}")
    if code.complete_url:
        output.say(f"or open {code.complete_url}")


async def log_out_at(upstream: Upstream) -> None:
    """Removes the logins at a server from the store, also those that other processes use.

    Raises:
        Failed: there is none.
    """
    store = CredentialStore(default_folder())
    try:
        found = [kept for kept in await records_of(store, upstream) if kept.record.access_token]
        for kept in found:
            async with store.lock(kept.key) as held:
                data = await held.read()
                if data is not None and await held.remove(data):
                    output.say(f"logged out at {kept.key.issuer} for {kept.key.resource}")
    except StoreError as error:
        raise Failed(str(error)) from None
    if not found:
        assert upstream.url is not None
        raise Failed(f"nobody is logged in at {origin_of(http_url(upstream.url))}")


async def list_logins(*, as_json: bool) -> None:
    """Prints all logins of the store: server, issuer, scopes and expiry, and never a token.

    Raises:
        Failed: the store cannot be used.
    """
    try:
        listed = await CredentialStore(default_folder()).records()
    except StoreError as error:
        raise Failed(str(error)) from None
    for each in listed:
        if each.problem:
            logs.say(each.problem)
    rows = [
        {
            "resource": kept.key.resource,
            "issuer": kept.key.issuer,
            "client_id": kept.record.registration.client_id,
            "scopes": list(kept.record.granted),
            "expires": _time(kept.record.expires_at),
            "is_renewed": bool(kept.record.refresh_token),
        }
        for kept in read_all(listed)
        if kept.record.access_token
    ]
    if as_json:
        output.say_json(rows)
        return
    for row in rows:
        renewed = "renewed by itself" if row["is_renewed"] else f"until {row['expires']}"
        scopes = " ".join(map(str, row["scopes"])) if isinstance(row["scopes"], list) and row["scopes"] else "-"
        output.say(f"{row['resource']}  at {row['issuer']}  scopes {scopes}  {renewed}")
    if not rows:
        output.say("nobody is logged in")


async def export_all(path: str, passphrase: str) -> None:
    """Moves all logins into a file.

    Raises:
        Failed: there are none, or they cannot be moved.
    """
    try:
        moved = await export_logins(CredentialStore(default_folder()), path, passphrase)
    except StoreError as error:
        raise Failed(str(error)) from None
    if not moved:
        raise Failed("nobody is logged in")
    for key in moved:
        output.say(f"moved the login at {key.issuer} for {key.resource}")
    output.say(f"on the other machine: isthmus auth import {shlex.quote(path)}")


async def import_all(path: str, passphrase: str) -> None:
    """Takes the logins of a file.

    Raises:
        Failed: they cannot be taken, or there are others here.
    """
    try:
        added, left = await import_logins(CredentialStore(default_folder()), path, passphrase)
    except StoreError as error:
        raise Failed(str(error)) from None
    for key in added:
        output.say(f"took the login at {key.issuer} for {key.resource}")
    if left:
        places = ", ".join(key.resource for key in left)
        raise Failed(f"another login is here for {places}: isthmus logout there first, and import again")


def _time(at: float | None) -> str:
    return "it is rejected" if at is None else datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")
