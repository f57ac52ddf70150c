"""`isthmus login`, `isthmus logout` and `isthmus auth`: logins of a person at servers."""

from __future__ import annotations

import shlex
from datetime import UTC, datetime

from ...core.logins.metadata import origin_of
from ...core.logins.requests import LoginFailed
from ..base import logs, output
from ..base.errors import Failed
from ..config.login_checks import http_url
from ..config.settings import Storage, Upstream
from ..logins.opening import opened_logins
from ..logins.person import How, latest_login, log_in_person
from ..logins.records import read_all, records_of
from ..logins.sealing import StoreError
from ..logins.transfer import export_logins, import_logins


async def log_in_at(upstream: Upstream, how: How, storage: Storage | None = None) -> None:
    """Logs a person in, and puts the login into the store.

    Args:
        storage: that of the configuration, which may name shared records; None: there is none.

    Raises:
        Failed: there is no login.
    """
    try:
        async with opened_logins(storage) as store:
            before = await latest_login(store, upstream, how.principal)
            record = await log_in_person(upstream, how, store, output.say, before=before)
    except (LoginFailed, StoreError) as error:
        raise Failed(str(error)) from None
    scopes = f", scopes {' '.join(record.granted)}" if record.granted else ""
    lasts = "renewed by itself" if record.refresh_token else f"until {_time(record.expires_at)}"
    whose = f" as {how.principal}" if how.principal else ""
    output.say(f"logged in at {record.registration.issuer} for {record.url}{whose}: {lasts}{scopes}")


async def log_out_at(upstream: Upstream, principal: str = "", storage: Storage | None = None) -> None:
    """Removes the logins at a server from the store, also those that other processes use.

    Args:
        principal: the caller whose logins they are; "": those for everyone.
        storage: as in `log_in_at`.

    Raises:
        Failed: there is none.
    """
    try:
        async with opened_logins(storage) as store:
            found = [kept for kept in await records_of(store, upstream, principal) if kept.record.access_token]
            for kept in found:
                async with store.lock(kept.key) as held:
                    data = await held.read()
                    if data is not None and await held.remove(data):
                        output.say(f"logged out at {kept.key.issuer} for {kept.key.resource}")
    except StoreError as error:
        raise Failed(str(error)) from None
    if not found:
        assert upstream.url is not None
        who = principal or "nobody"
        seen = "is not logged in" if principal else "is logged in"
        raise Failed(f"{who} {seen} at {origin_of(http_url(upstream.url))}")


async def list_logins(storage: Storage | None = None, *, as_json: bool) -> None:
    """Prints all logins of the store: server, issuer, scopes and expiry, and never a token.

    Args:
        storage: as in `log_in_at`.

    Raises:
        Failed: the store cannot be used.
    """
    try:
        async with opened_logins(storage) as store:
            listed = await store.records()
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
            "caller": kept.key.principal,
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
        whose = f"  as {row['caller']}" if row["caller"] else ""
        output.say(f"{row['resource']}  at {row['issuer']}{whose}  scopes {scopes}  {renewed}")
    if not rows:
        output.say("nobody is logged in")


async def export_all(path: str, passphrase: str, storage: Storage | None = None) -> None:
    """Moves all logins into a file.

    Args:
        storage: as in `log_in_at`.

    Raises:
        Failed: there are none, or they cannot be moved.
    """
    try:
        async with opened_logins(storage) as store:
            moved = await export_logins(store, path, passphrase)
    except StoreError as error:
        raise Failed(str(error)) from None
    if not moved:
        raise Failed("nobody is logged in")
    for key in moved:
        output.say(f"moved the login at {key.issuer} for {key.resource}")
    output.say(f"on the other machine: isthmus auth import {shlex.quote(path)}")


async def import_all(path: str, passphrase: str, storage: Storage | None = None) -> None:
    """Takes the logins of a file.

    Args:
        storage: as in `log_in_at`.

    Raises:
        Failed: they cannot be taken, or there are others here.
    """
    try:
        async with opened_logins(storage) as store:
            added, left = await import_logins(store, path, passphrase)
    except StoreError as error:
        raise Failed(str(error)) from None
    for key in added:
        output.say(f"took the login at {key.issuer} for {key.resource}")
    if left:
        places = ", ".join(key.resource for key in left)
        raise Failed(f"another login is here for {places}: isthmus logout there first, and import again")


def _time(at: float | None) -> str:
    return "it is rejected" if at is None else datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")
