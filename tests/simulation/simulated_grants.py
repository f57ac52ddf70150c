"""Servers with access rules, and clients whose grants change: wider, narrower, and back again.

Each client of such a world calls tools with rules, lists them, and asks for its tasks of them. The record knows the
rules and which grants were shown with each request. It shares nothing with the proxy. What it checks:

- a call reaches its server if, and only if, the grants shown with it allow the tool;
- what is for a group that the caller is not in is answered as unknown, and is in no list;
- what needs a scope that the token lacks is refused as such, and is listed;
- all this holds for the tasks of the tool, too;
- what is allowed is never refused for its grants.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from isthmus.core.base.grants import Grants
from isthmus.core.base.plan import AccessRule, AccessRules
from simulated_answers import answers_to, texts_in
from simulated_network import Network, Wrong

if TYPE_CHECKING:
    from simulated_clients import Client, Owed

NAMES: Final = ("keep-0", "keep-1", "keep-2", "drop-0", "drop-1")
"""The tools with rules. All servers of a world with grants have them beside the others."""
GROUPS: Final = ("staff", "ops")
SCOPES: Final = ("run", "write")
TASKS_MAX: Final = 8
"""The tasks that a client asks about; it leaves older ones alone."""

ALLOWED, NEEDS_SCOPES, HIDDEN = "allowed", "needs scopes", "hidden"
DENIED: Final = -31009
UNKNOWN: Final = -32602


class Rule(NamedTuple):
    """The scopes and groups that a tool needs."""

    scopes: frozenset[str]
    groups: frozenset[str]

    def verdict(self, grants: Grants) -> str:
        if self.groups and not self.groups & grants.groups:
            return HIDDEN
        return ALLOWED if self.scopes <= grants.scopes else NEEDS_SCOPES


class GrantRecord:
    """The rules of all servers, and what was judged of each call.

    Attributes:
        verdicts: by the text that only that call has.
    """

    def __init__(self, network: Network) -> None:
        self.network = network
        self.rules: dict[str, dict[str, Rule]] = {}
        self.verdicts: dict[str, str] = {}
        self.allowed: set[str] = set()  # calls that were allowed when they were made, and may still be on their way

    def draw_rules(self, server: str) -> AccessRules:
        """Draws the rules of a server. Some stand under a pattern, for two tools at once."""
        rng = self.network.rng_of(f"rules of {server}")
        found: dict[str, Rule] = {}
        written = []
        for pattern in (*NAMES[:3], "drop-*"):
            rule = Rule(_some(rng, SCOPES), _some(rng, GROUPS))
            written.append((pattern, AccessRule(tuple(sorted(rule.scopes)), tuple(sorted(rule.groups)))))
            found |= {name: rule for name in NAMES if name == pattern or (pattern == "drop-*" and name[:5] == "drop-")}
        self.rules[server] = found
        return AccessRules(tools=tuple(written))

    def receive_call(self, server: str, params: dict[str, Any]) -> None:
        """Checks a call that has reached a server."""
        say = params["arguments"]["say"]
        verdict = self.verdicts.get(say, ALLOWED)
        if verdict is not ALLOWED and say not in self.allowed:
            raise Wrong(f"{server} was sent a call whose tool was {verdict} for its caller: {params}")


def _some(rng: random.Random, names: tuple[str, ...]) -> frozenset[str]:
    return frozenset(name for name in names if rng.random() < 0.35)


class GrantedClient:
    """The actions of one client with its grants."""

    def __init__(self, client: Client, record: GrantRecord) -> None:
        self.client, self.network, self.record = client, client.network, record
        self.rules = record.rules[client.server]
        self.tasks: dict[str, str] = {}  # the tools of its tasks, by their ids
        self._change(self.network.rng_of(f"first grants of {client.name}"))

    def act(self, number: int) -> None:
        """Does one action. All random choices are drawn by its number."""
        client, rng = self.client, self.network.rng_of(f"{self.client.name} with grants {number}")
        kind = rng.random()
        if kind < 0.3:
            self._change(rng)
        elif client.is_done or not client.is_ready:
            return
        elif kind < 0.65:
            self._call(rng)
        elif kind < 0.8:
            client.request("tools/list", settle=self._settle_list(client.shown))
        elif self.tasks:
            self._ask_about(rng.choice(list(self.tasks)), rng)

    def _change(self, rng: random.Random) -> None:
        """Takes a new token: with more than the last, with less, or any."""
        client, drawn = self.client, Grants(_some(rng, SCOPES), _some(rng, GROUPS))
        scopes, groups, kind = client.grants.scopes, client.grants.groups, rng.random()
        if kind < 0.4:
            drawn = Grants(scopes | drawn.scopes | {rng.choice(SCOPES)}, groups | drawn.groups | {rng.choice(GROUPS)})
        elif kind < 0.7:
            drawn = Grants(scopes & drawn.scopes, groups & drawn.groups)
        client.grants = drawn

    # --- Calls ------------------------------------------------------------------------------------------------------

    def _call(self, rng: random.Random) -> None:
        client, tool = self.client, rng.choice(NAMES)
        say = f"{client.mark}g{client.last + 1}"
        params: dict[str, Any] = {"name": tool, "arguments": {"say": say, "ask": False}}
        if client.tasks is not None and client.tasks.may_use and not client.is_modern and rng.random() < 0.5:
            params["task"] = {}
        self._send(tool, say, params)

    def _send(self, tool: str, say: str, params: dict[str, Any]) -> None:
        """Sends a call, for the first time or with answers to questions."""
        client, verdict = self.client, self.rules[tool].verdict(self.client.shown)
        self.record.verdicts[say] = verdict
        if verdict is ALLOWED:
            self.record.allowed.add(say)

        def settle(owed: Owed, frame: dict[str, Any]) -> None:
            if not self._is_allowed(verdict, frame, f"Unknown tool: {tool}"):
                return
            result = frame["result"]
            if result.get("resultType") == "input_required":  # its server asks during another call, on the same stream
                self._send(tool, say, {**params, **answers_to(result)})
                return
            shape = result.get("task") or (result if result.get("resultType") == "task" else None)
            if shape is not None:
                self.tasks[shape["taskId"]] = tool
                for id in list(self.tasks)[:-TASKS_MAX]:
                    del self.tasks[id]
            elif texts_in(result) != [say] and not result.get("isError"):
                raise Wrong(f"{say!r} was answered {result!r}")

        client.request("tools/call", params, settle=settle)

    def _is_allowed(self, verdict: str, frame: dict[str, Any], unknown: str) -> bool:
        """Checks that an answer is one that the verdict allows. True if it is a result."""
        client, error = self.client, frame.get("error", {})
        is_denied, is_unknown = error.get("code") == DENIED, error.get("message") == unknown
        if verdict is ALLOWED and (is_denied or is_unknown):
            raise Wrong(f"{client.mark} may do that, and was refused: {frame}")
        if verdict is ALLOWED and error and not self.network.faults:
            raise Wrong(f"nothing went wrong, and {client.mark} got {frame}")
        if verdict is not ALLOWED and "result" in frame:
            raise Wrong(f"{client.mark} may not do that, which was {verdict} for it: {frame}")
        if (verdict is HIDDEN and is_denied) or (verdict is NEEDS_SCOPES and is_unknown):
            raise Wrong(f"{client.mark} was refused in the wrong way for what was {verdict}: {frame}")
        if verdict is not ALLOWED and not self.network.faults and not (is_denied or is_unknown):
            raise Wrong(f"{client.mark} was refused for something else than its grants: {frame}")
        client.outcomes[f"grants {verdict if is_denied or is_unknown or not error else 'failed'}"] += 1
        return "result" in frame

    # --- Lists ------------------------------------------------------------------------------------------------------

    def _settle_list(self, grants: Grants) -> Any:
        visible = {name for name in NAMES if self.rules[name].verdict(grants) is not HIDDEN}

        def settle(owed: Owed, frame: dict[str, Any]) -> None:
            if "result" in frame:
                listed = {tool["name"] for tool in frame["result"]["tools"]} & set(NAMES)
                if listed != visible:
                    raise Wrong(f"{self.client.mark} was shown the tools {listed}, and may see {visible}")
                self.client.outcomes["grants listed"] += 1

        return settle

    # --- Tasks ------------------------------------------------------------------------------------------------------

    def _ask_about(self, id: str, rng: random.Random) -> None:
        client, verdict = self.client, self.rules[self.tasks[id]].verdict(self.client.shown)
        if not client.is_modern and rng.random() < 0.4:
            client.request("tasks/list", settle=self._settle_tasks(client.shown))
            return
        method = rng.choice(("tasks/get", "tasks/get", "tasks/cancel"))

        def settle(owed: Owed, frame: dict[str, Any]) -> None:
            error = frame.get("error", {})
            if error.get("code") == UNKNOWN and verdict is ALLOWED:
                self.tasks.pop(id, None)  # its time is over, its session is, or it was over when it was cancelled
            elif "result" in frame and verdict is not ALLOWED:
                raise Wrong(f"{client.mark} may not use the tool of {id}, which was {verdict} for it: {frame}")
            elif (error.get("code") == DENIED) and verdict is not NEEDS_SCOPES:
                raise Wrong(f"{client.mark} was refused a task whose tool was {verdict} for it: {frame}")
            else:
                client.outcomes[f"grants task {verdict}"] += 1

        client.request(method, {"taskId": id}, settle=settle)

    def _settle_tasks(self, grants: Grants) -> Any:
        hidden = {id for id, tool in self.tasks.items() if self.rules[tool].verdict(grants) is HIDDEN}

        def settle(owed: Owed, frame: dict[str, Any]) -> None:
            listed = {shape["taskId"] for shape in frame.get("result", {}).get("tasks", ())}
            if listed & hidden:
                raise Wrong(f"{self.client.mark} was shown tasks of hidden tools: {listed & hidden}")

        return settle
