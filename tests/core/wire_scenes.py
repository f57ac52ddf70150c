"""Wire logs for the oracle: a conversation is written once, for any revision and any transport."""

from __future__ import annotations

import json
from typing import Any

from isthmus.core.base.revisions import MODERN
from isthmus.core.oracle import PIPE_CHANNEL, AnyObservation, Ended, Head, Opened, Role, Said, Transport, Verb

CLIENT, SERVER = Role.CLIENT, Role.SERVER
K = "io.modelcontextprotocol/"
TASKS = K + "tasks"
BOTH = "application/json, text/event-stream"
EVENTS, JSON = "text/event-stream", "application/json"
NAMED = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}
CACHEABLE = ("tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read")

CLIENT_CAN: dict[str, Any] = {
    "roots": {"listChanged": True},
    "sampling": {"tools": {}},
    "elicitation": {"form": {}, "url": {}},
    "tasks": {"list": {}, "cancel": {}, "requests": {"sampling": {"createMessage": {}}}},
    "extensions": {TASKS: {}},
}
SERVER_CAN: dict[str, Any] = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
    "logging": {},
    "completions": {},
    "tasks": {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}},
}


def without(declared: dict[str, Any], *path: str) -> dict[str, Any]:
    """Returns a copy of the capabilities without the one at `path`."""
    copied: dict[str, Any] = json.loads(json.dumps(declared))
    inner = copied
    for step in path[:-1]:
        inner = inner[step]
    del inner[path[-1]]
    return copied


