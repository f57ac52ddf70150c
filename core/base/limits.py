"""Every bound of the engine and its drivers, in one place, each default with its reason."""

from __future__ import annotations

import msgspec

KIB = 1024
MIB = 1024 * KIB


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Sizes in bytes, times in seconds, the rest are counts. Reaching one is an ordinary outcome with its own error."""

    # Messages
    request_size_max_bytes: int = 16 * MIB
    """One message from a client. SDK servers stop at 1 to 4 MiB, which users of proxies complain about."""
    reply_size_max_bytes: int = 64 * MIB
    """One message from a server: base64 of a 40 MB file still passes."""
    batch_max: int = 64
    """Messages in one JSON-RPC batch (2025-03-26 only)."""

    # HTTP
    head_size_max_bytes: int = 64 * KIB
    """Request line and headers together. Browsers and proxies send up to about 16 KiB."""
    head_timeout_s: float = 20.0
    """From a connection's first byte of a request to the end of its headers: slow senders hold a socket no longer."""
    body_timeout_s: float = 60.0
    """Silence within a request body after which its sender is given up."""
    write_timeout_s: float = 60.0
    """A reader that takes nothing for this long is disconnected."""
    idle_connection_timeout_s: float = 75.0
    """A kept-alive connection without a request. Longer than the usual 60 s of load balancers in front."""
    connections_max: int = 12_288
    """Open client connections; one more is told 503. Each session may hold a stream, and two thousand make calls."""
    keep_alive_s: float = 15.0
    """A comment on an idle event stream, a ping on an idle WebSocket, so that load balancers (30 to 60 s) do not cut
    it."""
    pings_unanswered_max: int = 2
    """Pings in a row after which a WebSocket without any sign of life is given up. One may be lost on a network that
    pauses; two are half a minute."""
    connect_timeout_s: float = 10.0
    """TCP and TLS set-up to an upstream."""
    redirects_max: int = 5
    """Redirects of a server that one request follows. Real ones are one or two; more are a circle."""
    cookies_max: int = 32
    """Cookies kept for a session with a server. A load balancer sets one or two, a login a few."""
    cookies_max_bytes: int = 8 * KIB
    """Their names and values together: servers take heads of 8 to 16 KiB."""
    pool_idle_max: int = 32
    """Idle upstream connections kept for each origin."""
    pool_idle_timeout_s: float = 30.0
    """Shorter than servers' own keep-alive time-outs, so that a reused connection is rarely a dead one."""
    upstream_connections_max: int = 1024
    """Connections to one origin at once, but for those of lasting streams: the share of calls."""
    upstream_streams_max: int = 10_000
    """Streams of HTTP servers that last as a session does, to all servers together: one for each session. A further one
    waits until another ends, and its session goes on without what its server says unasked."""
    forward_reply_timeout_s: float = 3600.0
    """From the last byte of a request passed on to the head of its response. As long as a call may take: a server that
    answers in JSON says nothing before it has the answer."""
    forward_idle_timeout_s: float = 3600.0
    """Silence within a response passed on, or of both sides of a WebSocket. Servers keep what is alive so with comments
    and pings; one that does not is idle no longer than a call may take."""

    # Flow control
    outbox_high_bytes: int = 1 * MIB
    """Unsent bytes on a channel above which its sources are paused."""
    outbox_low_bytes: int = 256 * KIB
    """Unsent bytes below which they are resumed."""
    outbox_max_bytes: int = 32 * MIB
    """Unsent bytes for a server above which HTTP clients, which cannot be paused, are refused; and for a client of a
    shared server, which is not paused for one of many, above which that client is let go."""
    read_size_bytes: int = 64 * KIB
    """One read from a socket or pipe."""

    # Sessions
    sessions_max: int = 10_000
    """Live downstream sessions. The official Python SDK stops at 10,000 as well."""
    session_idle_ttl_s: float = 1800.0
    """A session with no request, stream or call for this long is ended. The official SDK's default."""
    page_session_idle_ttl_s: float = 60.0
    """A session that was begun for calls at `/mcp/<id>/tools` is ended so long after the last of them: scripts make
    several in a row, and each session may be a process."""
    exchanges_per_session_max: int = 256
    """Requests in flight in one session."""
    asks_per_session_max: int = 256
    """Requests of the server that wait for this client's answer."""
    ask_timeout_s: float = 1800.0
    """How long a request of the server waits for the client's answer: people fill forms. Less than `reply_timeout_s`,
    so that the call that asked hears of it."""
    streams_per_session_max: int = 8
    """GET streams of one session at once; one more ends the oldest, which may well be a dead one."""
    greeting_timeout_s: float = 60.0
    """From opening an event pipe (HTTP+SSE) to `initialize`: clients send it at once."""
    resumable_per_session_max: int = 64
    """Event streams of one session that can be resumed, those that are over included."""
    events_max: int = 256
    """Events kept in memory of one stream for a client that was cut off."""
    events_per_session_max_bytes: int = 4 * MIB
    """Events kept in memory of one session; a single larger one is kept alone."""
    events_max_bytes: int = 256 * MIB
    """Events kept in memory of all sessions together."""
    events_stored_max: int = 4096
    """Events of one stream kept in the storage beside those, where the configuration says so."""
    events_stored_per_session_max_bytes: int = 128 * MIB
    """Events of one session in the storage: two of the largest messages fit."""
    events_stored_max_bytes: int = 1024 * MIB
    """Events of all sessions in the storage."""
    events_saving_max: int = 4096
    """Events on their way into the storage: each costs some KiB beside its message."""
    events_saving_max_bytes: int = 16 * MIB
    """They together, which are in memory still; a single larger one goes alone."""
    stream_ttl_s: float = 300.0
    """How long a stream that is over can still be resumed, and what a GET stream without a connection has said: clients
    come back within seconds, people's machines within minutes."""
    stream_commit_s: float = 5.0
    """Silence on a reply after which its client is told where to resume it (2025-11-25). Most calls are shorter, and
    are answered with plain JSON."""
    stream_retry_s: float = 1.0
    """How long clients are asked to wait before they open a lost stream again."""
    held_per_session_max: int = 256
    """Messages of the server kept while the client has no stream open."""
    held_per_session_max_bytes: int = 4 * MIB
    """Their bytes together; a single larger message is kept alone."""
    held_timeout_s: float = 30.0
    """How long a server's request waits for the client to open a stream."""
    subscriptions_per_session_max: int = 1024
    """Resource subscriptions remembered for replay after an upstream restart."""

    # Clients without sessions (2026-07-28)
    collect_s: float = 0.02
    """How long more questions of a server are waited for after the first, to be asked together: its client counts the
    rounds, and gives up after ten."""
    park_ttl_s: float = 600.0
    """How long a call waits for its client to come back with answers: as the official Python SDK's state does."""
    park_tick_s: float = 15.0
    """How often a server that asked hears that it is still being answered, if it wants to: they wait for a minute."""
    parks_per_session_max: int = 64
    """Calls of one client that wait so. Beyond it the server is told that the client cannot be asked."""
    parks_max: int = 1024
    """Those of all clients together: each is a request that a server works on."""
    park_logs_max: int = 32
    """Log messages kept for a client that is away for answers."""
    park_logs_max_bytes: int = 256 * KIB
    """Those messages together."""
    parks_held_max_bytes: int = 64 * MIB
    """Answers kept for clients that are away, all together: one of the largest fits. Of what does not, its client hears
    that it was lost."""
    listens_per_session_max: int = 64
    """Subscriptions (`subscriptions/listen`) of one client at once. Official servers stop at 1024 for all."""
    listen_ack_s: float = 5.0
    """How long a subscription waits for the server to confirm its parts; what is not confirmed by then is left out."""
    visit_wait_s: float = 10.0
    """How long a call that needs a visit to a page waits, once its client agreed, to hear that the visit is over."""

    # Tasks
    task_ttl_s: float = 3600.0
    """How long a task whose client does not say is kept, counted from its beginning: an hour of work, or for a person
    to come back."""
    task_ttl_max_s: float = 86_400.0
    """The longest that a client may ask for: what was begun today can be fetched tomorrow."""
    task_poll_s: float = 1.0
    """How often clients are asked to look, where the server does not say."""
    task_poll_max_s: float = 30.0
    """How rarely a task of the server's is looked at while no client asks; between, the pauses grow from its own."""
    task_look_s: float = 5.0
    """How long a client that asks how its task fares waits for the server to say; then it is told what is known."""
    task_grace_s: float = 0.25
    """How long the server's first word on a call is waited for before its client is told of a task: a mistake in the
    call is then a plain error."""
    task_after_s: float = 5.0
    """A call of a client that knows tasks becomes one when it takes longer: most take less, and are plain calls."""
    tasks_max: int = 10_000
    """Tasks of all clients, finished ones included: with their small results some 60 MB."""
    tasks_per_principal_max: int = 5_000
    """Of one principal; of all that are anonymous, together."""
    tasks_per_session_max: int = 1_000
    """Of one session."""
    task_inline_max_bytes: int = 4 * KIB
    """A larger result is a blob of its own in the storage, and not in memory."""
    task_questions_max: int = 64
    """Questions of one task that are open at once."""
    task_page_max: int = 100
    """Tasks in one page of `tasks/list`."""
    task_farewell_s: float = 2.0
    """How long the end of a session with a server is put off until that has taken the cancellation of what ran
    there."""

    # Upstreams
    probe_timeout_s: float = 10.0
    """How long a server that may know no `server/discover` is given to answer it. The official Python SDK waits so."""
    probe_start_timeout_s: float = 20.0
    """The same for a process, which has to start first: some load for ten seconds on a busy machine."""
    verdict_ttl_s: float = 86_400.0
    """After a day it is tried again whether a server speaks a revision that it did not: it may have been updated."""
    rounds_max: int = 32
    """How often a server may ask more before it answers one request. Clients of it stop at ten."""
    round_pause_s: float = 0.25
    """Pause before a request is repeated for a server that wanted nothing but that, doubled each time."""
    round_pause_max_s: float = 5.0
    """Longest such pause."""
    lookup_s: float = 10.0
    """How long a call waits for its server's list of tools, or for it to have taken a log level, where either must come
    first; then it goes up as it can."""
    news_pause_s: float = 0.05
    """How long further changes of what is subscribed are waited for before the server is told."""
    schema_pages_max: int = 100
    """Pages of `tools/list` read to learn which arguments a server wants in headers too."""
    tools_known_max: int = 10_000
    """Tools of a server of which something is remembered beside their list: hundreds are many."""
    audiences_max: int = 1024
    """Clients for whom that is kept apart, since a server may look different to each."""
    children_max: int = 512
    """Server processes at once, those that are ending included. A Node or Python server takes 50 to 100 MB."""
    notices_waiting_max: int = 256
    """Notifications of one client kept while its upstream starts."""
    notices_open_high: int = 64
    """POSTs with a notification or an answer, of one session at once, above which their source is paused."""
    notices_open_max: int = 1024
    """The same, above which further ones are dropped: a peer with many connections cannot be paused."""
    notice_timeout_s: float = 60.0
    """How long such a POST may take, and the DELETE that ends a session. Servers answer at once."""
    stream_farewell_s: float = 1.0
    """How long the GET stream of a session that we ended is left for the server to end, so that its connection can be
    used again. Those that do it do it before they answer the DELETE, or right after."""
    start_timeout_s: float = 60.0
    """From dialling an upstream to its answer to `initialize`: real servers take up to 14 s, first-time npx more."""
    post_wait_s: float = 1.0
    """How long a message to an HTTP+SSE server is held back until the one before it is taken, which keeps their order.
    Servers say so at once, or not before they have answered it; those must not have to wait for our next message."""
    listen_wait_s: float = 1.0
    """How long first requests wait for the upstream's GET stream, so that its questions are not lost."""
    listen_retry_s: float = 1.0
    """First pause before a lost GET stream is opened again; doubled up to `listen_retry_max_s`."""
    listen_retry_max_s: float = 30.0
    """Longest pause: a server that comes back is heard again within half a minute."""
    resume_failures_max: int = 5
    """Connections in a row that fail to resume a server's reply; then the fate of its request is unknown. With their
    pauses that is half a minute: a restart of the server, which a resumable reply may outlive."""
    polling_pause_min_s: float = 0.1
    """Shortest pause before a server's stream is opened again, whatever the server asks for."""
    polling_pause_max_s: float = 60.0
    """Longest pause, likewise."""
    polling_idle_max_s: float = 5.0
    """From the beginning of one connection to the next, while they bring no message: doubled with each from
    `polling_pause_min_s` up to this, unless the server asks for more. One that closes at once every time costs little
    then, and its answer is late by seconds at most."""
    reply_timeout_s: float = 3600.0
    """An upstream's silence on a request, progress counted as speech. Long tools are normal, eternal ones are not."""
    cancel_grace_s: float = 2.0
    """How long the upstream stream of a request that was answered or cancelled may still stay open."""
    restart_backoff_s: float = 1.0
    """Pause after an upstream failed to start, doubled with each failure in a row up to `restart_backoff_max_s`."""
    restart_backoff_max_s: float = 30.0
    """Longest pause: a server that was mended is tried again within half a minute."""
    crash_loop_failures: int = 5
    """Processes of one server that fail in a row, over all sessions, after which it is left alone."""
    crash_loop_pause_s: float = 30.0
    """For how long, doubled with each further failure up to `crash_loop_pause_max_s`."""
    crash_loop_pause_max_s: float = 300.0
    """Longest pause: a server that was mended is tried again within minutes, or at once by an operator's order."""
    shared_linger_s: float = 60.0
    """How long a shared process without sessions is kept: clients come and go, and starting takes seconds."""
    ghost_timeout_s: float = 60.0
    """How long a cancelled request may still be what makes a shared server ask something."""
    stop_grace_s: float = 3.0
    """Between closing a child's stdin, TERM and KILL, each."""
    stderr_ring_lines: int = 200
    """Last lines of a child's stderr kept for error messages."""

    # Files
    storage_timeout_s: float = 120.0
    """A storage order unanswered for this long counts as failed."""
    upload_size_max_bytes: int = 50 * MIB
    """One uploaded file: documents and images fit, disk images do not come by accident."""
    upload_files_max: int = 32
    """Files in one upload request."""
    uploads_per_session_max: int = 1000
    """Uploads of one session at once, however small."""
    upload_ttl_s: float = 3600.0
    """Unused uploads are removed after this; each use starts it anew."""
    upload_link_ttl_s: float = 120.0
    """How long a signed upload link may be used: minutes, since the agent uses it at once."""
    upload_draft_ttl_s: float = 3600.0
    """How long an upload that can go on after a break waits for more of it: a laptop that was closed for a meeting."""
    upload_draft_max_s: float = 86_400.0
    """How long such an upload may take in all, and its link works: gigabytes over a slow line are done within a day."""
    upload_drafts_per_session_max: int = 16
    """Such uploads of one session at once. Each holds the room of its whole file."""
    upload_drafts_max: int = 1024
    """Those of all sessions together, finished ones that can still be asked for included: about 2 KB of memory each."""
    artifact_size_max_bytes: int = 1024 * MIB
    """One file taken in from a tool: screen recordings and exports fit."""
    artifact_ttl_s: float = 3600.0
    """How long an artifact and its download link live: time enough for a person to click."""
    artifacts_per_session_max: int = 1000
    """Artifacts of one session at once: a browser's session takes hundreds of screenshots."""
    files_known_max: int = 10_000
    """Files in a session's folders whose changes are noticed. A call that unpacks an archive makes thousands."""
    files_awaited_max: int = 64
    """Files of one session that were named before they were complete, and are looked for at later calls."""
    arguments_read_max: int = 256
    """Texts in a call's arguments that are taken for paths of what it writes."""
    artifacts_per_call_max: int = 64
    """Files taken in from one tool result."""
    artifact_page_max: int = 100
    """Artifacts in one page of `resources/list`."""
    inline_size_max_bytes: int = 8 * MIB
    """A larger artifact is not put into a `resources/read` result; its download link is named instead."""
    session_storage_max_bytes: int = 1024 * MIB
    """Uploads and artifacts of one session together."""
    storage_max_bytes: int = 16 * 1024 * MIB
    """Uploads and artifacts of all sessions together."""
    stored_files_max: int = 100_000
    """Their number, those of ended sessions included: about 1 KB of memory each."""

    tombs_max: int = 10_000
    """Files that are gone of which it is still known why, some 500 bytes each."""
    tombstone_ttl_s: float = 86_400.0
    """For how long: agents that are taken up again next day still name yesterday's files."""

    # The engine's own tables
    drain_s: float = 10.0
    """On shutdown, how long running calls may finish."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if getattr(self, name) <= 0:
                raise ValueError(f"limit {name} is {getattr(self, name)}, expected a positive number")
        if self.task_ttl_s > self.task_ttl_max_s:
            raise ValueError("limit task_ttl_s is above task_ttl_max_s, expected at most that")
        if self.outbox_low_bytes > self.outbox_high_bytes:
            raise ValueError("limit outbox_low_bytes is above outbox_high_bytes, expected at most that")
