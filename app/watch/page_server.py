"""The live page of a running proxy: what it consists of, and the server of its listener."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

import msgspec

from ...core.access.gate import Gate
from ...core.access.issuer_answers import Wanted
from ...core.base.limits import Limits
from ...core.wire.http.admin_routes import Management
from ...core.wire.http.origin import is_loopback
from ...core.wire.http.routes import Surface
from ...transports.base.port import FileService
from ...transports.base.traffic import Counts
from ...transports.http_server.server import HttpServer
from ...transports.http_server.shared import Pages
from ..config.addresses import host_of
from ..config.settings import Settings
from ..runtime.hub import Hub
from ..runtime.own_sessions import OwnSessions
from .pages import WatchPages
from .redaction import Redactor
from .replay import Replays
from .watching import Watching

TOKEN_EXPECTED = "the token in the address that isthmus prints for the live page"


class LivePage(NamedTuple):
    """A live page: what watches, to be run, and the server of the page."""

    watching: Watching
    server: HttpServer


def live_page(
    settings: Settings,
    hub: Hub,
    own_sessions: OwnSessions,
    others: Pages,
    surface: Surface,
    files: FileService,
    limits: Limits,
    where: str,
    *,
    token: str | None,
    gate: Gate | None,
    wait_for_issuer: Callable[[Wanted], Awaitable[None]] | None,
    stderr: Mapping[str, list[str]],
) -> LivePage:
    """Returns the live page of a hub.

    Args:
        others: answers the management pages.
        surface: what the listener for clients offers.
        where: the address of the page.
        token: opens it on this machine; None: the settings say who may.
        stderr: for each server, the last lines that its processes wrote to stderr.
    """
    ui, servers = settings.ui, [server.id for server in settings.servers]
    watching = Watching(hub.engine, Redactor(ui.redact), has_bodies=ui.bodies, keeps=ui.keep)
    replays = Replays(watching, own_sessions, servers, limits)
    pages = WatchPages(watching, others, replays, servers, stderr, has_actions=ui.actions)
    server = HttpServer(
        page_surface(surface, where, token),
        hub,
        files,
        limits,
        pages=pages.answer,
        counts=Counts(),
        gate=gate,
        wait_for_issuer=wait_for_issuer,
        only_h11=hub.drive.only_h11,
        protocols=hub.drive.protocols,
    )
    return LivePage(watching, server)


def page_surface(surface: Surface, where: str, token: str | None) -> Surface:
    """Returns what the listener of the live page offers: nothing that clients use.

    Args:
        surface: that of the listener for clients.
        where: the address of this one.
        token: opens it on this machine; None: the settings say who may.
    """
    host = where.rpartition(":")[0]
    management = surface.management
    if token is not None:
        management = Management.with_local_token(token, TOKEN_EXPECTED)
    elif management is None:
        management = Management(is_local=is_loopback(host))
    return msgspec.structs.replace(
        surface,
        servers=(),
        profiles={},
        default="",
        transparent={},
        aliases={},
        prefix="",
        public_origin="",
        any_host=False,
        hosts=surface.hosts | {host_of(host)},
        origins=frozenset(),
        management=management,
        areas=frozenset({"pages", "ui"}),
    )


def url_of(where: str, scheme: str, token: str | None) -> str:
    """Returns the URL of the live page. The token is in its fragment, which browsers send to nobody."""
    return f"{scheme}://{where}/ui" + ("" if token is None else f"#token={token}")
