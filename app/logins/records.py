"""The records of a server in the store: which one counts, and what earlier logins left."""

from __future__ import annotations

import msgspec

from ...core.logins.credentials import Record, decode_record, encode_record, record_of
from ...core.logins.login import LoginSettings
from ...core.logins.metadata import resource_of
from ...core.logins.registration import ClientSettings
from ...core.logins.requests import Login as Made
from ...core.logins.requests import Registration
from ..config.login_checks import http_url
from ..config.login_settings import Login, OAuth
from ..config.settings import Upstream
from .interface import ListedRecord, LoginKey, LoginStore


class Kept(msgspec.Struct, frozen=True):
    """A record that can be read, and its place."""

    key: LoginKey
    record: Record
    data: bytes

    def __repr__(self) -> str:
        return f"Kept({self.key!r}, {self.record!r})"


def login_settings_of(upstream: Upstream, client_issuer: str = "") -> LoginSettings:
    """Returns the settings of the login at a server.

    Args:
        client_issuer: where a client of the configuration has logged in before: it is registered there.
    """
    auth = upstream.auth or OAuth()
    assert upstream.url is not None
    client = ClientSettings(
        auth.client_id or "",
        auth.client_secret or "",
        auth.issuer or client_issuer,
        auth.redirect_host or "" if isinstance(auth, OAuth) else "",
    )
    return LoginSettings(http_url(upstream.url), client, auth.scope, auth.resource, auth.issuer or "")


def client_of(auth: Login | None) -> str:
    """Returns the client of a key: the id of the configuration, or "" if the proxy registers itself."""
    return "" if auth is None else auth.client_id or ""


def key_of(record: Record, client: str, principal: str = "") -> LoginKey:
    return LoginKey(record.registration.issuer, client, record.url, principal)


async def records_of(store: LoginStore, upstream: Upstream, principal: str = "") -> list[Kept]:
    """Returns the records of a server and its client, the latest login first.

    Args:
        principal: the caller whose logins they are; "": those for everyone.

    Raises:
        StoreError: the store cannot be used.
    """
    assert upstream.url is not None
    resource, client = resource_of(http_url(upstream.url)), client_of(upstream.auth)
    about = LoginKey("", client, resource, principal)
    issuer = None if upstream.auth is None else upstream.auth.issuer
    found = [
        kept
        for kept in read_all(await store.records(about))
        if kept.key.resource == resource and kept.key.client == client and kept.key.principal == principal
        if issuer in (None, kept.key.issuer)
    ]
    return sorted(found, key=lambda kept: kept.record.logged_in_at, reverse=True)


async def is_logged_in(store: LoginStore, upstream: Upstream) -> bool:
    """True if a person has logged in at a server.

    Raises:
        StoreError: the store cannot be used.
    """
    return any(kept.record.access_token for kept in await records_of(store, upstream))


def read_all(listed: list[ListedRecord]) -> list[Kept]:
    """Returns those that can be read, and are of the issuer under which they are filed."""
    found = []
    for each in listed:
        record = decode_record(each.record)
        if each.key is not None and record is not None and record.registration.issuer == each.key.issuer:
            found.append(Kept(each.key, record, each.record))
    return found


async def keep(
    store: LoginStore, upstream: Upstream, login: Made, principal: str, now: float
) -> tuple[LoginKey, Record]:
    """Puts a login into the store.

    Raises:
        StoreError: the store cannot be used.
    """
    assert upstream.url is not None
    record = record_of(login, resource_of(http_url(upstream.url)), now)
    key = key_of(record, client_of(upstream.auth), principal)
    async with store.lock(key) as held:
        await held.write(encode_record(record))
    return key, record


async def known_registrations(
    store: LoginStore, upstream: Upstream, principal: str = "", *, redirect: str = ""
) -> dict[str, Registration]:
    """Returns the registrations that earlier logins made, by issuer: those for this server first.

    A registration is of an authorization server, so one that was made for another server there counts as well.

    Args:
        redirect: the redirect URI that it has to have; "": any.
    """
    own = await records_of(store, upstream, principal)
    others = [kept for kept in read_all(await store.records()) if kept.key.client == client_of(upstream.auth)]
    found: dict[str, Registration] = {}
    for kept in (*own, *others):
        if redirect in ("", kept.record.registration.redirect):
            found.setdefault(kept.key.issuer, kept.record.registration)
    return found
