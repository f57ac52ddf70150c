"""One profile as its clients see it: its names and URIs, and what it says of itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import Raw

from ..base.plan import OURS, Profile, TaskRules
from ..base.revisions import LATEST_MODERN, Features
from ..bridge import task_support
from ..search.answers import SURFACE
from .aliases import Aliases
from .instructions import Instructions
from .names import Names
from .rewriting import Rewriter
from .uris import Uris

DISCOVERY_TTL_MS: Final = 60_000
"""Milliseconds for which clients may keep what a profile says of itself: little of it ever changes."""


class ProfileView:
    """The names, URIs and self-description of a profile.

    Args:
        version: of this proxy.
        task_rules: those of its servers; none if this copy has no tasks.

    Raises:
        LocalProtocolError: the aliases of its servers cannot be used. The text has a line for each problem.
    """

    def __init__(self, profile: Profile, version: str, task_rules: Sequence[TaskRules]) -> None:
        self.id = profile.id
        self.servers = tuple(server.id for server in profile.servers)
        self.has_tasks = any(rules.are_offered for rules in task_rules)
        self.has_tasks_everywhere = bool(task_rules) and all(rules.offer in OURS for rules in task_rules)
        self.list_wait_s = profile.list_wait_s
        aliases = Aliases({server.id: server.alias for server in profile.servers})
        self.instructions = Instructions(aliases)
        self.has_search = profile.has_search
        self.names = Names(aliases, {}, own=SURFACE if profile.has_search else (), longest=profile.longest_name)
        self.rewriter = Rewriter(self.names, Uris(aliases))
        self._info = {"name": profile.id, "version": version}

    def is_constant(self, method: str) -> bool:
        """True for a notification of the change of a list that never changes."""
        return self.has_search and method == "notifications/tools/list_changed"

    def handshake(self, features: Features, instructions: str) -> bytes:
        """Returns the result of `initialize` for a client of that revision."""
        offered = msgspec.json.encode(self._capabilities(has_completions=features.completions))
        if self.has_tasks and features.tasks:
            offered = task_support.declare_legacy(offered)
        found = {"protocolVersion": features.revision, "capabilities": Raw(offered), "serverInfo": self._info}
        return msgspec.json.encode(found | ({"instructions": instructions} if instructions else {}))

    def discovery(self, instructions: str = "") -> bytes:
        """Returns the result of `server/discover`."""
        offered = msgspec.json.encode(self._capabilities(has_completions=True))
        if self.has_tasks:
            offered = task_support.declare_modern(offered)
        found = {
            "resultType": "complete",
            "supportedVersions": [LATEST_MODERN],
            "capabilities": Raw(offered),
            "ttlMs": DISCOVERY_TTL_MS,
            "cacheScope": "private",
            "_meta": {"io.modelcontextprotocol/serverInfo": self._info},
        }
        return msgspec.json.encode(found | ({"instructions": instructions} if instructions else {}))

    def _capabilities(self, *, has_completions: bool) -> dict[str, object]:
        """Returns what can be honoured whatever the servers have: a list may be empty, and so may a completion."""
        changes = {"listChanged": True}
        tools = {} if self.has_search else changes
        found: dict[str, object] = {"tools": tools, "prompts": changes, "resources": changes | {"subscribe": True}}
        return found | {"logging": {}} | ({"completions": {}} if has_completions else {})
