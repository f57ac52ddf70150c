"""Finds the endpoint that `isthmus serve` shows as the one for all servers, or serves on stdin and stdout."""

from __future__ import annotations

import argparse
import os

from ...core.base.nearest import hint
from ..base import logs
from ..base.errors import ConfigError
from ..config.access_settings import Access
from ..config.profiles import DEFAULT, REASONS, default_of, profiles_of, servers_of, why_unfit
from ..config.settings import Settings


def settle_stdio(options: argparse.Namespace) -> None:
    """Takes the word after `--stdio` as the file, where it can be nothing else: `serve --all --stdio FILE`.

    Raises:
        ConfigError: the word is a file that nothing is said to be served of, or `--all` has it too much.
    """
    if not options.stdio:
        return
    if options.config is None and options.all:
        options.config, options.stdio = options.stdio, ""
    elif options.all:
        raise ConfigError(f"got --all and --stdio {options.stdio}, expected --all --stdio, or --stdio NAME alone")
    elif options.config is None and os.path.isfile(options.stdio):
        raise ConfigError(
            f"got --stdio {options.stdio}, which is a file, expected the name of a profile or a server; for all "
            f"servers of that file: isthmus serve --all --stdio {options.stdio}"
        )


def endpoint_of_all(settings: Settings) -> str:
    """Returns the id of the endpoint of all servers: the profile `all`, or the only server.

    Raises:
        ConfigError: there is none.
    """
    found = default_of(settings)
    if found:
        return found
    if len(settings.servers) == 1:
        return settings.servers[0].id
    if any(server.id == DEFAULT for server in settings.servers):
        raise ConfigError(f"got a server with the id {DEFAULT}, which is that of all servers, expected another id")
    unfit = [f"{server.id} has {why}" for server in settings.servers if (why := why_unfit(server, settings.servers))]
    raise ConfigError(f"got fewer than two servers that can share an endpoint: {'; '.join(unfit)}")


def endpoint_on_stdio(settings: Settings, name: str) -> str:
    """Returns the id of the endpoint for the client on stdin and stdout.

    Args:
        name: of a profile or a server; "": the endpoint of all servers.

    Raises:
        ConfigError: there is no such endpoint, or it is of HTTP only.
    """
    id = name or endpoint_of_all(settings)
    profiles = {profile.id: profile for profile in profiles_of(settings)}
    servers = {server.id: server for server in settings.servers}
    known = [*profiles, *servers]
    if id not in known:
        raise ConfigError(f"got --stdio {id[:64]}, expected a profile or a server: {', '.join(known)}{hint(id, known)}")
    if id in servers and not servers[id].inspect:
        raise ConfigError(f"got --stdio {id}, which has inspect: false, {REASONS['inspect: false']}, over HTTP only")
    if id in servers and servers[id].access.groups:
        raise ConfigError(f"got --stdio {id}, whose access.groups let in no client on stdio, as nobody says who it is")
    shown = [id] if id in servers else [server.id for server in servers_of(profiles[id])]
    guarded = [server.id for server in settings.servers if server.id in shown and server.access != Access()]
    if guarded:
        logs.say(f"the client on stdio is nobody whom a rule of access lets in: see access of {', '.join(guarded)}")
    return id
