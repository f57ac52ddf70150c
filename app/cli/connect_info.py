"""The command `connect-info`: prints what goes into the file of an MCP client, and where that file is."""

from __future__ import annotations

import argparse

from ...core.base.nearest import hint
from ..base import output
from ..base.errors import ConfigError, Failed
from ..commands.http_client import Isthmus
from .remote import isthmus_of

ALL = "isthmus"
"""The name that clients are to have for the endpoint of several servers."""


def connect_info(options: argparse.Namespace) -> None:
    """Prints the entry on stdout, so that it can go into a file, and what to do with it on stderr.

    Raises:
        ConfigError: the client is not known, or the URL is none for clients.
        Failed: the running isthmus has no such server.
    """
    from ..commands.client_entries import PLACEHOLDER, TARGETS, Endpoint, command_line, file_of, snippet

    target = TARGETS.get(options.client)
    if target is None:
        near = hint(options.client, TARGETS, similarity=0.4)
        raise ConfigError(f"got the client {options.client[:64]!r}, expected one of {', '.join(TARGETS)}{near}")
    if options.url.startswith("unix:"):
        raise ConfigError("got --url unix:…, expected http(s)://HOST:PORT: clients cannot reach a Unix domain socket")
    isthmus = isthmus_of(options)
    suffix, name, asks, problem = _endpoint(isthmus, options.id)
    to = Endpoint(name, f"{isthmus.url.rstrip('/')}/mcp{suffix}", asks)
    if problem:
        output.complain(f"{problem} (the entry works once isthmus runs)\n")
    output.complain(f"{target.title}: put this into {file_of(target)}")
    if asks:
        output.complain(f"replace {PLACEHOLDER} with your token")
    if target.note:
        output.complain(f"note: {target.note}")
    output.complain("")
    output.say(snippet(target, to))
    if line := command_line(target, to):
        output.complain(f"\nor: {output.plain(line)}")


def _endpoint(isthmus: Isthmus, id: str | None) -> tuple[str, str, bool, str]:
    """Returns the path after `/mcp`, the name, whether callers must show a token, and why nobody could be asked."""
    suffix = "" if id is None else f"/{id}"
    try:
        status = isthmus.status_of(f"/mcp{suffix}")
    except Failed as error:
        return suffix, id or ALL, False, str(error)
    try:
        servers = [str(one["name"]) for one in isthmus.servers()]
    except Failed:  # it shows them to nobody here
        servers = []
    if status == 404:
        near = hint(id or "", servers)
        raise Failed(f"{isthmus.url} has nothing at /mcp{suffix}, expected one of {', '.join(servers)}{near}")
    if id is None:
        id = servers[0] if len(servers) == 1 else ALL
    return suffix, id, status == 401, ""
