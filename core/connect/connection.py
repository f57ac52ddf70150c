"""The whole visit of a browser to `/connect/ID`: who sits there, then the login at the server.

The person at the browser has to be the caller whose client was given the link. Else somebody could send an own link to
another person, who would log in for a stranger's client.

Source: 2025-11-25 client/elicitation, "Phishing".
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping

import msgspec

from ..logins.challenges import BearerChallenge
from ..logins.login import LoginSettings, log_in
from ..logins.requests import Browse, Fetch, Fetched, FetchFailed, Login, LoginFailed, Registration, Returned
from .browser_login import BrowserClient, Entropy, identify
from .tickets import Ticket, Tickets


class AnotherCaller(LoginFailed):
    """Raised for a person who is not the caller that a link is for."""


class CallerKnown(msgspec.Struct, frozen=True):
    """Yielded once the caller is known: what is fetched from now on belongs to the login at the server. The reply is
    None."""


Connecting = Generator[Fetch | Browse | CallerKnown, Fetched | FetchFailed | Returned | None, tuple[str, Login]]


def connect(
    tickets: Tickets,
    ticket: Ticket,
    server: str,
    settings: LoginSettings,
    *,
    known_caller: str,
    client: BrowserClient | None,
    entropy: Entropy,
    clock: Callable[[], float],
    known: Mapping[str, Registration] = {},
) -> Connecting:
    """Logs the caller of a link in at a server. Returns its principal, and the login.

    Args:
        settings: those of the login; `settings.client.redirect_uri` is the page of this gateway that browsers come
            back to.
        known_caller: the principal of the request for the page, where the gate recognises it; "": it does not.
        client: this gateway at the issuer of the ticket's caller; None: there is none.
        known: the registrations that earlier logins made, by issuer.

    Raises:
        AnotherCaller: the person at the browser is not the caller of the link.
        LoginFailed: there is no login.
    """
    redirect = settings.client.redirect_uri
    principal = known_caller
    if not principal:
        if client is None:
            raise LoginFailed("this page does not know who you are: open it where you are logged in")
        principal = yield from identify(client, redirect, entropy, clock)
    if not tickets.is_for(ticket, server, principal):
        raise AnotherCaller("this link was given to somebody else: ask your own client for one")
    yield CallerKnown()
    login = yield from log_in(settings, BearerChallenge(), port=0, entropy=entropy, now=clock(), known=known)
    return principal, login
