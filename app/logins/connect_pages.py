"""The pages at which callers log in at servers: `/connect/ID`, and `/connect`, where their browsers come back to.

A visit is known by a cookie, so that no other browser can end it. Its answers go to the flow in `core/connect`, which
decides all of it. While its browser is elsewhere, it is in the records (`visits`).
"""

from __future__ import annotations

import html
import logging
import os
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote, urlencode

import msgspec

from ...core.connect.browser_login import BrowserClient
from ...core.connect.connection import (
    AnotherCaller,
    CallerKnown,
    Connected,
    LoginPlan,
    OpenVisit,
    begin_visit,
    go_on,
)
from ...core.connect.tickets import Tickets
from ...core.logins.requests import Browse, Fetch, LoginFailed, Returned
from ...core.wire.http.routes import PageRoute, Refused
from ...transports.base.tokens import LoginWanted
from ...transports.web_fetch import FetchSettings
from ..config.settings import Upstream
from .flows import fetch, fetch_settings_of
from .interface import LoginStore
from .records import client_of, keep, known_registrations, login_settings_of, records_of
from .sealing import StoreError
from .tokens import Ask
from .visits import VISIT_TTL_S, Visit, Visits

_PRESENT: Final = 0xFFFF
"""The number of the issuer in tickets of callers that the gate recognises at the page itself."""
_RECOGNISED: Final = ("proxy:", "cert:")
"""The beginnings of their principals: the browser comes through the same proxy, or has the same certificate."""
_log: Final = logging.getLogger("isthmus.logins")
_audit: Final = logging.getLogger("isthmus.audit")


class Issuer(msgspec.Struct, frozen=True):
    """An issuer at which browsers log in, and the settings of requests to it."""

    client: BrowserClient
    fetching: FetchSettings


