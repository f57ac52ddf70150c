"""Aliases of the servers of a profile, by which names and URIs that clients see tell whose they are.

An alias has no underscore and no plus sign. So the first `__` of a name and the first `+` of a URI end it, and what
follows may be anything. An alias depends on nothing but the configuration of its server: it stays when another server
comes or goes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from ..base.errors import LocalProtocolError

ALIAS_MAX_CHARS: Final = 16
"""The longest alias. Model APIs take 64 characters for a name, and clients put a prefix of their own in front. At it:
the configuration is refused. An alias that is made of an id is cut."""

ALIAS: Final = rf"[a-z][a-z0-9-]{{0,{ALIAS_MAX_CHARS - 1}}}"
"""The pattern of an alias. One server of a profile may have the empty alias: its names and URIs are shown bare."""

_ALIAS: Final = re.compile(ALIAS)
_FOLDED: Final = re.compile(r"[^a-z0-9]+")


def default_alias(server: str) -> str:
    """Returns the alias of a server whose configuration has none: its id in lower case, with one `-` for what no alias
    has, and an `s` before a digit."""
    alias = _FOLDED.sub("-", server.lower()).strip("-")
    if not alias[:1].isalpha():
        alias = f"s{alias}"
    return alias[:ALIAS_MAX_CHARS].rstrip("-")


class Aliases:
    """The aliases of a profile, each of one server.

    Args:
        chosen: the alias of each server, by id; None for the default one.

    Attributes:
        bare: the server with the empty alias; None if there is none.

    Raises:
        LocalProtocolError: an alias is no alias, or two servers have the same one. The text has a line for each
            problem.
    """

    def __init__(self, chosen: Mapping[str, str | None]) -> None:
        self._by_server: dict[str, str] = {}
        self._by_alias: dict[str, str] = {}
        problems = []
        for server, given in chosen.items():
            alias = default_alias(server) if given is None else given
            if alias and _ALIAS.fullmatch(alias) is None:
                problems.append(
                    f"alias: got {alias!r} for server {server!r}, expected a lower-case letter and up to "
                    f"{ALIAS_MAX_CHARS - 1} lower-case letters, digits and hyphens"
                )
                continue
            other = self._by_alias.setdefault(alias, server)
            if other != server:
                problems.append(
                    f"alias: servers {other!r} and {server!r} have the same alias {alias!r}, expected one of its own "
                    "for each: set `alias` of one of them"
                )
            self._by_server[server] = alias
        if problems:
            raise LocalProtocolError("\n".join(problems))
        self.bare = self._by_alias.get("")

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_server)

    def of(self, server: str) -> str:
        """Returns the alias of a server of the profile."""
        return self._by_server[server]

    def server_of(self, alias: str) -> str | None:
        """Returns the server with an alias that is not empty; None if there is none."""
        return self._by_alias.get(alias) if alias else None