class Wire:
    """The observations of one wire so far. Every message is correct, unless an argument changes it."""

    def __init__(self, revision: str, transport: Transport = Transport.PIPE) -> None:
        self.revision, self.transport = revision, transport
        self.is_stateless = revision in MODERN
        self.seen: list[AnyObservation] = []
        self.session: str | None = None
        self.client_can = CLIENT_CAN
        self.is_initialized = False
        self.last_id = 100
        self.last_channel = PIPE_CHANNEL
        self.methods: dict[Any, str] = {}
        self.channels: dict[Any, int] = {}
        self.stream: int | None = None
        """The channel of the event stream of HTTP+SSE."""

    # --- Anything at all --------------------------------------------------------------------------------------------

    def raw(self, sender: Role, message: bytes, channel: int | None = None, **more: Any) -> None:
        self.seen.append(Said(self.last_channel if channel is None else channel, sender, message, **more))

    def send(
        self,
        sender: Role,
        message: Any,
        channel: int | None = None,
        *,
        event_id: str | None = None,
        at: float | None = None,
        event: str = "message",
    ) -> None:
        self.raw(sender, json.dumps(message).encode(), channel, event_id=event_id, at=at, event=event)

    def open(self, verb: Verb = Verb.POST, **head: Any) -> int:
        """Opens an HTTP request with its usual headers. Returns its channel."""
        self.last_channel = len(self.seen) + 1
        usual: dict[str, Any] = {"accept": BOTH if verb is Verb.POST else EVENTS}
        if self.transport is Transport.HTTP:
            usual["session"] = self.session
            usual["revision"] = self.revision if self.is_initialized or self.is_stateless else None
        self.seen.append(Opened(self.last_channel, verb, **{**usual, **head}))
        return self.last_channel

    def head(self, channel: int, status: int = 200, content_type: str = EVENTS, session: str | None = None) -> None:
        self.seen.append(Head(channel, status, content_type, session))

    def end(self, channel: int, by: Role | None = SERVER) -> None:
        self.seen.append(Ended(channel, by))

    # --- Clients ----------------------------------------------------------------------------------------------------

    def meta(self, capabilities: Any = None, **more: Any) -> dict[str, Any]:
        if not self.is_stateless:
            return dict(more)
        declared = self.client_can if capabilities is None else capabilities
        info = {"name": "c", "version": "1"}
        usual = {K + "protocolVersion": self.revision, K + "clientCapabilities": declared, K + "clientInfo": info}
        return {name: value for name, value in {**usual, **more}.items() if value is not ...}

    def request(
        self,
        method: str,
        id: Any = None,
        *,
        meta: dict[str, Any] | None = None,
        head: dict[str, Any] | None = None,
        at: float | None = None,
        **params: Any,
    ) -> Any:
        """Sends a request of the client. Returns its id."""
        if id is None:
            self.last_id += 1
            id = self.last_id
        own_meta = self.meta() if meta is None else meta
        if own_meta:
            params["_meta"] = own_meta
        self.post(method, head, params)
        self.methods[id] = method
        self.channels[id] = self.last_channel
        self.send(CLIENT, {"jsonrpc": "2.0", "id": id, "method": method, "params": params}, at=at)
        if self.transport is Transport.EVENTS:
            self.head(self.last_channel, 202, "")
            self.end(self.last_channel)
        return id

    def post(self, method: str, head: dict[str, Any] | None, params: dict[str, Any]) -> None:
        if self.transport is Transport.PIPE:
            return
        mirrored = [("Mcp-Method", method)]
        if method in NAMED and NAMED[method] in params:
            mirrored.append(("Mcp-Name", str(params[NAMED[method]])))
        self.open(**{"mirrored": tuple(mirrored) if self.is_stateless else None, **(head or {})})

    def call(self, id: Any = None, **params: Any) -> Any:
        return self.request("tools/call", id, **{"name": "t", "arguments": {}, **params})

    def notify(self, method: str, *, head: dict[str, Any] | None = None, status: int = 202, **params: Any) -> None:
        """Sends a notification of the client."""
        self.post(method, head, params)
        self.send(CLIENT, {"jsonrpc": "2.0", "method": method, "params": params})
        if self.transport is not Transport.PIPE:
            self.head(self.last_channel, status, "")
            self.end(self.last_channel)

    def respond(self, id: Any, **result: Any) -> None:
        """Sends a response of the client."""
        self.post("", None, {})
        self.send(CLIENT, {"jsonrpc": "2.0", "id": id, "result": result})
        if self.transport is not Transport.PIPE:
            self.head(self.last_channel, 202, "")
            self.end(self.last_channel)

    def listen(self, **head: Any) -> int:
        """Opens the GET stream. Returns its channel."""
        channel = self.open(Verb.GET, **head)
        self.head(channel)
        return channel

    # --- Servers ----------------------------------------------------------------------------------------------------

    def begin(self, id: Any, session: str | None = None) -> int:
        """Begins the response stream of a request, over HTTP. Returns the channel of the response."""
        channel = self.channels[id]
        if self.transport is Transport.HTTP and not any(
            isinstance(o, Head) and o.channel == channel for o in self.seen
        ):
            self.head(channel, session=session)
        return channel if self.transport is Transport.HTTP else self.stream or PIPE_CHANNEL

    def reply(self, id: Any, *, is_last: bool = True, at: float | None = None, **result: Any) -> None:
        """Sends a result of the server, with the members that the revision requires."""
        if self.is_stateless:
            result.setdefault("resultType", "complete")
            result["_meta"] = {K + "serverInfo": {"name": "s", "version": "1"}, **result.get("_meta", {})}
            if self.methods[id] in (*CACHEABLE, "server/discover") and result["resultType"] == "complete":
                result = {"ttlMs": 0, "cacheScope": "private", **result}
        self.answer(id, is_last=is_last, at=at, result={k: v for k, v in result.items() if v is not ...})

    def answer(self, id: Any, *, is_last: bool = True, at: float | None = None, **members: Any) -> None:
        """Sends a response of the server as it is."""
        channel = self.begin(id)
        self.send(SERVER, {"jsonrpc": "2.0", "id": id, **members}, channel, at=at)
        if self.transport is Transport.HTTP and is_last:
            self.end(channel)

    def tell(self, method: str, on: Any = None, *, channel: int | None = None, id: Any = None, **params: Any) -> None:
        """Sends a notification of the server, or a request if `id` is given, on `channel` or the stream of `on`."""
        if channel is None:
            channel = self.begin(on) if on is not None else self.stream or PIPE_CHANNEL
        message = {"jsonrpc": "2.0", "method": method, "params": params}
        self.send(SERVER, message if id is None else {**message, "id": id}, channel)

    # --- The beginning ----------------------------------------------------------------------------------------------

    def handshake(
        self,
        client_can: dict[str, Any] | None = None,
        server_can: dict[str, Any] | None = None,
        *,
        is_ready: bool = True,
    ) -> None:
        """Does the handshake; in the stateless era, `server/discover`."""
        self.client_can = CLIENT_CAN if client_can is None else client_can
        declared = SERVER_CAN if server_can is None else server_can
        if self.transport is Transport.EVENTS and self.stream is None:
            self.stream = self.listen()
            self.raw(SERVER, b"/messages?s=1", self.stream, event="endpoint")
        if self.is_stateless:
            self.reply(self.request("server/discover", 0), supportedVersions=[self.revision], capabilities=declared)
            return
        self.initialize()
        self.answer_initialize(server_can=declared)
        if is_ready:
            self.notify("notifications/initialized")

    def initialize(self, **params: Any) -> None:
        info = {"name": "c", "version": "1"}
        usual = {"protocolVersion": self.revision, "capabilities": self.client_can, "clientInfo": info}
        self.request("initialize", 0, **{k: v for k, v in {**usual, **params}.items() if v is not ...})

    def answer_initialize(
        self, *, session: str | None = "S1", server_can: dict[str, Any] | None = None, **result: Any
    ) -> None:
        info = {"name": "s", "version": "1"}
        declared = SERVER_CAN if server_can is None else server_can
        usual = {"protocolVersion": self.revision, "capabilities": declared, "serverInfo": info}
        if self.transport is Transport.HTTP:
            self.begin(0, session)
            self.session = session
        self.reply(0, **{k: v for k, v in {**usual, **result}.items() if v is not ...})
        self.is_initialized = True
