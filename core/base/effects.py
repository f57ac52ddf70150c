"""What the engine is told and what it orders: the whole vocabulary between it and its driver.

`Opening`s and `Cause`s go in with the channel's events, `Effect`s come out, `StorageAnswer`s go in again by ticket. All
are frozen, tagged structs of plain values, so that a run is recorded and replayed as JSON Lines without further code.
"""

from __future__ import annotations

import enum

import msgspec

from .ids import ChannelId, Ticket

Headers = tuple[tuple[str, str], ...]
"""Names and values of HTTP headers that are carried from a client's request to the server's."""


Cookies = tuple[tuple[str, str], ...]
"""Names and values of the cookies that a server gets back, in Latin-1. They are credentials."""

CookieChanges = tuple[tuple[str, str | None], ...]
"""What a server has set, by name and value; None: it was removed."""


class Fact(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """Something that happened."""


# --- Openings: a channel exists now ---------------------------------------------------------------------------------


class PostOpening(Fact, frozen=True):
    """A client's POST to a server's endpoint; its body follows as one message."""

    server: str
    principal: str = ""
    session: str | None = None
    """The `Mcp-Session-Id` header."""
    revision: str | None = None
    """The `MCP-Protocol-Version` header."""
    accepts_json: bool = True
    accepts_events: bool = True
    base_url: str = ""
    """`http://host:port` as this client reached us; links handed to it start so, unless the plan names a public one."""
    headers: Headers = ()
    """What of the request's headers goes on to the server, under the names it is to have there."""
    mirrored: Headers = ()
    """The lines of `Mcp-Method`, `Mcp-Name` and `Mcp-Param-…`, in order, names in lower case (2026-07-28)."""


class GetOpening(Fact, frozen=True):
    """A client's GET for the session's own event stream."""

    server: str
    principal: str = ""
    session: str | None = None
    revision: str | None = None
    last_event_id: str | None = None
    headers: Headers = ()


class DeleteOpening(Fact, frozen=True):
    """A client ends its session."""

    server: str
    principal: str = ""
    session: str | None = None
    revision: str | None = None
    headers: Headers = ()


class PipeOpening(Fact, frozen=True):
    """A client on stdio, on a WebSocket, or on any other two-way stream of messages. The channel is the session."""

    server: str
    principal: str = ""
    base_url: str = ""
    headers: Headers = ()
    sees_hidden: bool = False
    """It is the driver's own, and is shown what the plan hides from clients."""
    is_own: bool = False
    """It is the driver's own, and is told of tasks what the server says, not what clients are offered."""


class EventPipeOpening(Fact, frozen=True):
    """A client of the HTTP+SSE transport (2024-11-05) opens its event stream, which is the session.

    It is one half of a two-way stream. The other half are POSTs (`MessageOpening`) to the address that the engine
    sends as the stream's first event, of type `endpoint`: `endpoint` with the session's token as its query.
    """

    server: str
    principal: str = ""
    base_url: str = ""
    endpoint: str = ""
    """The path of the message endpoint."""
    headers: Headers = ()


class MessageOpening(Fact, frozen=True):
    """A POST to the message endpoint of an `EventPipeOpening`'s session; its body follows as one message. It is
    answered 202; what there is to say to the message travels on the event stream."""

    server: str
    token: str
    principal: str = ""
    headers: Headers = ()


class RawFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a request says of the one file that is its whole body.

    Attributes:
        filename: not yet made safe; "" if it has none.
        mime_type: a type without parameters.
        sha256: what the file must have, in lower-case hexadecimal; "": whatever it has.
    """

    filename: str = ""
    mime_type: str | None = None
    sha256: str = ""


class UploadOpening(Fact, frozen=True):
    """A request to store files. Answered by `Receive` (go on) or a `Send` that refuses."""

    server: str
    query: dict[str, str]
    session: str | None = None
    size_bytes: int | None = None
    """The announced length of the whole body, if any."""
    principal: str = ""
    raw: RawFile | None = None
    """The body is one file and nothing else; None: it is a form."""


class Verb(enum.Enum):
    """What a request wants of an upload that goes on after a break."""

    CREATE = "create"
    APPEND = "append"
    RESUME = "resume"  # where to go on: whoever asks is about to send, so what is still being sent is given up
    LOOK = "look"  # how far it is; whatever is being sent goes on
    END = "end"


class Checksum(msgspec.Struct, frozen=True):
    """What a body must have: `algorithm` is sha1, sha256 or md5, `digest` in lower-case hexadecimal."""

    algorithm: str
    digest: str


class DraftOpening(Fact, frozen=True):
    """A request about an upload that goes on after a break. Answered by `Append` (go on) or a `Send`.

    Attributes:
        draft: which one; "" for CREATE, where the query is that of an upload link.
        size_bytes: the announced length of this body; None: it is not announced.
        offset: where the body belongs, for APPEND.
        length: of the whole file, for CREATE, as are `file`, `metadata` (as it came) and `base_url`.
        checksum: what this body must have.
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


class DownloadOpening(Fact, frozen=True):
    """A request for an artifact's bytes. Answered by `Serve` or a `Send` that refuses."""

    server: str
    sid: str
    artifact: str
    filename: str
    query: dict[str, str]
    principal: str = ""


class Connected(Fact, frozen=True):
    """A channel the engine dialled is open: the process runs, the socket is connected, the response head was a
    success."""

    session: str | None = None
    """The `Mcp-Session-Id` header of the response."""
    cookies: CookieChanges = ()
    """What the response set. They are for this upstream session and no other."""


class Primed(Fact, frozen=True):
    """The event stream on a channel the engine dialled has named an event id before any message: should it end early,
    it can be resumed (2025-11-25 basic/transports, "Sending Messages to the Server")."""


class Queued(Fact, frozen=True):
    """An event stream that the engine dialled has to wait for its turn: there are as many as may be. `Connected` or the
    end follows, however late."""


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


# --- Causes: a channel is gone --------------------------------------------------------------------------------------


class End(enum.Enum):
    """How a channel ended."""

    DONE = "done"  # as it should: response complete, stream ended by its owner, our own Close carried out
    GONE = "gone"  # the peer hung up
    REFUSED = "refused"  # an HTTP status other than success: `status`, `body`
    UNREACHABLE = "unreachable"  # never connected, or never started: nothing was sent
    BROKEN = "broken"  # reset, cut off, died, framing destroyed
    TIMED_OUT = "timed_out"  # a transport's own time limit


class Cause(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a channel ended.

    Attributes:
        detail: one line for people: an errno's text, an exit code with the last lines of stderr, a time limit.
        status: the HTTP status, for REFUSED.
        body: at most 64 KiB of the refusing response's body.
        unsent: the request provably never left this machine, or not whole, so it can be sent again.
        last_event_id: the last event id of an event stream that named one; "" if it was withdrawn.
        retry_ms: how long the stream's server wants to be left alone before it is opened again.
        challenge: the `WWW-Authenticate` header of a refusal with 401 or 403, at most 4 KiB.
        stale: the connection had carried other requests before, and ended before a byte of the response came. Servers
            close connections that were idle, so the request may well not have been looked at; that is no proof.
        cookies: what the response set, unless `Connected` has told of it.
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


# --- Effects: orders, to be carried out in the order given ---------------------------------------------------------


class Effect(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """An order to the driver."""


class Send(Effect, frozen=True):
    """Write one message to a channel.

    On an HTTP reply, `is_last` ends it: a single last message travels as `application/json` (or as one event when the
    client accepts only those), everything else as `text/event-stream`. `status`, `session` and `challenge` (the value
    of `WWW-Authenticate`) matter only when nothing was written to the reply before. `event`, `event_id` and `retry_ms`
    are fields of the event it travels in, if it does; with an `event_id`, `message` may be empty: that primes the
    client to resume.
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
    """Further ones of the reply's head, where nothing was written to it before."""


class SendEvents(Effect, frozen=True):
    """Write several messages to an HTTP reply that is an event stream or becomes one, none of them the last: the same
    as a `Send` for each. Only `Engine.receive_messages` orders it."""

    channel: ChannelId
    messages: tuple[bytes, ...]
    event_ids: tuple[str, ...] = ()
    """As many as there are messages; or none, where events have no ids."""


class Pass(Effect, frozen=True):
    """Write a part of a message to an HTTP reply that holds nothing else: it ends with the message.

    The first part says how large the whole message is, and others follow until that is reached. It travels as a `Send`
    with `is_last` would: as `application/json` under that length, or as one event where the reply is a stream already.
    A `Close` before all of it was passed cuts the reply off, so that its client can tell.
    """

    channel: ChannelId
    pieces: tuple[bytes, ...]
    size_bytes: int = 0
    """Of the whole message; 0: this is not its first part."""


class Close(Effect, frozen=True):
    """End a channel. On an HTTP reply with nothing written: `status` without a body; an event stream ends; a pipe is
    closed, a WebSocket with `code` (RFC 6455, 7.4.1); a child process is stopped; a request in progress to an upstream
    is abandoned. What was sent before is still delivered on downstream channels. The driver tells no more of this
    channel except `receive_close`."""

    channel: ChannelId
    status: int = 202
    reason: str = ""
    code: int = 1000


class Spawn(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """Start the server's process; the channel is its stdin and stdout."""

    server: str
    workspace: str


class Join(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """Connect to the server's two-way stream of messages: a WebSocket, a Unix socket, or, at an http URL, an event
    stream with its message endpoint (HTTP+SSE, 2024-11-05)."""

    server: str
    headers: Headers = ()


class Post(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """POST one message to the server's URL; the channel carries the response's messages."""

    server: str
    message: bytes
    session: str | None = None
    revision: str | None = None
    headers: Headers = ()
    cookies: Cookies = ()
    mirrored: Headers = ()
    """What of the message is said again in headers, under their names there (2026-07-28)."""
    is_lasting: bool = False
    """It is a subscription, whose reply goes on until somebody ends it."""


class Listen(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """GET the server's URL as an event stream; with `last_event_id`, the one that named it, from there on."""

    server: str
    session: str | None = None
    revision: str | None = None
    headers: Headers = ()
    last_event_id: str | None = None
    cookies: Cookies = ()
    is_of_call: bool = False
    """What it has is the rest of one reply, which has an end."""


class Delete(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """DELETE the upstream session."""

    server: str
    session: str
    revision: str | None = None
    headers: Headers = ()
    cookies: Cookies = ()


Target = Spawn | Join | Post | Listen | Delete


class Dial(Effect, frozen=True):
    """Open a channel to an upstream. Answered by `receive_open(channel, Connected(…))`, or by `receive_close`."""

    channel: ChannelId
    target: Target


class Pause(Effect, frozen=True):
    """Stop reading from a channel until `Resume`."""

    channel: ChannelId


class Resume(Effect, frozen=True):
    channel: ChannelId


class Note(Effect, frozen=True):
    """Something worth a log line. `level` is one of debug, info, warning, error. Never holds secrets or payloads."""

    level: str
    text: str
    server: str = ""


# --- Storage orders: answered by `receive_answer(ticket, answer)` ----------------------------------------------------


class Load(Effect, frozen=True):
    """Read the record `key`. Answer: `Loaded`."""

    ticket: Ticket
    key: str


class Save(Effect, frozen=True):
    """Write the record `key` for good, expiring at `expires_at_unix`. Answer: `Saved`."""

    ticket: Ticket
    key: str
    value: bytes
    expires_at_unix: float | None = None


class Forget(Effect, frozen=True):
    """Remove a record. No answer."""

    key: str


class ForgetAll(Effect, frozen=True):
    """Remove all records whose keys start with `prefix`. No answer."""

    prefix: str


class Allocate(Effect, frozen=True):
    """Make the folder in which an upstream may write output `artifact`. Answer: `Allocated`."""

    ticket: Ticket
    workspace: str
    artifact: str
    filename: str


class FileSource(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """A file an upstream says it wrote: `candidates` are spellings of one path, the first that exists is meant.

    Relative candidates are resolved against the server's working directory. With a `stamp` (see `SeenFile`) the file
    must still be as it was seen, before and after it is copied; one that is not has the problem "unfinished".
    """

    candidates: tuple[str, ...]
    stamp: str = ""


class InlineSource(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """Content that was embedded in a message."""

    data: bytes
    filename: str
    mime_type: str | None = None


Source = FileSource | InlineSource


class Survey(Effect, frozen=True):
    """Look, and touch nothing: what is at each of the paths `named` (spellings each, as in `FileSource`), and which
    files there are in the workspace's folders `areas` ("ws", "in", "out"), at most `entries_max` in all. A folder that
    is named stands for the files below it, at most `folder_max`. What may not be taken in is not told of. Answer:
    `Surveyed`, with one `Sighting` for each of `named`."""

    ticket: Ticket
    server: str
    workspace: str
    named: tuple[tuple[str, ...], ...] = ()
    areas: tuple[str, ...] = ()
    entries_max: int = 10_000
    folder_max: int = 64


class Collect(Effect, frozen=True):
    """Take files in: for each source that is an existing file under the workspace or the server's `artifact_roots`
    (symlinks resolved), copy it into blob `blobs[i]`, as long as no file has more than `size_max_bytes` and all of them
    no more than `total_size_max_bytes`. What came in messages alone needs no workspace: "" then. Answer: `Collected`,
    one entry a source."""

    ticket: Ticket
    server: str
    workspace: str
    sources: tuple[Source, ...]
    blobs: tuple[str, ...]
    size_max_bytes: int
    total_size_max_bytes: int


class Materialize(Effect, frozen=True):
    """Make a stored blob visible to an upstream as a file named `filename` in a folder of its own, named after the
    upload or artifact, below the workspace's `folder` ("in", "out" or "ws"). Answer: `Materialized`."""

    ticket: Ticket
    workspace: str
    blob: str
    upload: str
    filename: str
    folder: str = "in"


class Fetch(Effect, frozen=True):
    """Read a whole blob into memory, at most `size_max_bytes`. Answer: `Fetched`."""

    ticket: Ticket
    blob: str
    size_max_bytes: int


class Discard(Effect, frozen=True):
    """Remove a blob. No answer."""

    blob: str


class Remove(Effect, frozen=True):
    """Remove the file at the real path `path`, which was taken in and whose record is saved, if it is still as it was
    seen then, and may be taken in at all. No answer."""

    server: str
    workspace: str
    path: str
    stamp: str


class Sweep(Effect, frozen=True):
    """Remove a workspace with all its folders. No answer."""

    workspace: str


class Receive(Effect, frozen=True):
    """Take in the body of an upload: store its files as blobs named `blobs[0]`, `blobs[1]`, … in order, all or none.
    With `raw` the body is the file `blobs[0]`.

    When they are stored, `receive_message(channel, manifest)` with the JSON of an `UploadManifest`; when that fails,
    the driver answers the client itself with the `UploadRefusal`'s status and calls `receive_close`.
    """

    channel: ChannelId
    blobs: tuple[str, ...]
    file_size_max_bytes: int
    total_size_max_bytes: int
    require_sha256: bool = False
    raw: RawFile | None = None


class Append(Effect, frozen=True):
    """Take in the body of a request as the next bytes of the draft `blob`, from `offset` on. At 0 it has to be made if
    it is not there.

    What arrives is kept, also when the rest does not, unless there is a `checksum`: then all of the body is kept, or
    none. When the draft has `size_bytes` it becomes the blob; it is discarded instead if it has not that `sha256`.

    When this is over, `receive_message(channel, report)` with the JSON of an `Appended`; others may come before it and
    tell how far it is. Where the client broke off, the driver answers it as far as it can, after the report. A channel
    that is closed without one says that nothing was begun.
    """

    channel: ChannelId
    blob: str
    offset: int
    size_bytes: int
    checksum: Checksum | None = None
    sha256: str = ""


class Cease(Effect, frozen=True):
    """Take in no more of the body that an `Append` is for. It is over then; its channel is still to be answered."""

    channel: ChannelId


class Serve(Effect, frozen=True):
    """Answer a download with a blob. `stored_at_unix` is 0 where that is not known."""

    channel: ChannelId
    blob: str
    filename: str
    mime_type: str
    size_bytes: int
    sha256: str
    stored_at_unix: float = 0.0


StorageOrder = (
    Load | Save | Forget | ForgetAll | Allocate | Survey | Collect | Materialize | Fetch | Discard | Remove | Sweep
)
"""For storage alone; `Receive`, `Append` and `Serve` are for a channel, and have a part in storage."""


class StoredFile(msgspec.Struct, frozen=True):
    """One file of an upload, as stored."""

    filename: str
    """As the client named it; not yet made safe."""
    size_bytes: int
    sha256: str
    mime_type: str | None = None
    head: bytes = b""
    """Its first 512 bytes, to tell the type by."""


class UploadManifest(msgspec.Struct, frozen=True):
    """The files of one upload request, in order; the i-th lies in blob `Receive.blobs[i]`."""

    files: tuple[StoredFile, ...]


class Halt(enum.Enum):
    """Why an `Append` brought less than its whole body."""

    NONE = ""
    CEASED = "ceased"  # on our own order
    BROKEN = "broken"  # the client hung up, was silent for too long, or sent no HTTP
    CHECKSUM = "checksum"  # the body has another one: nothing of it is kept
    TOO_LARGE = "too_large"  # there is more of it than the file was to have: nothing of it is kept
    MISMATCH = "mismatch"  # the whole file has another SHA-256: nothing is left
    FULL = "full"  # there is no room for more; what came before is kept
    FAILED = "failed"  # the storage failed, and what it has is not known


class Appended(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far a draft is.

    Attributes:
        size_bytes: what it has.
        is_over: nothing more of this body follows.
        sha256: of the whole: it is there, and is a blob now.
        head: what this body brought of its first 512 bytes.
    """

    size_bytes: int
    is_over: bool = True
    sha256: str = ""
    halt: Halt = Halt.NONE
    head: bytes = b""


# --- Storage answers ------------------------------------------------------------------------------------------------


class Answer(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """What became of a storage order."""


class Loaded(Answer, frozen=True):
    value: bytes | None = None


class Saved(Answer, frozen=True):
    pass


class Allocated(Answer, frozen=True):
    path: str


class SeenFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """A regular file that may be taken in.

    Attributes:
        path: absolute, all links resolved.
        stamp: of its content: another one means that it was written since, or is another file.
        changed_at_unix: when it was written or renamed last, on the wall clock.
        is_busy: somebody has it open for writing, as far as can be told.
    """

    path: str
    size_bytes: int
    stamp: str
    changed_at_unix: float = 0.0
    is_busy: bool = False


class Sighting(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is at a named path.

    Attributes:
        problem: why there is nothing to take, for people, if there is not: "missing", "not permitted", "an empty
            folder".
        files: the file, or those of the folder, in order of their paths.
        is_folder: it is one.
        is_cut: the folder has more files than are told of.
    """

    problem: str = ""
    files: tuple[SeenFile, ...] = ()
    is_folder: bool = False
    is_cut: bool = False


class Surveyed(Answer, frozen=True):
    """`listed` are the files of the areas, ordered by their paths; `is_cut` if there are more."""

    named: tuple[Sighting, ...] = ()
    listed: tuple[SeenFile, ...] = ()
    is_cut: bool = False


class CollectedFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """One source: taken in when `problem` is empty. `path` is the real path it came from ("" for inline content)."""

    problem: str = ""
    path: str = ""
    filename: str = ""
    size_bytes: int = 0
    sha256: str = ""
    head: bytes = b""
    """The first 512 bytes, to tell the type by."""


class Collected(Answer, frozen=True):
    files: tuple[CollectedFile, ...]


class Materialized(Answer, frozen=True):
    """`stamp` is the file's, as in `SeenFile`."""

    path: str
    stamp: str = ""


class Fetched(Answer, frozen=True):
    data: bytes


class StorageFailed(Answer, frozen=True):
    """The order could not be carried out: `reason` for people. `is_full` when space or a quota was the reason, and
    `is_missing` when what was asked for does not exist."""

    reason: str
    is_full: bool = False
    is_missing: bool = False


StorageAnswer = Loaded | Saved | Allocated | Surveyed | Collected | Materialized | Fetched | StorageFailed
