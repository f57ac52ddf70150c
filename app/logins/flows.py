"""Carries out the requests of a login: over the network, with a browser, or with a code that a person types."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeVar

import anyio

from ...core.logins.metadata import origin_of
from ...core.logins.requests import Browse, Fetch, Fetched, FetchFailed, Pause, Returned, ShowCode
from ...core.wire.http.public_addresses import is_loopback_name
from ...core.wire.http.url import parse_url
from ...transports import web_fetch
from ...transports.web_fetch import FetchSettings
from ..config.login_checks import http_url
from ..config.login_settings import Enterprise
from ..config.settings import Upstream

T = TypeVar("T")

Browsing = Callable[[Browse], Awaitable[Returned]]
Showing = Callable[[ShowCode], Awaitable[None]]


def fetch_settings_of(upstream: Upstream) -> FetchSettings:
    """Returns the settings of requests for a login at a server.

    The server and the authorization servers that the configuration names may be at any address. What they name may be
    on loopback if the server is.
    """
    assert upstream.url is not None
    url = http_url(upstream.url)
    issuer = None if upstream.auth is None else upstream.auth.issuer
    provider = upstream.auth.provider.issuer if isinstance(upstream.auth, Enterprise) else None
    return FetchSettings(
        origins=frozenset(origin_of(each) for each in (url, issuer, provider) if each),
        allows_loopback=is_loopback_name(parse_url(url).host),
        ca_file=upstream.ca_file,
        proxy=upstream.proxy,
    )


async def fetch(request: Fetch, settings: FetchSettings) -> Fetched | FetchFailed:
    try:
        found = await web_fetch.fetch(request.method, request.url, request.headers, request.body, settings=settings)
    except web_fetch.FetchFailed as error:
        return FetchFailed(str(error), is_unsent=error.is_unsent)
    return Fetched(found.status, found.body)


async def carry_out(
    flow: Generator[Any, Any, T],
    settings: FetchSettings,
    *,
    browse: Browsing | None = None,
    show: Showing | None = None,
) -> T:
    """Runs a flow to its end.

    Args:
        browse: opens a page and waits for the browser; None: the flow asks for none.
        show: shows a code; None: the flow has none.

    Raises:
        LoginFailed: as the flow.
    """
    reply: Fetched | FetchFailed | Returned | None = None
    while True:
        try:
            asked = flow.send(reply)
        except StopIteration as end:
            result: T = end.value
            return result
        reply = None
        if isinstance(asked, Fetch):
            reply = await fetch(asked, settings)
        elif isinstance(asked, Browse):
            assert browse is not None
            reply = await browse(asked)
        elif isinstance(asked, ShowCode):
            assert show is not None
            await show(asked)
        else:
            assert isinstance(asked, Pause)
            await anyio.sleep(asked.seconds)
