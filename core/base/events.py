"""The events that a driver reports to the engine: channels that open (`Opening`) and channels that end (`Cause`)."""

from __future__ import annotations

import enum
from typing import Final

import msgspec

from .budget import owner_of
from .grants import NO_GRANTS, Grants

Headers = tuple[tuple[str, str], ...]
"""HTTP headers as (name, value) pairs, carried from a client's request to the server's."""


Cookies = tuple[tuple[str, str], ...]
"""(name, value) pairs of the cookies that a server gets back, in Latin-1. They are credentials."""

CookieChanges = tuple[tuple[str, str | None], ...]
"""(name, value) pairs of the cookies that a server has set; the value is None for a cookie it removed."""


class Fact(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """Base class of events: something that happened."""


# --- Openings: a channel exists now ---------------------------------------------------------------------------------


class PostOpening(Fact, frozen=True):
    """A client's POST to a server's endpoint arrived; its body follows as one message.

    `server` is the id of the server and `principal` the authenticated client; "" is anonymous. `accepts_json` and
    `accepts_events` say whether the `Accept` header allows `application/json` and `text/event-stream`.
    """

    server: str
    principal: str = ""
    session: str | None = None
    """The `Mcp-Session-Id` header."""
    revision: str | None = None
    """The `MCP-Protocol-Version` header."""
    accepts_json: bool = True
    accepts_events: bool = True
    base_url: str = ""
    """`http://host:port` under which this client reached us. Links handed to the client start with it, unless the plan
    names a public URL."""
    headers: Headers = ()
    """The request's headers that go on to the server, under the names they have there."""
    mirrored: Headers = ()
    """The lines of `Mcp-Method`, `Mcp-Name` and `Mcp-Param-…`, in order, names in lower case (2026-07-28)."""
    address: str = ""
    """The address that the request came from, as `budget.address_owner` gives it."""
    grants: Grants = NO_GRANTS
    """The client's scopes and groups, where the plan has access rules."""
    is_returned: bool = False
    """Another replica was to answer the request (`Forward`) and is gone or refuses connections. It is answered here."""
    trace_context: Headers = ()
    """The lines of `traceparent`, `tracestate` and `baggage`, names in lower case, where the plan traces."""

    @property
    def owner(self) -> str:
        """The owner of what the client uses, see `budget.owner_of`."""
        return owner_of(self.principal, self.address)


class GetOpening(Fact, frozen=True):
    """A client's GET arrived: it opens the session's event stream, or, with `last_event_id` (the `Last-Event-ID`
    header), resumes one. The other fields are those of `PostOpening`."""

    server: str
    principal: str = ""
    session: str | None = None
    revision: str | None = None
    last_event_id: str | None = None
    headers: Headers = ()
    is_returned: bool = False


class DeleteOpening(Fact, frozen=True):
    """A client's DELETE arrived: it ends the session. The fields are those of `PostOpening`."""

    server: str
    principal: str = ""
    session: str | None = None
    revision: str | None = None
    headers: Headers = ()
    is_returned: bool = False


class PipeOpening(Fact, frozen=True):
    """A client connected on stdio, on a WebSocket, or on any other two-way stream of messages. The channel is the
    session. `server`, `principal`, `base_url`, `headers`, `address` and `grants` are as in `PostOpening`."""

    server: str
    principal: str = ""
    base_url: str = ""
    headers: Headers = ()
    address: str = ""
    sees_hidden: bool = False
    """True for a session of the driver's own that sees the names that the plan hides from clients."""
    is_own: bool = False
    """True for a session of the driver's own that sees the task abilities the server declared, not those that clients
    are offered."""
    is_brief: bool = False
    """True for a session of the driver's own that only learns who the server is. Over HTTP `server/discover` is tried
    before `initialize`, and no event stream and no subscription is opened for it."""
    grants: Grants = NO_GRANTS

    @property
    def owner(self) -> str:
        return owner_of(self.principal, self.address)


class EventPipeOpening(Fact, frozen=True):
    """A client of the HTTP+SSE transport (2024-11-05) opened its event stream, which is the session.

    An event pipe is one half of a two-way stream. The other half are POSTs (`MessageOpening`) to the address that the
    engine sends as the stream's first event, of type `endpoint`: the path `endpoint` with the session's token as its
    query.
    """

    server: str
    principal: str = ""
    base_url: str = ""
    endpoint: str = ""
    """The path of the message endpoint."""
    headers: Headers = ()
    address: str = ""
    grants: Grants = NO_GRANTS
    """The client's scopes and groups, until a POST of its session has others."""

    @property
    def owner(self) -> str:
        return owner_of(self.principal, self.address)


class MessageOpening(Fact, frozen=True):
    """A POST to the message endpoint of an `EventPipeOpening`'s session arrived; its body follows as one message. The
    POST is answered with 202; responses to the message travel on the event stream. `token` is the one that the
    endpoint's address named."""

    server: str
    token: str
    principal: str = ""
    headers: Headers = ()
    grants: Grants = NO_GRANTS
    is_returned: bool = False
    trace_context: Headers = ()


class RawFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """The description of a file that is the whole body of a request.

    Attributes:
        filename: not yet made safe; "" if it has none.
        mime_type: a type without parameters.
        sha256: the digest that the file must have, in lower-case hexadecimal; "" accepts any.
    """

    filename: str = ""
    mime_type: str | None = None
    sha256: str = ""


class UploadOpening(Fact, frozen=True):
    """A request to store files arrived. Answered by `Receive` (go on) or a `Send` that refuses. `query` holds the
    parameters of the upload link."""

    server: str
    query: dict[str, str]
    session: str | None = None
    size_bytes: int | None = None
    """The announced length of the whole body; None if it is not announced."""
    principal: str | None = None
    """The caller; None: the link is its only credential."""
    raw: RawFile | None = None
    """The file, if the body is one file and nothing else; None if the body is a form."""


class Verb(enum.Enum):
    """The operation of a request about a resumable upload."""

    CREATE = "create"
    APPEND = "append"
    RESUME = "resume"  # ask for the offset in order to send on from it: a body still being received is given up
    LOOK = "look"  # ask for the offset; a body still being received goes on
    END = "end"


class Checksum(msgspec.Struct, frozen=True):
    """The digest that a body must have: `algorithm` is sha1, sha256 or md5, `digest` is in lower-case hexadecimal."""

    algorithm: str
    digest: str


class DraftOpening(Fact, frozen=True):
    """A request about a resumable upload arrived. Answered by `Append` (go on) or a `Send`.

    Attributes:
        draft: the id of the upload; "" for CREATE, where `query` holds the parameters of the upload link.
        size_bytes: the announced length of this body; None: it is not announced.
        offset: the position in the file where the body belongs, for APPEND.
        length: of the whole file, for CREATE, as are `file`, `metadata` (as received) and `base_url`.
        checksum: the digest that this body must have.
    """

    server: str
    verb: Verb
    query: dict[str, str]
    draft: str = ""
    session: str | None = None
    size_bytes: int | None = 0
    offset: int = 0
    length: int = 0
    file: RawFile = RawFile()
    metadata: str = ""
    checksum: Checksum | None = None
    base_url: str = ""
    principal: str | None = None
    """The caller; None: the link is its only credential."""
    is_returned: bool = False


class DownloadOpening(Fact, frozen=True):
    """A request for an artifact's bytes arrived. Answered by `Serve` or a `Send` that refuses. `sid` is the public name
    of the session, `query` the parameters of the download link."""

    server: str
    sid: str
    artifact: str
    filename: str
    query: dict[str, str]
    principal: str | None = None
    """The caller; None: the link is its only credential."""


class Connected(Fact, frozen=True):
    """A channel the engine dialled is open: the process runs, the socket is connected, or the HTTP response had a
    success status."""

    session: str | None = None
    """The `Mcp-Session-Id` header of the response."""
    cookies: CookieChanges = ()
    """The cookies that the response set. They are for this upstream session and no other."""
    status: int | None = None
    """The HTTP status of the response; None: not known, or the channel is a two-way stream. Only the oracle reads
    it."""


class Primed(Fact, frozen=True):
    """The event stream on a channel the engine dialled has sent an event id before any message. If the stream ends
    early, it can be resumed (2025-11-25 basic/transports, "Sending Messages to the Server")."""


class Queued(Fact, frozen=True):
    """An event stream that the engine dialled waits, because the allowed number is open
    (`Limits.upstream_streams_max`). `Connected` or the end follows, however late."""


Opening = (
    PostOpening
    | GetOpening
    | DeleteOpening
    | PipeOpening
    | EventPipeOpening
    | MessageOpening
    | UploadOpening
    | DraftOpening
    | DownloadOpening
    | Connected
    | Primed
    | Queued
)


# --- Causes: a channel has ended ------------------------------------------------------------------------------------


class End(enum.Enum):
    """The way in which a channel ended."""

    DONE = "done"  # as it should: response complete, stream ended by its owner, our own Close carried out
    GONE = "gone"  # the peer hung up
    REFUSED = "refused"  # an HTTP status other than success: `status`, `body`
    UNREACHABLE = "unreachable"  # never connected, or never started: nothing was sent
    BROKEN = "broken"  # reset, cut off, died, framing destroyed
    TIMED_OUT = "timed_out"  # a transport's own time limit


HINT: Final = "; hint: "
"""The start of advice at the end of `Cause.detail`."""


class Cause(msgspec.Struct, frozen=True, omit_defaults=True):
    """The reason why a channel ended.

    Attributes:
        detail: one line for people: an errno's text, an exit code with the last lines of stderr, a time limit.
        status: the HTTP status, for REFUSED.
        body: at most 64 KiB of the refusing response's body.
        unsent: the request provably never left this machine, or not whole, so it can be sent again.
        last_event_id: the last event id of an event stream that named one; "" if it was withdrawn.
        retry_ms: milliseconds that the server asks to wait before the stream is opened again.
        challenge: the `WWW-Authenticate` header of a refusal with 401 or 403, at most 4 KiB.
        stale: the connection had carried other requests before, and ended before a byte of the response came. Servers
            close idle connections, so the server may well not have read the request; that is no proof.
        cookies: the cookies that the response set, unless `Connected` reported them.
        is_ours: this machine had no descriptor or no memory for it, so it says nothing about the peer.
        login: a JSON object, for a refusal with 401 or 403 that a login of ours would end: how to log in. `detail` says
            the same for people.
    """

    end: End
    detail: str = ""
    status: int = 0
    body: bytes = b""
    unsent: bool = False
    last_event_id: str | None = None
    retry_ms: int | None = None
    challenge: str = ""
    stale: bool = False
    cookies: CookieChanges = ()
    is_ours: bool = False
    login: bytes = b""
