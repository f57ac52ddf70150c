"""The whole visit of a browser to `/connect/ID`: who sits there, then the login at the server.

The person at the browser has to be the caller whose client was given the link. Else somebody could send an own link to
another person, who would log in for a stranger's client.

Between two steps of a visit the browser is at a page of another site. All that is known of the visit then is an
`OpenVisit`, so that any process can go on with it.

Source: 2025-11-25 client/elicitation, "Phishing".
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping

import msgspec

from ..logins.challenges import BearerChallenge
from ..logins.login import LoginSettings, OpenLogin, begin_login, end_login
from ..logins.requests import Browse, Fetch, Fetched, FetchFailed, Login, LoginFailed, Registration, Returned
from .browser_login import BrowserClient, Entropy, OpenIdentity, begin_identity, end_identity
from .tickets import Ticket, Tickets


class AnotherCaller(LoginFailed):
    """Raised for a person who is not the caller that a link is for."""


class CallerKnown(msgspec.Struct, frozen=True):
    """Yielded once the caller is known: what is fetched from now on belongs to the login at the server. The reply is a
    `LoginPlan`."""

    principal: str


class LoginPlan(msgspec.Struct, frozen=True):
    """The way in which a caller logs in at a server.

    Attributes:
        settings: those of the login; `settings.client.redirect_uri` is the page of this gateway that browsers come
            back to.
        known: the registrations that earlier logins made, by issuer.
    """

    settings: LoginSettings
    known: Mapping[str, Registration] = {}


class OpenVisit(msgspec.Struct, frozen=True):
    """A visit whose browser is at the page of another site. It has secrets in it.

    Attributes:
        principal: the caller; "" until it is known.
        identity: the page of the caller's issuer; None once the caller is known.
        login: the page of the server's authorization server; None until then.
    """

    ticket: Ticket
    server: str
    principal: str = ""
    identity: OpenIdentity | None = None
    login: OpenLogin | None = None

    @property
    def page(self) -> str:
        """The URL where the browser is."""
        login = self.login if self.identity is None else self.identity.login
        assert login is not None
        return login.page

    def __repr__(self) -> str:
        return f"OpenVisit({self.server!r}, …)"


class Connected(msgspec.Struct, frozen=True):
    """The end of a visit: a caller has logged in."""

    principal: str
    login: Login


Asked = Fetch | Browse | CallerKnown
Replied = Fetched | FetchFailed | Returned | LoginPlan


def begin_visit(
    tickets: Tickets,
    ticket: Ticket,
    server: str,
    *,
    redirect: str,
    known_caller: str,
    client: BrowserClient | None,
    entropy: Entropy,
    clock: Callable[[], float],
) -> Generator[Asked, Replied, OpenVisit]:
    """Begins a visit. Returns it with the first page for its browser.

    Args:
        redirect: the page of this gateway that browsers come back to.
        known_caller: the principal of the request for the page, where the gate recognises it; "": it does not.
        client: this gateway at the issuer of the ticket's caller; None: there is none.

    Raises:
        AnotherCaller: the person at the browser is not the caller of the link.
        LoginFailed: there is no login.
    """
    if known_caller:
        return (yield from _begin_login(tickets, ticket, server, known_caller, entropy, clock))
    if client is None:
        raise LoginFailed("this page does not know who you are: open it where you are logged in")
    identity = yield from begin_identity(client, redirect, entropy)
    return OpenVisit(ticket, server, identity=identity)


def go_on(
    visit: OpenVisit,
    tickets: Tickets,
    *,
    client: BrowserClient | None,
    entropy: Entropy,
    clock: Callable[[], float],
) -> Generator[Asked, Replied, OpenVisit | Connected]:
    """Goes on with a visit whose browser has come back: the reply to the first `Browse` is what it came with. Returns
    the visit with the next page for its browser, or its end.

    Raises:
        AnotherCaller: the person at the browser is not the caller of the link.
        LoginFailed: there is no login.
    """
    if visit.identity is None:
        assert visit.login is not None
        return Connected(visit.principal, (yield from end_login(visit.login, is_open=True)))
    if client is None:
        raise LoginFailed("the issuer that knows you is no longer used here: open the link again")
    principal = yield from end_identity(client, visit.identity, clock)
    return (yield from _begin_login(tickets, visit.ticket, visit.server, principal, entropy, clock))


def _begin_login(
    tickets: Tickets, ticket: Ticket, server: str, principal: str, entropy: Entropy, clock: Callable[[], float]
) -> Generator[Asked, Replied, OpenVisit]:
    if not tickets.is_for(ticket, server, principal):
        raise AnotherCaller("this link was given to somebody else: ask your own client for one")
    plan = yield CallerKnown(principal)
    assert isinstance(plan, LoginPlan)
    login = yield from begin_login(
        plan.settings, BearerChallenge(), port=0, entropy=entropy, now=clock(), known=plan.known
    )
    return OpenVisit(ticket, server, principal, login=login)
