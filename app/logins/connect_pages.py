"""The pages at which callers log in at servers: `/connect/ID`, and `/connect`, where their browsers come back to.

A visit is known by a cookie, so that no other browser can end it. Its answers go to the flow in `core/connect`, which
decides all of it.
"""

from __future__ import annotations

import hashlib
import html
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final
from urllib.parse import quote, urlencode

import msgspec

from ...core.connect.browser_login import BrowserClient
from ...core.connect.connection import AnotherCaller, CallerKnown, Connecting, connect
from ...core.connect.tickets import Tickets
from ...core.logins.requests import Browse, Fetch, Fetched, FetchFailed, LoginFailed, Returned
from ...core.wire.http.routes import PageRoute, Refused
from ...transports.base.tokens import LoginWanted
from ...transports.web_fetch import FetchSettings
from ..config.settings import Upstream
from .flows import fetch, fetch_settings_of
from .records import keep, known_registrations, login_settings_of, records_of
from .store import CredentialStore, StoreError
from .tokens import Ask

VISITS_MAX: Final = 1000
"""Visits under way. At it: the oldest is forgotten, and its person opens the link again."""
VISIT_TTL_S: Final = 600.0
"""Seconds for a person to log in at both places. Providers forget a login after 5 to 15 minutes."""

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


class _Visit:
    """A browser on its way through the pages."""

    def __init__(self, server: str, flow: Connecting, issuer: Issuer | None, ends_at: float) -> None:
        self.server = server
        self.flow = flow
        self.issuer = issuer  # asked until the caller is known
        self.ends_at = ends_at
        self.is_busy = False


class ConnectPages:
    """Serves the pages.

    Args:
        base_url: the URL under which clients and browsers reach this gateway.
        key: a secret of this gateway.
        servers: the servers at which callers log in, by id.
        issuers: the issuers at which browsers log in.
    """

    def __init__(
        self,
        base_url: str,
        key: bytes,
        servers: Mapping[str, Upstream],
        issuers: Sequence[Issuer],
        store: CredentialStore,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._base_url = base_url.rstrip("/")
        self._tickets = Tickets(key)
        self._servers = servers
        self._issuers = issuers
        self._store = store
        self._clock = clock
        self._visits: dict[bytes, _Visit] = {}  # by the hash of their cookie, the oldest first
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
        for key in [key for key, visit in self._visits.items() if visit.ends_at <= self._clock()]:
            del self._visits[key]
        if route.id:
            return await self._begin(route)
        name = self._cookie + "="
        values = [part.strip()[len(name) :] for part in route.cookie.split(";") if part.strip().startswith(name)]
        key = _digest(values[0]) if len(values) == 1 else b""
        visit = self._visits.get(key)
        if visit is None or visit.is_busy:
            return _page(400, "This login is not under way here. Open the link that your client shows again.")
        return await self._advance(key, visit, Returned(urlencode(route.query)))

    async def _begin(self, route: PageRoute) -> Refused:
        server, now = route.id, self._clock()
        upstream = self._servers.get(server)
        scopes = route.query.get("scope", "")
        ticket = self._tickets.read(route.query.get("ticket", ""), server, now, scopes)
        if upstream is None or ticket is None:
            return _page(404, "This link is not valid, or too old. Ask your client for a new one.")
        issuer = self._issuers[ticket.issuer] if ticket.issuer < len(self._issuers) else None
        redirect = f"{self._base_url}/connect"
        present = route.identity.principal
        try:
            earlier = await records_of(self._store, upstream, present) if present else []
            known = await known_registrations(self._store, upstream, present, redirect=redirect)
        except StoreError as error:
            _log.error("%s: %s", server, error)
            return _page(500, "The gateway cannot keep logins now. Tell its operator; its log says why.")
        settings = login_settings_of(upstream, earlier[0].key.issuer if earlier and upstream.auth else "")
        scope = tuple(dict.fromkeys((*settings.scope, *scopes.split())))
        settings = msgspec.structs.replace(
            settings, client=msgspec.structs.replace(settings.client, redirect_uri=redirect), scope=scope
        )
        flow = connect(
            self._tickets,
            ticket,
            server,
            settings,
            known_caller=present,
            client=None if issuer is None else issuer.client,
            entropy=os.urandom,
            clock=self._clock,
            known=known,
        )
        visit = _Visit(server, flow, issuer, now + VISIT_TTL_S)
        if len(self._visits) >= VISITS_MAX:
            del self._visits[next(iter(self._visits))]
        cookie = os.urandom(32).hex()
        self._visits[_digest(cookie)] = visit
        found = await self._advance(_digest(cookie), visit, None)
        set_cookie = (b"set-cookie", f"{self._cookie}={cookie}; {self._attributes}".encode())
        return msgspec.structs.replace(found, headers=(*found.headers, set_cookie))

    async def _advance(self, key: bytes, visit: _Visit, reply: Returned | None) -> Refused:
        visit.is_busy = True
        try:
            found = await self._carry_on(visit, reply)
        except AnotherCaller as error:
            _audit.warning("a login at %s by another person than the caller of its link is refused", visit.server)
            found = _page(403, str(error))
        except LoginFailed as error:
            _log.warning("%s: %s", visit.server, error)
            found = _page(400, f"Nobody was logged in: {error}")
        except StoreError as error:
            _log.error("%s: %s", visit.server, error)
            found = _page(500, "The gateway cannot keep this login. Tell its operator; its log says why.")
        finally:
            visit.is_busy = False
        if found.status != 303:
            self._visits.pop(key, None)
        return found

    async def _carry_on(self, visit: _Visit, reply: Returned | None) -> Refused:
        """Goes on with a visit until its browser is needed, or it is over."""
        upstream = self._servers[visit.server]
        answered: Returned | Fetched | FetchFailed | None = reply
        try:
            while True:
                asked = visit.flow.send(answered)
                answered = None
                if isinstance(asked, CallerKnown):
                    visit.issuer = None
                elif isinstance(asked, Fetch):
                    fetching = fetch_settings_of(upstream) if visit.issuer is None else visit.issuer.fetching
                    answered = await fetch(asked, fetching)
                elif isinstance(asked, Browse) and asked.is_open:
                    raise LoginFailed("the browser came back with the answer of another login: open the link again")
                else:
                    return _to(asked.url)
        except StopIteration as end:
            principal, login = end.value
        await keep(self._store, upstream, login, principal, self._clock())
        _audit.info("%s logged in at %s", principal[:200], visit.server)
        return _page(200, f"You are logged in at {visit.server}. Close this page and go on in your client.")

    def _issuer_of(self, principal: str) -> int | None:
        names = enumerate(self._issuers)
        return next((i for i, each in names if principal.startswith(f"jwt:{each.client.issuer}|")), None)


def _digest(cookie: str) -> bytes:
    return hashlib.sha256(cookie.encode()).digest()


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


def _page(status: int, text: str) -> Refused:
    body = _PAGE.format(html.escape(text)).encode()
    described = ((b"content-type", b"text/html; charset=utf-8"), (b"content-length", b"%d" % len(body)))
    return Refused(status, body, (*described, *_HEADERS))


def _to(url: str) -> Refused:
    return Refused(303, b"", ((b"location", url.encode()), (b"content-length", b"0"), *_HEADERS))
