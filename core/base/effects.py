"""The effects that the engine orders: messages to send, channels to open, pause, resume and close, and log notes.

Each engine input returns a list of effects. The driver carries them out in that order. Orders for storage are in
`storage`.
"""

from __future__ import annotations

import msgspec

from .errors import LocalProtocolError
from .events import Cookies, Headers
from .ids import ChannelId
from .telemetry import AnyEvent

# --- Effects: orders, to be carried out in the order given ---------------------------------------------------------


class Effect(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """An order to the driver."""


def check_channel(order: Effect, channel: ChannelId) -> None:
    """Checks that an order was given to the object of its channel.

    Raises:
        LocalProtocolError: it is for another channel, or for none.
    """
    if (seen := getattr(order, "channel", None)) != channel:
        which = "no channel" if seen is None else f"channel {seen}"
        raise LocalProtocolError(
            f"got an order ({type(order).__name__}) for {which}, expected one for channel {channel}"
        )


class Send(Effect, frozen=True):
    """Writes one message to a channel.

    `message` is JSON text. On an HTTP reply, `is_last` ends the reply: a single last message travels as
    `application/json` (or as one event when the client accepts only those), everything else as `text/event-stream`.
    `status`, `session` (the `Mcp-Session-Id` header), `challenge` (the `WWW-Authenticate` header) and `headers` matter
    only when nothing was written to the reply before. `event` (the event type), `event_id` and `retry_ms`
    (milliseconds) are fields of the event that carries the message, if one does. With an `event_id`, `message` may be
    empty: such an event primes the client to resume.
    """

    channel: ChannelId
    message: bytes
    is_last: bool = False
    status: int = 200
    session: str | None = None
    event: str = "message"
    event_id: str | None = None
    retry_ms: int | None = None
    challenge: str = ""
    headers: Headers = ()
    """Further headers of the reply's head, as (name, value) pairs."""


class SendEvents(Effect, frozen=True):
    """Writes several messages, none of them the last, to an HTTP reply that is an event stream or becomes one. Equal to
    one `Send` for each. Only `Engine.receive_messages` orders it."""

    channel: ChannelId
    messages: tuple[bytes, ...]
    event_ids: tuple[str, ...] = ()
    """One id for each message; empty where events have no ids."""


class Pass(Effect, frozen=True):
    """Writes a part of a message to an HTTP reply that holds nothing else and ends with the message.

    The first part gives the size of the whole message; others follow until that is reached. The message travels as a
    `Send` with `is_last` would: as `application/json` under that length, or as one event where the reply is an event
    stream already. A `Close` before all parts were passed cuts the reply off, so that its client can tell.
    """

    channel: ChannelId
    pieces: tuple[bytes, ...]
    size_bytes: int = 0
    """Size of the whole message, in its first part; 0 in the parts that follow."""


class Close(Effect, frozen=True):
    """Ends a channel.

    An HTTP reply to which nothing was written is answered with `status` and no body; with 200, as an event stream
    without events if its client accepts one. An event stream ends. A pipe is
    closed, a WebSocket with `code` (RFC 6455, 7.4.1). A child process is stopped. A request in progress to an upstream
    is abandoned. On downstream channels, everything sent before is still delivered, unless it `drops` what is unsent:
    then the connection is cut, even in the middle of the last message. The driver reports `receive_close` once it has
    ended the channel. `reason` is one line for people.
    """

    channel: ChannelId
    status: int = 202
    reason: str = ""
    code: int = 1000
    drops: bool = False


class Spawn(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """A dial target that starts the process of `server`, with the folders of `workspace`. The channel is the process's
    stdin and stdout."""

    server: str
    workspace: str


class Join(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """A dial target that connects to the server's two-way stream of messages. The stream is a WebSocket, a Unix socket,
    or, at an http URL, an event stream with its message endpoint (HTTP+SSE, 2024-11-05)."""

    server: str
    headers: Headers = ()
    principal: str = ""
    """The principal whose login the request is sent with; "": the proxy's own, or none."""
    address: int = 0
    """The place of the address in `ServerPlan.addresses`; 0 where a server has one."""


class Post(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """A dial target that POSTs `message` to the server's URL. The channel carries the messages of the HTTP response.

    `session` becomes the `Mcp-Session-Id` header and `revision` the `MCP-Protocol-Version` header; None leaves the
    header out.
    """

    server: str
    message: bytes
    session: str | None = None
    revision: str | None = None
    headers: Headers = ()
    cookies: Cookies = ()
    mirrored: Headers = ()
    """Headers that repeat parts of the message, under their header names: `Mcp-Method`, `Mcp-Name`, `Mcp-Param-…`
    (2026-07-28)."""
    is_lasting: bool = False
    """True for a subscription, whose event stream stays open until one side ends it."""
    principal: str = ""
    """The principal whose login the request is sent with; "": the proxy's own, or none."""
    address: int = 0
    """The place of the address in `ServerPlan.addresses`; 0 where a server has one."""


class Listen(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """A dial target that opens the server's URL with GET as an event stream.

    With `last_event_id` (the `Last-Event-ID` header), the server is asked to resume the stream that named this id.
    """

    server: str
    session: str | None = None
    revision: str | None = None
    headers: Headers = ()
    last_event_id: str | None = None
    cookies: Cookies = ()
    is_of_call: bool = False
    """True if the stream carries the rest of one request's reply, which has an end."""
    principal: str = ""
    """The principal whose login the request is sent with; "": the proxy's own, or none."""
    address: int = 0
    """The place of the address in `ServerPlan.addresses`; 0 where a server has one."""


class Delete(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """A dial target that ends the upstream session `session` with DELETE."""

    server: str
    session: str
    revision: str | None = None
    headers: Headers = ()
    cookies: Cookies = ()
    principal: str = ""
    """The principal whose login the request is sent with; "": the proxy's own, or none."""
    address: int = 0
    """The place of the address in `ServerPlan.addresses`; 0 where a server has one."""


Target = Spawn | Join | Post | Listen | Delete


class Dial(Effect, frozen=True):
    """Opens a channel to an upstream. Answered by `receive_open(channel, Connected(…))`, or by `receive_close`."""

    channel: ChannelId
    target: Target


class Forward(Effect, frozen=True):
    """Has the request of a channel answered by the replica whose tag is `replica`. Nothing was sent on the channel.

    The driver passes the request on with its whole body, of which it may have reported all as a message, and brings
    the response to the client. Then it reports `receive_close`. If the replica is gone or refuses connections, it
    reports `receive_close` at once, and the same request again on a new channel, with `is_returned` in its opening.
    """

    channel: ChannelId
    replica: str


class Pause(Effect, frozen=True):
    """Stops reading from a channel until `Resume`."""

    channel: ChannelId


class Resume(Effect, frozen=True):
    """Reads again from a channel that a `Pause` stopped."""

    channel: ChannelId


class Emit(Effect, frozen=True):
    """Emits a telemetry event. Ordered only if `Plan.telemetry` asks for it; a driver may ignore it."""

    event: AnyEvent


class Note(Effect, frozen=True):
    """A line for the log. `level` is one of debug, info, warning, error. `text` never holds secrets or payloads.
    `server` is the id of the server the note is about; "" if there is none. `is_audit` is True for a line about what a
    caller was refused, which belongs into the audit log."""

    level: str
    text: str
    server: str = ""
    is_audit: bool = False