class ConnectPages:
    """Serves the pages.

    Args:
        base_url: the URL under which clients and browsers reach this gateway.
        key: a secret of this gateway.
        servers: the servers at which callers log in, by id.
        issuers: the issuers at which browsers log in.
        visits: those under way, of all replicas.
    """

    def __init__(
        self,
        base_url: str,
        key: bytes,
        servers: Mapping[str, Upstream],
        issuers: Sequence[Issuer],
        store: LoginStore,
        visits: Visits,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._base_url = base_url.rstrip("/")
        self._tickets = Tickets(key)
        self._servers = servers
        self._issuers = issuers
        self._store = store
        self._clock = clock
        self._visits = visits
        is_safe = base_url.startswith("https://")
        self._cookie = "__Host-isthmus-connect" if is_safe else "isthmus-connect"
        self._attributes = f"Path=/; HttpOnly; SameSite=Lax; Max-Age={VISIT_TTL_S:.0f}{'; Secure' if is_safe else ''}"

    def ask_of(self, server: str, principal: str) -> Ask | None:
        """Returns how a caller is told to log in at a page; None if no page can tell who sits at the browser."""
        issuer = _PRESENT if principal.startswith(_RECOGNISED) else self._issuer_of(principal)
        if issuer is None:
            return None

        def ask(seen: str, scope: tuple[str, ...]) -> LoginWanted:
            scopes = " ".join(scope)
            ticket = self._tickets.make(server, principal, issuer, self._clock(), scopes)
            asked = {"ticket": ticket, **({"scope": scopes} if scopes else {})}
            url = f"{self._base_url}/connect/{quote(server, safe='')}?{urlencode(asked)}"
            id = self._tickets.id_of(server, principal)
            return LoginWanted(f"{server} {seen}: open {url}", msgspec.json.encode({"url": url, "elicitationId": id}))

        return ask

    async def answer(self, route: PageRoute) -> Refused:
        """Returns the response to a request for one of the pages."""
        if route.id:
            return await self._begin(route)
        name = self._cookie + "="
        values = [part.strip()[len(name) :] for part in route.cookie.split(";") if part.strip().startswith(name)]
        try:
            visit = await self._visits.take(values[0]) if len(values) == 1 else None
        except StoreError as error:
            return _unkept("", error)
        if visit is None or visit.open.server not in self._servers:
            return _page(400, "This login is not under way here. Open the link that your client shows again.")
        if visit.present and route.identity.principal not in ("", visit.present):
            _audit.warning("a login at %s is refused: another caller goes on with it", visit.open.server)
            return _page(403, "Another caller has begun this login: ask your own client for a link.")
        flow = go_on(visit.open, self._tickets, client=self._client_of(visit), entropy=os.urandom, clock=self._clock)
        return await self._advance(values[0], visit, flow, Returned(urlencode(route.query)))

    async def _begin(self, route: PageRoute) -> Refused:
        server, scopes = route.id, route.query.get("scope", "")
        upstream = self._servers.get(server)
        ticket = self._tickets.read(route.query.get("ticket", ""), server, self._clock(), scopes)
        if upstream is None or ticket is None:
            return _page(404, "This link is not valid, or too old. Ask your client for a new one.")
        present = route.identity.principal
        try:
            await records_of(self._store, upstream, present)  # a store that cannot be used is told of before the login
            ends_at_unix = await self._visits.end_of_new()
        except StoreError as error:
            return _unkept(server, error)
        visit = Visit(OpenVisit(ticket, server), scopes, present, ends_at_unix)
        flow = begin_visit(
            self._tickets,
            ticket,
            server,
            redirect=self._redirect,
            known_caller=present,
            client=self._client_of(visit),
            entropy=os.urandom,
            clock=self._clock,
        )
        cookie = self._visits.new_cookie()
        found = await self._advance(cookie, visit, flow, None)
        set_cookie = (b"set-cookie", f"{self._cookie}={cookie}; {self._attributes}".encode())
        return msgspec.structs.replace(found, headers=(*found.headers, set_cookie))

    async def _advance(
        self,
        cookie: str,
        visit: Visit,
        flow: Generator[Any, Any, OpenVisit | Connected],
        returned: Returned | None,
    ) -> Refused:
        server = visit.open.server
        try:
            found = await self._carry_on(visit, flow, returned)
            if isinstance(found, OpenVisit):
                await self._visits.keep(cookie, msgspec.structs.replace(visit, open=found))
                return _to(found.page)
            await keep(self._store, self._servers[server], found.login, found.principal, self._clock())
        except AnotherCaller as error:
            _audit.warning("a login at %s by another person than the caller of its link is refused", server)
            return _page(403, str(error))
        except LoginFailed as error:
            _log.warning("%s: %s", server, error)
            return _page(400, f"Nobody was logged in: {error}")
        except StoreError as error:
            return _unkept(server, error)
        _audit.info("%s logged in at %s", found.principal[:200], server)
        return _page(200, f"You are logged in at {server}. Close this page and go on in your client.")

    async def _carry_on(
        self, visit: Visit, flow: Generator[Any, Any, OpenVisit | Connected], returned: Returned | None
    ) -> OpenVisit | Connected:
        """Goes on with a visit until its browser is needed, or it is over."""
        upstream = self._servers[visit.open.server]
        issuer = None if visit.present or visit.open.login is not None else self._issuer_in(visit)
        reply: object = None
        while True:
            try:
                asked = flow.send(reply)
            except StopIteration as end:
                found: OpenVisit | Connected = end.value
                return found
            if isinstance(asked, CallerKnown):
                issuer = None
                reply = await self._plan(upstream, asked.principal, visit.scopes)
            elif isinstance(asked, Fetch):
                reply = await fetch(asked, fetch_settings_of(upstream) if issuer is None else issuer.fetching)
            else:
                assert isinstance(asked, Browse)
                if returned is None:
                    raise LoginFailed("the browser came back with the answer of another login: open the link again")
                reply, returned = returned, None

    async def _plan(self, upstream: Upstream, principal: str, scopes: str) -> LoginPlan:
        earlier = await records_of(self._store, upstream, principal)
        known = await known_registrations(self._store, upstream, principal, redirect=self._redirect)
        settings = login_settings_of(upstream, earlier[0].key.issuer if earlier and client_of(upstream.auth) else "")
        client = msgspec.structs.replace(settings.client, redirect_uri=self._redirect)
        scope = tuple(dict.fromkeys((*settings.scope, *scopes.split())))
        return LoginPlan(msgspec.structs.replace(settings, client=client, scope=scope), known)

    @property
    def _redirect(self) -> str:
        return f"{self._base_url}/connect"

    def _issuer_in(self, visit: Visit) -> Issuer | None:
        """Returns the issuer that knows the caller of a visit; None if there is none."""
        number = visit.open.ticket.issuer
        return self._issuers[number] if number < len(self._issuers) else None

    def _client_of(self, visit: Visit) -> BrowserClient | None:
        issuer = self._issuer_in(visit)
        return None if issuer is None else issuer.client

    def _issuer_of(self, principal: str) -> int | None:
        names = enumerate(self._issuers)
        return next((i for i, each in names if principal.startswith(f"jwt:{each.client.issuer}|")), None)


_PAGE: Final = (
    "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
    "<title>Isthmus</title><body><p>{}</p>"
)
# Neither the page nor what it leads to may learn the code, and no other page may show it in a frame.
_HEADERS: Final = (
    (b"cache-control", b"no-store"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'; form-action 'none'"),
)


def _unkept(server: str, error: StoreError) -> Refused:
    _log.error("%s: %s", server or "a login", error)
    return _page(500, "The gateway cannot keep logins now. Tell its operator; its log says why.")


def _page(status: int, text: str) -> Refused:
    body = _PAGE.format(html.escape(text)).encode()
    described = ((b"content-type", b"text/html; charset=utf-8"), (b"content-length", b"%d" % len(body)))
    return Refused(status, body, (*described, *_HEADERS))


def _to(url: str) -> Refused:
    return Refused(303, b"", ((b"location", url.encode()), (b"content-length", b"0"), *_HEADERS))
