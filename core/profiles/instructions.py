"""The instructions of a profile: those of its servers, one section for each, as far as they are known.

A session with a profile begins without any server. So a client gets the instructions of the servers that earlier
sessions of the same principal have reached.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ..base.errors import RemoteProtocolError
from ..jsonrpc import envelope
from .aliases import Aliases

SERVER_MAX_CHARS: Final = 2_000
"""Characters of one server's instructions: they are read with every conversation. At it: the rest is cut."""
ALL_MAX_CHARS: Final = 8_000
"""Characters of all instructions. At it: the servers that come last are left out."""
PRINCIPALS_MAX: Final = 1_000
"""Principals for which instructions are kept. At it: those that came first are dropped."""


class Instructions:
    """The instructions that are known."""

    def __init__(self, aliases: Aliases) -> None:
        self._aliases = aliases
        self._known: dict[str, dict[str, str]] = {}

    def learn(self, principal: str, server: str, introduction: bytes) -> None:
        """Takes those in the result of a server's `initialize` or `server/discover`. Unreadable ones are none."""
        try:
            text = envelope.text_of(envelope.member_of(introduction, "instructions"))
        except RemoteProtocolError:
            text = None
        known = self._known.get(principal)
        if known is None:
            if len(self._known) >= PRINCIPALS_MAX:
                del self._known[next(iter(self._known))]
            known = self._known[principal] = {}
        known.pop(server, None)
        if text is not None and text.strip():
            known[server] = text.strip()

    def text(self, principal: str, servers: tuple[str, ...], is_shown: Callable[[str], bool]) -> str:
        """Returns the instructions for a principal; "" if none are known.

        Args:
            servers: of the profile.
            is_shown: returns whether the principal may see a server.
        """
        known, found = self._known.get(principal, {}), ""
        for server in servers:
            if server not in known or not is_shown(server):
                continue
            text = known[server]
            if len(text) > SERVER_MAX_CHARS:
                text = text[: SERVER_MAX_CHARS - 1] + "…"
            section = f"## {self._aliases.of(server) or server}\n\n{text}\n\n"
            if len(found) + len(section) > ALL_MAX_CHARS:
                break
            found += section
        return found.strip()
