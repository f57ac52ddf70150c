"""The peers of a dialogue: what clients and servers say, and what they expect."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, urlsplit

from expected_values import Containing
from isthmus.core import (
    Cause,
    ChannelId,
    Connected,
    Decide,
    DeleteOpening,
    End,
    Era,
    GetOpening,
    Headers,
    Kind,
    PipeOpening,
    Post,
    PostOpening,
    ServerPlan,
    UploadOpening,
)
from isthmus.core.base.grants import Grants
from isthmus.core.wire.http.mcp_headers import headers_for

if TYPE_CHECKING:
    from dialogue import Dialogue

META: Final = "io.modelcontextprotocol/"
HANDSHAKE: Final = "2025-11-25"
STATELESS: Final = "2026-07-28"
ABLE: Final = {"elicitation": {}, "sampling": {}}
NOTHING: Final[dict[str, Any]] = {}


@dataclass(frozen=True)
class Request:
    """A request that was said or has come. `params` has the whole `_meta`; the answer comes on `channel`."""

    id: Any
    method: str
    params: Any
    channel: ChannelId
    post: Post | None = None


class Peer:
    """A client or a server: the verbs of both."""

    def __init__(self, play: Dialogue, name: str) -> None:
        self.play = play
        self.name = name
        self.last_id = 0
        self.session: str | None = None
        self.seen: dict[ChannelId, list[str]] = {}  # event ids

    # --- Says -------------------------------------------------------------------------------------------------------

    def asks(self, method: str, params: Any = None, *, on: Any = None, id: Any = None) -> Request:
        self.last_id += 1
        number = self.last_id if id is None else id
        channel = self.says({"id": number, "method": method} | self.worded(params), on)
        return Request(number, method, params, channel)

    def notifies(self, method: str, params: Any = None, *, on: Any = None) -> None:
        told = {} if params is None else {"params": params}
        self.says({"method": f"notifications/{method}"} | told, on)

    def answers(self, request: Request, result: Any = NOTHING, *, error: int | dict[str, Any] | None = None) -> None:
        if error is None:
            told = {"result": result}
        else:
            told = {"error": {"code": error, "message": "no"} if isinstance(error, int) else error}
        self.says({"id": request.id} | told, request)

    def cancels(self, request: Request) -> None:
        self.notifies("cancelled", {"requestId": request.id}, on=request)

    def worded(self, params: Any) -> dict[str, Any]:
        return {} if params is None else {"params": params}

    def shown(self, params: Any) -> Any:
        return params

    def says(self, frame: dict[str, Any], on: Any) -> ChannelId:
        raise NotImplementedError

    # --- Expects ----------------------------------------------------------------------------------------------------

    def is_asked(self, method: str, params: Any = ..., *, on: Any = None) -> Request:
        request = self.play.expects(self, "is asked", [method, params], on).request
        assert request is not None
        return request

    def is_notified(self, method: str, params: Any = ..., *, on: Any = None) -> None:
        self.play.expects(self, "is notified", [f"notifications/{method}", params], on)

    def is_cancelled(self, request: Request) -> None:
        self.is_notified("cancelled", Containing({"requestId": request.id}))

    def is_answered(
        self, request: Request, result: Any = NOTHING, *, error: int | dict[str, Any] | None = None
    ) -> None:
        """Expects a result, or an error: its code, or some of its members."""
        if error is None:
            told = {"result": result}
        else:
            told = {"error": Containing({"code": error} if isinstance(error, int) else error)}
        on = request if isinstance(self, Client) else None  # to a URL, answers are POSTs of their own
        self.play.expects(self, "is answered", {"id": request.id} | told, on)

    def is_closed(self, on: Any = None) -> None:
        self.play.expects(self, "is closed", None, on)

    def hears(self, channel: ChannelId, message: bytes, post: Post | None = None) -> None:
        """Takes in a message that the engine sent."""
        frame = json.loads(message)
        method, params = frame.get("method"), frame.get("params")
        if method is None:
            self.play.came(self, "is answered", {key: frame[key] for key in frame if key != "jsonrpc"}, channel)
        elif "id" in frame:
            request = Request(frame["id"], method, params, channel, post)
            self.play.came(self, "is asked", [method, self.shown(params)], channel, request)
        else:
            self.play.came(self, "is notified", [method, self.shown(params)], channel)


class Client(Peer):
    """A client of one server, on a pipe or over HTTP."""

    def __init__(
        self,
        play: Dialogue,
        name: str,
        server: str,
        down: str,
        *,
        era: Era = Era.HANDSHAKE,
        able: dict[str, Any] = ABLE,
        revision: Any = HANDSHAKE,
        principal: str = "",
        groups: str = "",
        scopes: str = "",
        address: str = "",
        base_url: str = "http://here",
    ) -> None:
        super().__init__(play, name)
        self.base_url = base_url
        self.shows(groups, scopes)
        self.address = address
        self.server, self.era, self.able, self.revision, self.principal = server, era, able, revision, principal
        self.pipe: ChannelId | None = None
        self.headers: Headers = ()
        self.passed: Headers = ()  # the headers that go on to the server with each request
        if down == "pipe":
            self.pipe = self.opens(PipeOpening(server, principal, base_url, grants=self.grants, address=address))

    def shows(self, groups: str = "", scopes: str = "", *, issued_at_unix: float | None = None) -> None:
        """Shows a token with these groups and scopes, separated by spaces, with each request from now on."""
        self.grants = Grants(frozenset(scopes.split()), frozenset(groups.split()), issued_at_unix)

    def opens(self, opening: Any, *, is_silent: bool = False) -> ChannelId:
        """Opens a channel; a silent one gets no answer but its status."""
        channel = self.play.engine.new_channel()
        self.play.owners[channel] = self
        if is_silent:
            self.play.silent.add(channel)
        self.play.happens(self.play.engine.receive_open, channel, opening)
        return channel

    def waits_for_decision(self, method: str, name: str | None = None) -> Decide:
        """Expects that the driver has to decide about a request. Returns the order."""
        channel = self.play.expects(self, "waits for a decision on", [method, name]).channel
        found = next(each for each in self.play.undecided if (each.channel, each.method) == (channel, method))
        self.play.undecided.remove(found)
        return found

    def asks(
        self, method: str, params: Any = None, *, on: Any = None, id: Any = None, headers: Headers = ()
    ) -> Request:
        """Sends a request, over HTTP with further headers."""
        self.headers = headers
        return super().asks(method, params, on=on, id=id)

    def greets(self) -> Request:
        """Sends `initialize`."""
        return self.asks("initialize", {"protocolVersion": self.revision, "capabilities": self.able})

    def meets(self, server: Server, **rest: Any) -> None:
        """Finishes the handshake with a server, which is started for it unless it runs."""
        if self.era is Era.STATELESS:
            discovery = self.asks("server/discover")
            server.starts(**rest)
            return self.is_answered(discovery, ...)
        greeting = self.greets()
        if self.play.unexpected[0].peer is not self:
            server.starts(**rest)
        self.is_answered(greeting, ...)
        server.is_asked_to_listen()
        return self.notifies("initialized")

    def listens(self) -> Request:
        """Opens its event stream. Without a pipe, messages outside of responses come there."""
        return Request(None, "", None, self.opens(GetOpening(self.server, self.principal, self.session)))

    def resumes(self, request: Request, after: int = -1) -> Request:
        """Resumes an event stream after an event that it saw, by default the last. Returns it with its new channel."""
        last_event_id = self.seen[request.channel][after]
        opening = GetOpening(self.server, self.principal, self.session, last_event_id=last_event_id)
        resumed = replace(request, channel=self.opens(opening))
        self.seen[resumed.channel] = self.seen[request.channel][: after + 1 or None] + self.seen.get(
            resumed.channel, []
        )
        return resumed

    def is_refused(self, request: Request) -> None:
        """Expects that a stream cannot be resumed."""
        self.play.expects(self, "is answered", {"id": None, "error": Containing({"code": -32600})}, request)

    def says(self, frame: dict[str, Any], on: Any) -> ChannelId:
        message = json.dumps({"jsonrpc": "2.0"} | frame).encode()
        channel = self.pipe
        if channel is None:
            revision, mirrored = (None, ()) if self.era is Era.HANDSHAKE else (STATELESS, _mirrored(frame))
            opening = PostOpening(
                self.server,
                self.principal,
                self.session,
                revision,
                base_url=self.base_url,
                mirrored=(*mirrored, *(pair for pair in self.headers if pair[0].startswith("mcp-param-"))),
                headers=tuple(pair for pair in (*self.passed, *self.headers) if not pair[0].startswith("mcp-param-")),
                grants=self.grants,
                address=self.address,
            )
            channel = self.opens(opening, is_silent="id" not in frame or "method" not in frame)
        self.play.happens(self.play.engine.receive_message, channel, message)
        return channel

    def worded(self, params: Any) -> dict[str, Any]:
        if self.era is Era.HANDSHAKE:
            return super().worded(params)
        declared = {
            "protocolVersion": STATELESS,
            "clientCapabilities": self.able,
            "clientInfo": {"name": self.name, "version": "1"},
        }
        given = params or {}
        meta = given.get("_meta", {}) | {META + key: value for key, value in declared.items()}
        return {"params": given | {"_meta": meta}}

    def is_told(self, listen: Request, method: str, params: Any = NOTHING) -> None:
        """Expects a notification of its `subscriptions/listen`."""
        self.is_notified(method, params | {"_meta": {f"{META}subscriptionId": listen.id}}, on=listen)

    def is_granted(self, listen: Request, granted: Any) -> None:
        self.is_told(listen, "subscriptions/acknowledged", {"notifications": granted})

    def cancels(self, request: Request) -> None:
        """Cancels a request; over HTTP in the stateless era by hanging up."""
        if self.pipe is None and self.era is Era.STATELESS:
            self.hangs_up(request)
        else:
            super().cancels(request)

    def uploads(self, link: str, *names: str) -> list[str]:
        """Sends files to an upload link. Returns their handles."""
        url = urlsplit(link)
        opening = UploadOpening(url.path.rpartition("/")[2], dict(parse_qsl(url.query)), session=self.session)
        channel = self.opens(opening)
        body = {"files": [{"filename": name, "size_bytes": 5, "sha256": "ab" * 32} for name in names]}
        self.play.happens(self.play.engine.receive_message, channel, json.dumps(body).encode())
        return list(self.play.expects(self, "is answered", Containing({"count": len(names)})).what["upload_handles"])

    def hangs_up(self, on: Any = None) -> None:
        channel = self.pipe if on is None else on.channel if isinstance(on, Request) else on
        assert channel is not None
        self.play.happens(lambda _: self.play.ends(channel, Cause(End.GONE)))

    def leaves(self) -> None:
        """Ends its session: with DELETE, or by hanging up."""
        if self.pipe is not None:
            return self.hangs_up()
        self.opens(DeleteOpening(self.server, self.principal, self.session), is_silent=True)
        return None


def _mirrored(frame: dict[str, Any]) -> Any:
    return headers_for(frame["method"], json.dumps(frame["params"]).encode()) if "method" in frame else ()


class Server(Peer):
    """A server of the plan: a process, a socket or a URL.

    Attributes:
        channel: to the process or socket that was started last.
        stream: the event stream that was dialled last.
        listen: the `subscriptions/listen` that was granted last.
    """

    channel: ChannelId
    stream: ChannelId
    listen: Request

    def __init__(self, play: Dialogue, plan: ServerPlan) -> None:
        super().__init__(play, plan.id)
        self.is_url = plan.kind is Kind.HTTP
        self.era = plan.era or Era.HANDSHAKE
        self.connected: set[ChannelId] = set()

    # --- Starts and ends --------------------------------------------------------------------------------------------

    def is_started(self) -> None:
        self.play.expects(self, "is started", None)

    def connects(self, channel: ChannelId | None = None, session: str | None = None) -> None:
        """Reports that the process, or the response on a channel, is there."""
        channel = channel or self.channel
        if channel not in self.connected:
            self.connected.add(channel)
            self.play.happens(self.play.engine.receive_open, channel, Connected(session=session))

    def starts(self, **rest: Any) -> None:
        """Starts, and is greeted."""
        if not self.is_url:
            self.is_started()
            self.connects()
        self.is_greeted(**rest)

    def is_greeted(
        self,
        *,
        able: Any = NOTHING,
        session: str = "S1",
        listens: bool = False,
        greeting: Request | None = None,
        **rest: Any,
    ) -> None:
        """Finishes the handshake, or the discovery. The client's answer, if one waits for it, is still to be expected.

        Args:
            listens: it has an event stream, over HTTP.
            greeting: the `initialize` that was expected before.
            rest: other members of the result.
        """
        info = {"capabilities": able, "serverInfo": {"name": self.name, "version": "1"}, **rest}
        if self.era is Era.STATELESS:
            told = {"resultType": "complete", "supportedVersions": [STATELESS], "ttlMs": 0, "cacheScope": "private"}
            return self.answers(self.is_asked("server/discover"), told | info)
        greeting = greeting or self.is_asked("initialize")
        self.session = session
        self.answers(greeting, {"protocolVersion": HANDSHAKE} | info)
        self.is_notified("initialized")
        if self.is_url:
            self.is_listened_to()
            others, self.play.unexpected = self.play.unexpected, []
            if listens:
                self.connects(self.stream)
            else:
                self.refuses(self.stream, 405)
            self.play.unexpected = others + self.play.unexpected
        return None

    def is_listened_to(self) -> None:
        self.play.expects(self, "is listened to", None)

    def is_left(self) -> None:
        """Expects the DELETE of its session."""
        self.play.expects(self, "is left", self.session)

    def dies(self, detail: str = "exited with code 1", *, end: End = End.BROKEN) -> None:
        self.breaks_off(self.channel, Cause(end, detail))

    def breaks_off(self, on: Any, cause: Cause | None = None) -> None:
        channel = on.channel if isinstance(on, Request) else on
        self.play.happens(lambda _: self.play.ends(channel, cause or Cause(End.BROKEN, "reset")))

    def refuses(self, on: Any, status: int, body: bytes = b"") -> None:
        """Refuses a request, or the event stream, with an HTTP status."""
        self.breaks_off(on, Cause(End.REFUSED, status=status, body=body))

    # --- Speaks -----------------------------------------------------------------------------------------------------

    def shown(self, params: Any) -> Any:
        """Returns params without the members of `_meta` that each request of the stateless era has."""
        if not isinstance(params, dict) or "_meta" not in params:
            return params
        kept = {key: value for key, value in params["_meta"].items() if not key.startswith(META)}
        rest = {key: value for key, value in params.items() if key != "_meta"}
        return rest | ({"_meta": kept} if kept else {})

    def is_cancelled(self, request: Request) -> None:
        """Expects the end of a request: over HTTP in the stateless era, that of its response."""
        if self.is_url and self.era is Era.STATELESS:
            self.is_closed(request)
        else:
            super().is_cancelled(request)

    def says(self, frame: dict[str, Any], on: Any) -> ChannelId:
        channel: ChannelId = self._channel(on)
        if self.is_url:
            self.connects(channel, self.session)
        message = json.dumps({"jsonrpc": "2.0"} | frame).encode()
        self.play.happens(self.play.engine.receive_message, channel, message)
        if self.is_url and "method" not in frame and channel not in self.play.over:
            self.play.carry_out(self.play.ends(channel))
        return channel

    def _channel(self, on: Any) -> Any:
        if isinstance(on, Request):
            return on.channel
        return on or (self.stream if self.is_url else self.channel)

    def is_asked_to_listen(self) -> None:
        """Expects, and grants, the first `subscriptions/listen`, if there is one: of a server of the stateless era."""
        if self.era is Era.STATELESS and self.play.unexpected:
            self.grants(self.is_asked("subscriptions/listen"))

    def tells(self, listen: Request, method: str, params: Any = NOTHING) -> None:
        """Sends a notification of a `subscriptions/listen`."""
        self.notifies(method, params | {"_meta": {f"{META}subscriptionId": listen.id}}, on=listen)

    def grants(self, listen: Request, granted: Any = None) -> None:
        """Acknowledges a `subscriptions/listen`: all of it, or what is given."""
        self.listen = listen
        wanted = listen.params["notifications"] if granted is None else granted
        self.tells(listen, "subscriptions/acknowledged", {"notifications": wanted})
