"""Counters of the requests and sessions of clients, and of the answers of servers.

They are plain numbers, of which `app/admin/telemetry_metrics.py` makes metrics when these are asked for. Whatever
clients and servers send, each label has a bounded number of values: methods are those of the specification, and tools
are those that servers have listed, `TOOLS_MAX` of each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from ...core.base.plan import Profile, ServerPlan
from ...core.base.telemetry import AnyEvent, Outcome, RequestAnswered, RequestEnded, SessionStarted, ToolsListed
from ...core.governance.tool_names import ToolNames
from ...core.profiles.aliases import Aliases
from ...core.profiles.names import Names
from ...core.search.answers import SURFACE
from .histogram import CALLS_S, Histogram

METHODS: Final = frozenset(
    {
        "completion/complete",
        "initialize",
        "logging/setLevel",
        "ping",
        "prompts/get",
        "prompts/list",
        "resources/list",
        "resources/read",
        "resources/subscribe",
        "resources/templates/list",
        "resources/unsubscribe",
        "server/discover",
        "subscriptions/listen",
        "tasks/cancel",
        "tasks/get",
        "tasks/list",
        "tasks/result",
        "tasks/update",
        "tools/call",
        "tools/list",
    }
)
"""The requests of clients in all revisions."""
OTHER: Final = "other"
"""The label of all further methods, and of all tools that no server has listed."""
TOOLS_MAX: Final = 200
"""Tools of a server that are counted apart. Few servers have more, and each costs a monitoring system five series. At
it: calls of further ones count as `OTHER`."""

WAITING_MAX: Final = 128
"""Events that wait to be counted together, which takes half the time. At it: they are counted."""

Outcomes = dict[str, int]
"""The number of requests by the value of their `Outcome`: a text is found faster than a member of an enumeration."""
_OUTCOMES: Final = tuple(outcome.value for outcome in Outcome)


class Requests:
    """The requests of one method at one server or profile: their outcomes and durations."""

    __slots__ = ("durations", "outcomes")

    def __init__(self) -> None:
        self.outcomes: Outcomes = dict.fromkeys(_OUTCOMES, 0)
        self.durations = Histogram(CALLS_S)


class Counters:
    """The counters of one gateway.

    Args:
        servers: its servers. A tool has the name that its server gives it, whatever clients know it by.
        profiles: its profiles.

    Attributes:
        sessions: sessions that have started, by server or profile.
        requests: requests that have ended, by server or profile, and method.
        upstream: durations of requests at servers, by server.
        tools: outcomes of tool calls, by server and tool. The server of a call of a profile is the one that has the
            tool, or the profile if no server has listed it.
    """

    def __init__(self, servers: Iterable[ServerPlan], profiles: Iterable[Profile]) -> None:
        self.sessions: dict[str, int] = {}
        self.requests: dict[tuple[str, str], Requests] = {}
        self.upstream: dict[str, Histogram] = {}
        self.tools: dict[tuple[str, str], Outcomes] = {}
        self._waiting: list[AnyEvent] = []
        self._listed: dict[str, int] = {}
        self._by_use: dict[tuple[str, str], Outcomes] = {}  # by endpoint, and the name of the tool there
        self._names: dict[str, ToolNames] = {}
        self._exposures: dict[str, list[tuple[str, Callable[[str], str]]]] = {}
        for server in servers:
            self.upstream[server.id] = Histogram(CALLS_S)
            self._listed[server.id] = 0
            self._names[server.id] = ToolNames(server.shown.overrides)
            self._exposures[server.id] = [(server.id, lambda name: name)]
            self.sessions[server.id] = 0
        for profile in profiles:
            self.sessions[profile.id] = 0
            self._add_profile(profile)

    def _add_profile(self, profile: Profile) -> None:
        own = SURFACE if profile.has_search else ()
        for tool in own:
            self._by_use[profile.id, tool] = self._tool(profile.id, tool)
        aliases = Aliases({server.id: server.alias for server in profile.servers})
        names = Names(aliases, {}, own=own, longest=profile.longest_name)
        for id in aliases:
            self._exposures[id].append((profile.id, partial(names.expose, id, "tools")))

    def receive(self, event: AnyEvent) -> None:
        """Counts an event, now or later."""
        self._waiting.append(event)
        if len(self._waiting) >= WAITING_MAX:
            self.count()

    def count(self) -> None:
        """Counts the events that wait. To be called before anything is read here."""
        waiting, self._waiting = self._waiting, []
        for event in waiting:
            if isinstance(event, RequestEnded):
                self._end(event)
            elif isinstance(event, RequestAnswered):
                self.upstream[event.server].observe(event.duration_s)
            elif isinstance(event, SessionStarted):
                self.sessions[event.server] += 1
            elif isinstance(event, ToolsListed):
                for name in event.names:
                    self._learn(event.server, name)

    def _end(self, event: RequestEnded) -> None:
        requests = self.requests.get((event.server, event.method)) or self._requests(event.server, event.method)
        outcome: str = event.outcome._value_
        requests.outcomes[outcome] += 1
        requests.durations.observe(event.duration_s)
        if event.method == "tools/call":
            outcomes = self._by_use.get((event.server, event.target)) or self._tool(event.server, OTHER)
            outcomes[outcome] += 1

    def _requests(self, server: str, method: str) -> Requests:
        key = server, method if method in METHODS else OTHER
        found = self.requests.get(key)
        if found is None:
            found = self.requests[key] = Requests()
        return found

    def _tool(self, server: str, tool: str) -> Outcomes:
        found = self.tools.get((server, tool))
        if found is None:
            found = self.tools[server, tool] = dict.fromkeys(_OUTCOMES, 0)
        return found

    def _learn(self, server: str, name: str) -> None:
        """Counts the calls of a tool apart from now on, if there is room."""
        tool = name.encode("utf-8", "backslashreplace").decode()  # JSON may hold halves of pairs of surrogates
        if (server, tool) in self.tools or tool == OTHER or self._listed[server] >= TOOLS_MAX:
            return
        shown = self._names[server].shown(name)
        if shown is None:
            return
        self._listed[server] += 1
        outcomes = self._tool(server, tool)
        for endpoint, expose in self._exposures[server]:
            self._by_use[endpoint, expose(shown)] = outcomes
