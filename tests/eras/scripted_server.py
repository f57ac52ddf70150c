"""A scripted MCP server of exactly one protocol revision, over stdio or HTTP, with the standard library alone.

`scripted_server.py REVISION stdio|http FOLDER`. Over HTTP it prints its URL: Streamable HTTP, or, at 2024-11-05,
HTTP+SSE. Each frame that it receives is written to FOLDER for validation. Violations of rules that no schema can state
are kept, and the tool `violations` returns them.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import itertools
import json
import os
import queue
import sys
import threading
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, Final, Protocol

import server_tools
from abilities import ABILITIES, QUESTIONS, K, askable
from server_tools import Answer, Failure, Lacking, Memory, Questions, tools_of

PATIENCE_S: Final = 30.0
VISIT_S: Final = 0.1
"""The time that a user looks at a page."""
LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
INFO: Final = {"name": "scripted", "version": "1"}
INSTRUCTIONS: Final = "Ask it anything."
TOOL_METHODS: Final = ("tools/call", "prompts/get")
"""Requests that run a script, and may take long."""
CACHEABLE: Final = ("tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read")
SECRET: Final = b"of this process"


class Writer(Protocol):
    """A stream that frames are written to."""

    def write(self, frame: dict[str, Any]) -> None: ...
    def is_gone(self) -> bool:
        """True if the client has hung up."""
        ...


class Server:
    """The state of a process, on any transport."""

    def __init__(self, revision: str, transport: str, folder: Path) -> None:
        self.revision, self.transport = revision, transport
        self.knows = ABILITIES[revision]
        self.is_legacy = "handshake" in self.knows
        self.memory = Memory()
        self.tools = tools_of(self.knows)
        self.peers: list[Peer] = []
        self._file = (folder / f"{revision}-{transport}-{os.getpid()}.jsonl").open("a", encoding="utf-8")
        self._lock = threading.Lock()

    def note_frame(self, frame: object, answered: str | None) -> None:
        """Writes down a frame, with the method that it answers if it is an answer."""
        with self._lock:
            self._file.write(json.dumps({"frame": frame, "of": answered}) + "\n")
            self._file.flush()

    def violate(self, rule: str) -> None:
        with self._lock:
            self.memory.violations.append(rule)

    @property
    def capabilities(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "tools": {"listChanged": True},
            "prompts": {},
            "resources": {"subscribe": True, "listChanged": True},
            "logging": {},
        }
        return found | ({"completions": {}} if "completions" in self.knows else {})

    def new_peer(self, main: Writer) -> Peer:
        self.peers.append(Peer(self, main))
        return self.peers[-1]

    def announce(self, method: str, params: dict[str, Any] | None) -> None:
        for peer in list(self.peers):
            peer.announce(method, params)


class Peer:
    """One client: a session of the handshake revisions, otherwise a connection.

    Args:
        main: its stream for messages that belong to no request.
    """

    def __init__(self, server: Server, main: Writer) -> None:
        self.server, self.main = server, main
        self.may_ask: frozenset[str] = frozenset()
        self.level: str | None = None
        self.subscribed: set[str] = set()
        self.listening: dict[str, Subscription] = {}
        self._is_begun = self._is_confirmed = False
        self._seen: set[str] = set()
        self._open: dict[str, Running] = {}
        self._asked: dict[str, tuple[str, queue.Queue[Answer]]] = {}
        self._numbers = itertools.count(1)

    # Incoming frames

    def receive(self, frame: Any, way: Writer, done: Callable[[], None] = lambda: None) -> None:
        """Notes a frame, and answers it on `way`. Calls `done` when all is sent."""
        server = self.server
        if not isinstance(frame, dict):
            server.note_frame(frame, None)
            server.violate(f"got {type(frame).__name__}, expected an object")
            done()
        elif "method" not in frame:
            self._receive_answer(frame)
            done()
        elif "id" not in frame:
            server.note_frame(frame, None)
            self._receive_notification(frame)
            done()
        else:
            server.note_frame(frame, None)
            self._receive_request(frame, way, done)

    def _receive_answer(self, frame: dict[str, Any]) -> None:
        method, answers = self._asked.pop(repr(frame.get("id")), ("", None))
        self.server.note_frame(frame, method or None)
        if answers is None:
            self.server.violate(f"got an answer to {frame.get('id')!r}, which was not asked")
            return
        answers.put({name: frame[name] for name in ("result", "error") if name in frame})

    def _receive_notification(self, frame: dict[str, Any]) -> None:
        method, params = frame["method"], frame.get("params", {})
        if method == "notifications/initialized":
            if self._is_confirmed or not self._is_begun:
                self.server.violate("got initialized, expected it once, after initialize")
            self._is_confirmed = True
        elif method == "notifications/cancelled":
            self.cancel(params.get("requestId"))

    def cancel(self, number: object) -> None:
        running = self._open.get(repr(number))
        if running is not None:
            running.is_cancelled.set()
        self.listening.pop(repr(number), None)

    def _receive_request(self, frame: dict[str, Any], way: Writer, done: Callable[[], None]) -> None:
        key, method = repr(frame["id"]), frame["method"]
        if self.server.is_legacy:
            if key in self._seen:
                self.server.violate(f"got the id {key} twice in one session")
            self._seen.add(key)
        elif key in self._open:
            self.server.violate(f"got the id {key} while it was open")
        running = Running(self, frame, way)
        self._open[key] = running
        if method in TOOL_METHODS or method == "subscriptions/listen":
            threading.Thread(target=self._carry_out, args=(running, done), daemon=True).start()
        else:
            self._carry_out(running, done)

    def _carry_out(self, running: Running, done: Callable[[], None]) -> None:
        answer: dict[str, Any] | None
        try:
            self._check(running)
            answer = {"result": running.result()}
        except Failure as error:
            data = {} if error.data is None else {"data": error.data}
            answer = {"error": {"code": error.code, "message": error.message, **data}}
        except Exception as error:
            self.server.violate(f"{running.method} broke the script: {error!r}")
            answer = {"error": {"code": -32603, "message": repr(error)}}
        if not running.is_cancelled.is_set():
            running.way.write({"jsonrpc": "2.0", "id": running.id, **answer})
        self._open.pop(repr(running.id), None)
        done()

    # Rules that no schema can state

    def _check(self, running: Running) -> None:
        server, method, meta = self.server, running.method, running.meta
        strangers = sorted(name for name in meta if name.startswith(K))
        if not server.is_legacy:
            if method == "initialize":
                requested = running.params.get("protocolVersion", "")
                raise Failure(-32022, "no handshake here", {"supported": [server.revision], "requested": requested})
            for name in ("protocolVersion", "clientCapabilities"):
                if K + name not in meta:
                    server.violate(f"got {method} without {K}{name}")
                    raise Failure(-32602, f"missing {K}{name}")
            if meta[K + "protocolVersion"] != server.revision:
                requested = meta[K + "protocolVersion"]
                raise Failure(-32022, "another revision", {"supported": [server.revision], "requested": requested})
            return
        if method == "server/discover":
            raise Failure(-32601, "Method not found")
        if strangers:
            server.violate(f"got {method} with {strangers}, expected none of it in a session")
        if method == "initialize":
            if self._is_begun:
                server.violate("got initialize twice in one session")
            self._is_begun = True
        elif method != "ping" and not self._is_confirmed:
            server.violate(f"got {method} before initialized")

    # Outgoing frames

    def ask(self, way: Writer, method: str, params: dict[str, Any]) -> queue.Queue[Answer]:
        count = next(self._numbers)
        number: int | str = count if count % 2 else f"q {count}"
        answers: queue.Queue[Answer] = queue.Queue()
        self._asked[repr(number)] = method, answers
        frame = {"jsonrpc": "2.0", "id": number, "method": method}
        way.write(frame | ({"params": params} if params else {}))
        return answers

    def announce(self, method: str, params: dict[str, Any] | None) -> None:
        uri = (params or {}).get("uri")
        if self.server.is_legacy:
            if self._is_confirmed and (uri is None or uri in self.subscribed):
                self.main.write({"jsonrpc": "2.0", "method": method} | ({} if params is None else {"params": params}))
            return
        for listening in list(self.listening.values()):
            listening.announce(method, params)


class Subscription:
    """One `subscriptions/listen`, open until it is cancelled."""

    def __init__(self, running: Running) -> None:
        wanted = running.params["notifications"]
        flags = {name: True for name in ("toolsListChanged", "resourcesListChanged") if wanted.get(name)}
        uris = wanted.get("resourceSubscriptions", [])
        self.honoured: dict[str, Any] = flags | ({"resourceSubscriptions": uris} if uris else {})
        self._meta = {K + "subscriptionId": running.id}
        self._running = running

    def begin(self) -> None:
        self._say("notifications/subscriptions/acknowledged", {"notifications": self.honoured})

    def announce(self, method: str, params: dict[str, Any] | None) -> None:
        if method == "notifications/tools/list_changed":
            wanted = "toolsListChanged" in self.honoured
        else:
            wanted = params is not None and params["uri"] in self.honoured.get("resourceSubscriptions", [])
        if wanted:
            self._say(method, params or {})

    def _say(self, method: str, params: dict[str, Any]) -> None:
        self._running.way.write({"jsonrpc": "2.0", "method": method, "params": {**params, "_meta": self._meta}})


class Running:
    """One request, until it is answered. Tools see it as their `Call`."""

    def __init__(self, peer: Peer, frame: dict[str, Any], way: Writer) -> None:
        self.peer, self.way = peer, way
        self.id, self.method = frame["id"], frame["method"]
        self.params: dict[str, Any] = frame.get("params", {})
        self.meta: dict[str, Any] = self.params.get("_meta", {})
        self.arguments: dict[str, Any] = self.params.get("arguments", {})
        self.knows = peer.server.knows
        self.memory = peer.server.memory
        self.is_cancelled = threading.Event()

    @property
    def may_ask(self) -> frozenset[str]:
        if self.peer.server.is_legacy:
            return self.peer.may_ask
        return askable(self.meta[K + "clientCapabilities"])

    # Methods for tools

    def say(self, method: str, params: dict[str, Any]) -> None:
        if not self.is_cancelled.is_set():
            self.way.write({"jsonrpc": "2.0", "method": method, "params": params})

    def log(self, level: str, text: str) -> None:
        if self.peer.server.is_legacy:
            least = self.peer.level or "debug"
        else:
            least = self.meta.get(K + "logLevel", "")
        if least and LEVELS.index(level) >= LEVELS.index(least):
            self.say("notifications/message", {"level": level, "logger": "scripted", "data": {"said": text}})

    def step(self, done: int, total: int) -> None:
        token = self.meta.get("progressToken")
        if token is not None:
            message = {"message": f"step {done}"} if "progress texts" in self.knows else {}
            self.say("notifications/progress", {"progressToken": token, "progress": done, "total": total, **message})

    def wait_cancelled(self) -> bool:
        for _ in range(int(PATIENCE_S / 0.02)):
            if self.is_cancelled.wait(0.02) or self._has_left():
                self.is_cancelled.set()
                return True
        return False

    def _has_left(self) -> bool:
        """True if hanging up cancels the request, which in sessions it does not (2025-03-26 basic/transports)."""
        return not self.peer.server.is_legacy and self.way.is_gone()

    def changed(self, method: str, params: dict[str, Any] | None = None) -> None:
        self.peer.server.announce(method, params)

    def notify_later(self, method: str, params: dict[str, Any]) -> None:
        """Sends a notification after the call is over, on the stream that belongs to no call."""
        frame = {"jsonrpc": "2.0", "method": method, "params": params}
        timer = threading.Timer(VISIT_S, self.peer.main.write, (frame,))
        timer.daemon = True
        timer.start()

    # Answers

    def result(self) -> dict[str, Any]:
        server = self.peer.server
        simple = {
            "initialize": self._initialize,
            "server/discover": self._discover,
            "ping": dict,
            "logging/setLevel": self._set_level,
            "tools/list": self._list_tools,
            "tools/call": self._call,
            "prompts/list": lambda: {"prompts": server_tools.PROMPTS},
            "prompts/get": self._prompt,
            "resources/list": self._list_resources,
            "resources/templates/list": lambda: {"resourceTemplates": server_tools.TEMPLATES},
            "resources/read": self._read,
            "resources/subscribe": lambda: self.peer.subscribed.add(self.params["uri"]) or {},
            "resources/unsubscribe": lambda: self.peer.subscribed.discard(self.params["uri"]) or {},
            "completion/complete": self._complete,
            "subscriptions/listen": self._listen,
        }
        of_sessions = ("initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe")
        others = of_sessions if not server.is_legacy else ("server/discover", "subscriptions/listen")
        if self.method not in simple or self.method in others:
            raise Failure(-32601, "Method not found", {"method": self.method})
        result = simple[self.method]()
        if server.is_legacy:
            return result
        result = {"resultType": "complete"} | result
        result["_meta"] = {K + "serverInfo": INFO, **result.get("_meta", {})}
        if self.method in CACHEABLE and result["resultType"] == "complete":
            result |= {"ttlMs": 0, "cacheScope": "private"}
        return result

    def _initialize(self) -> dict[str, Any]:
        server = self.peer.server
        self.peer.may_ask = askable(self.params["capabilities"]) & server.knows
        return {
            "protocolVersion": server.revision,
            "capabilities": server.capabilities,
            "serverInfo": INFO,
            "instructions": INSTRUCTIONS,
        }

    def _discover(self) -> dict[str, Any]:
        server = self.peer.server
        found = {"supportedVersions": [server.revision], "capabilities": server.capabilities}
        return {**found, "instructions": INSTRUCTIONS, "ttlMs": 0, "cacheScope": "private"}

    def _set_level(self) -> dict[str, Any]:
        if self.params["level"] not in LEVELS:
            raise Failure(-32602, "no such level")
        self.peer.level = self.params["level"]
        return {}

    def _list_tools(self) -> dict[str, Any]:
        server = self.peer.server
        listed = [one.listed(server.knows) for one in server.tools.values()]
        if self.memory.has_extra_tool:
            listed.append({"name": "extra", "inputSchema": {"type": "object"}})
        return {"tools": listed}

    def _list_resources(self) -> dict[str, Any]:
        cursor = self.params.get("cursor")
        if cursor is None:
            return {
                "resources": server_tools.RESOURCES[: server_tools.PAGE_SIZE],
                "nextCursor": server_tools.SECOND_PAGE,
            }
        if cursor != server_tools.SECOND_PAGE:
            raise Failure(-32602, "no such page", {"cursor": cursor})
        return {"resources": server_tools.RESOURCES[server_tools.PAGE_SIZE :]}

    def _read(self) -> dict[str, Any]:
        uri = self.params["uri"]
        if uri not in server_tools.CONTENTS:
            raise Failure(-32002 if self.peer.server.is_legacy else -32602, "Resource not found", {"uri": uri})
        return {"contents": server_tools.CONTENTS[uri]}

    def _complete(self) -> dict[str, Any]:
        begun = self.params["argument"]["value"]
        values = [value for value in server_tools.COMPLETIONS if value.startswith(begun)]
        return {"completion": {"values": values, "total": 7, "hasMore": True}}

    def _listen(self) -> dict[str, Any]:
        """Waits for the end of the subscription, which this server never ends."""
        listening = Subscription(self)
        self.peer.listening[repr(self.id)] = listening
        listening.begin()
        while not (self.is_cancelled.wait(0.02) or self._has_left()):
            pass
        self.peer.listening.pop(repr(self.id), None)
        self.is_cancelled.set()
        return {"_meta": {K + "subscriptionId": self.id}}

    # Scripts

    def _call(self) -> dict[str, Any]:
        tool = self.peer.server.tools.get(self.params["name"])
        if tool is None:
            raise Failure(-32602, "Unknown tool", {"name": self.params["name"]})
        return self._run(tool.run)

    def _prompt(self) -> dict[str, Any]:
        script = server_tools.PROMPT_SCRIPTS.get(self.params["name"])
        if script is None:
            raise Failure(-32602, "Unknown prompt", {"name": self.params["name"]})
        return self._run(script)

    def _run(self, tool: server_tools.Tool) -> dict[str, Any]:
        try:
            script = tool(self)
            if isinstance(script, Generator):
                return self._ask_by_requests(script) if self.peer.server.is_legacy else self._replay(script)
            return script
        except Lacking as error:
            name = str(error)
            if self.peer.server.is_legacy:
                return {**server_tools.text(f"the client does not declare {name}"), "isError": True}
            raise Failure(-32021, f"needs {name}", {"requiredCapabilities": QUESTIONS[name]}) from None

    def _ask_by_requests(self, script: server_tools.Script) -> dict[str, Any]:
        """Asks by requests on the call's own stream."""
        try:
            asked = next(script)
            while True:
                waiting = {name: self.peer.ask(self.way, *question) for name, question in asked.items()}
                asked = script.send({name: answers.get(timeout=PATIENCE_S) for name, answers in waiting.items()})
        except StopIteration as stop:
            result: dict[str, Any] = stop.value
            return result

    def _replay(self, script: server_tools.Script) -> dict[str, Any]:
        """Asks by `input_required`: the script runs again from its beginning, with the answers of earlier rounds."""
        earlier, given = self._opened_state(), self.params.get("inputResponses")
        try:
            asked = next(script)
            for answers in earlier:
                asked = script.send({name: {"result": answers[name]} for name in asked})
            if given is not None and "requestState" in self.params:
                missing = {name: asked[name] for name in asked if name not in given}
                if missing:
                    self.peer.server.violate(f"got no answers to {sorted(missing)}")
                    return self._input_required(asked, earlier)
                if unknown := sorted(set(given) - set(asked)):
                    self.peer.server.violate(f"got answers to {unknown}, which this round does not ask")
                earlier = [*earlier, {name: given[name] for name in asked}]
                asked = script.send({name: {"result": given[name]} for name in asked})
            return self._input_required(asked, earlier)
        except StopIteration as stop:
            result: dict[str, Any] = stop.value
            return result

    def _input_required(self, asked: Questions, earlier: list[dict[str, Any]]) -> dict[str, Any]:
        requests = {
            name: {"method": method} | ({"params": params} if params else {})
            for name, (method, params) in asked.items()
        }
        state = {"of": self._digest(), "odd": 'é "\\ \u2028', "earlier": earlier}
        return {"resultType": "input_required", "inputRequests": requests, "requestState": signed(state)}

    def _digest(self) -> str:
        """Returns a hash of the members that a retry shares with the first request."""
        left = {k: v for k, v in self.params.items() if k not in ("_meta", "inputResponses", "requestState")}
        return hashlib.sha256(json.dumps([self.method, left], sort_keys=True).encode()).hexdigest()

    def _opened_state(self) -> list[dict[str, Any]]:
        if "requestState" not in self.params:
            return []
        state = opened(self.params["requestState"])
        if state is None:
            self.peer.server.violate("got a requestState that was not issued")
            raise Failure(-32602, "Invalid or expired requestState")
        if state["of"] != self._digest():
            self.peer.server.violate(f"got a retry of {self.method} that differs from what was asked first")
            raise Failure(-32602, "Invalid or expired requestState")
        earlier: list[dict[str, Any]] = state["earlier"]
        return earlier


def signed(state: dict[str, Any]) -> str:
    """Signed; readable text where it holds few answers, so that its odd characters travel."""
    plain = json.dumps(state, ensure_ascii=False)
    mac = hmac.digest(SECRET, plain.encode(), "sha256").hex()
    if state["earlier"]:
        return f"{base64.b64encode(plain.encode()).decode()}.{mac}"
    return f"{plain}.{mac}"


def opened(text: str) -> dict[str, Any] | None:
    plain, _, mac = text.rpartition(".")
    if not plain.startswith("{"):
        plain = base64.b64decode(plain).decode()
    if not hmac.compare_digest(hmac.digest(SECRET, plain.encode(), "sha256").hex(), mac):
        return None
    state: dict[str, Any] = json.loads(plain)
    return state


def main() -> None:
    import server_wires

    revision, transport, folder = sys.argv[1:4]
    server = Server(revision, transport, Path(folder))
    if transport == "stdio":
        server_wires.speak_stdio(server)
    else:
        server_wires.speak_http(server)


if __name__ == "__main__":
    main()
