"""All bounds of the engine and its drivers, each default with its reason."""

from __future__ import annotations

from typing import Final

import msgspec

KIB = 1024
MIB = 1024 * KIB


_NAMES_IN_TRACES: Final = {
    "cancelled_request_ttl_s": "ghost_timeout_s",
    "held_answers_max_bytes": "parks_held_max_bytes",
    "listen_pause_s": "news_pause_s",
    "notification_timeout_s": "notice_timeout_s",
    "notifications_open_high": "notices_open_high",
    "notifications_open_max": "notices_open_max",
    "notifications_waiting_max": "notices_waiting_max",
    "question_timeout_s": "ask_timeout_s",
    "questions_per_session_max": "asks_per_session_max",
    "server_era_ttl_s": "verdict_ttl_s",
    "suspended_call_logs_max": "park_logs_max",
    "suspended_call_logs_max_bytes": "park_logs_max_bytes",
    "suspended_call_tick_s": "park_tick_s",
    "suspended_call_ttl_s": "park_ttl_s",
    "suspended_calls_max": "parks_max",
    "suspended_calls_per_session_max": "parks_per_session_max",
    "tombstones_max": "tombs_max",
    "url_elicitation_wait_s": "visit_wait_s",
}
"""Fields that have another name in traces of release 0.1.0."""


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename=_NAMES_IN_TRACES):
    """The bounds of one proxy. Sizes are in bytes and times in seconds; all other fields are counts. Reaching a limit
    is an ordinary outcome with its own error."""

    # Messages
    request_size_max_bytes: int = 16 * MIB
    """Longest message from a client. SDK servers stop at 1 to 4 MiB, which users of proxies complain about."""
    reply_size_max_bytes: int = 64 * MIB
    """Longest message from a server: base64 of a 40 MB file still passes."""
    batch_max: int = 64
    """Messages in one JSON-RPC batch (2025-03-26 only)."""

    # HTTP
    head_size_max_bytes: int = 64 * KIB
    """Request line and headers together. Browsers and proxies send up to about 16 KiB."""
    headers_max: int = 256
    """Headers of one request. Each is some 200 bytes in memory, however short its line is, and the last head of a
    connection is kept. Browsers and proxies send up to about 50, and usual servers stop at 100."""
    head_timeout_s: float = 20.0
    """Time from a request's first byte to the end of its headers, so that slow senders do not hold a socket for
    longer."""
    body_timeout_s: float = 60.0
    """Silence within a request body after which its sender is given up."""
    bodies_max_bytes: int = 256 * MIB
    """Messages of clients that are arriving, on all connections together: sixteen of the largest. A further one is
    refused with 503, on a WebSocket with 1013."""
    bodies_per_owner_max_bytes: int = 128 * MIB
    """Bytes of those messages from one address: half, so that the others are served."""
    write_timeout_s: float = 60.0
    """Time after which a peer that reads nothing is disconnected."""
    idle_connection_timeout_s: float = 75.0
    """Life of a kept-alive connection without a request. Longer than the usual 60 s of load balancers in front."""
    connections_max: int = 12_288
    """Open client connections; one more is refused with 503. Each session may hold a stream, and two thousand make
    calls."""
    connections_per_address_max: int = 8_192
    """Open client connections from one address: two thirds, so that no address can take all, and one may be a reverse
    proxy."""
    keep_alive_s: float = 15.0
    """Pause after which an idle event stream gets a comment, and an idle WebSocket a ping, so that load balancers (30
    to 60 s) do not cut it."""
    pings_unanswered_max: int = 2
    """Pings in a row after which a silent WebSocket is given up. One may be lost on a network that pauses; two are half
    a minute."""
    connect_timeout_s: float = 10.0
    """TCP and TLS set-up to an upstream."""
    redirects_max: int = 5
    """Redirects of a server that one request follows. Real ones are one or two; more are a loop."""
    cookies_max: int = 32
    """Cookies kept for a session with a server. A load balancer sets one or two, a login a few."""
    cookies_max_bytes: int = 8 * KIB
    """Names and values of all cookies together: servers take heads of 8 to 16 KiB."""
    pool_idle_max: int = 32
    """Idle upstream connections kept for each origin."""
    pool_idle_timeout_s: float = 30.0
    """Shorter than servers' own keep-alive time-outs, so that a reused connection is rarely a dead one."""
    upstream_connections_max: int = 1024
    """Connections to one origin at once, without those of long-lived event streams: the share of calls."""
    upstream_streams_max: int = 10_000
    """Long-lived event streams to all HTTP servers together: one for each session. A further one waits until another
    ends, and its session goes on without the messages that its server sends outside of calls."""
    forward_reply_timeout_s: float = 3600.0
    """Time from the last byte of a forwarded request to the head of its response. As long as a call may take: a server
    that answers in JSON sends nothing before it has the answer."""
    forward_idle_timeout_s: float = 3600.0
    """Silence within a forwarded response, or on both sides of a forwarded WebSocket. Servers send comments and pings
    to keep a connection alive; one that does not is idle no longer than a call may take."""

    # Flow control
    outbox_high_bytes: int = 1 * MIB
    """Unsent bytes on a channel above which its sources are paused."""
    outbox_low_bytes: int = 256 * KIB
    """Unsent bytes below which the sources are resumed."""
    outboxes_max_bytes: int = 1024 * MIB
    """Unsent bytes on all channels together: sixteen of the largest responses. Above it, the client with the most is
    cut off: it does not read."""
    outbox_max_bytes: int = 32 * MIB
    """Unsent bytes for a server above which HTTP clients, which cannot be paused, are refused. For a client of a shared
    server, which is not paused for one of many, unsent bytes above which that client is disconnected."""
    read_size_bytes: int = 64 * KIB
    """One read from a socket or pipe."""

    # Sessions
    sessions_max: int = 10_000
    """Live downstream sessions. The official Python SDK stops at 10,000 as well."""
    sessions_per_owner_max: int = 7_500
    """Live sessions of one principal or, where clients are not authenticated, of one address, which may be a reverse
    proxy."""
    initialize_size_max_bytes: int = 256 * KIB
    """Params of `initialize`, which are kept as long as the session. Clients send a few KiB; icons may be more."""
    session_memory_max_bytes: int = 64 * MIB
    """Bytes that one session keeps of messages: its client's description of itself, the requests in flight, and the
    questions to the client. Four of the largest requests fit. The request of a POST up to 64 KiB does not count."""
    owner_memory_max_bytes: int = 512 * MIB
    """Bytes that all sessions of one principal keep or, where clients are not authenticated, those of one address."""
    memory_max_bytes: int = 1024 * MIB
    """Bytes that all sessions keep of messages."""
    session_idle_ttl_s: float = 1800.0
    """Time without a request, stream or call after which a session is ended. The official SDK's default."""
    page_session_idle_ttl_s: float = 60.0
    """Time after its last call after which a session that was begun for calls at `/mcp/<id>/tools` is ended: scripts
    make several in a row, and each session may be a process."""
    exchanges_per_session_max: int = 256
    """Requests in flight in one session."""
    questions_per_session_max: int = 256
    """Server requests that wait for one client's response."""
    question_timeout_s: float = 1800.0
    """Time that a server request waits for the client's response: people fill forms. Less than `reply_timeout_s`, so
    that the call in whose course it was sent can still be told."""
    streams_per_session_max: int = 8
    """GET streams of one session at once; one more ends the oldest, which may well be a dead one."""
    greeting_timeout_s: float = 60.0
    """Time from opening an event pipe (HTTP+SSE) to `initialize`: clients send it at once."""
    resumable_per_session_max: int = 64
    """Event streams of one session that can be resumed, ended ones included."""
    events_max: int = 256
    """Events of one stream kept in memory for a client that was cut off."""
    events_per_session_max_bytes: int = 4 * MIB
    """Events of one session kept in memory; a single larger one is kept alone."""
    events_max_bytes: int = 256 * MIB
    """Events of all sessions together kept in memory."""
    events_stored_max: int = 4096
    """Further events of one stream kept in the storage, where the configuration says so."""
    events_stored_per_session_max_bytes: int = 128 * MIB
    """Events of one session in the storage: two of the largest messages fit."""
    events_stored_max_bytes: int = 1024 * MIB
    """Events of all sessions in the storage."""
    events_saving_max: int = 4096
    """Events being written to the storage: each costs some KiB beside its message."""
    events_saving_max_bytes: int = 16 * MIB
    """Bytes of the events being written to the storage, which are still in memory; a single larger one is written
    alone."""
    stream_ttl_s: float = 300.0
    """Time for which an ended stream can still be resumed, and for which the messages of a GET stream without a
    connection are kept: clients come back within seconds, people's machines within minutes."""
    stream_commit_s: float = 5.0
    """Silence on a reply after which its client gets an event id to resume from (2025-11-25). Most calls are shorter,
    and are answered with plain JSON."""
    stream_retry_s: float = 1.0
    """Time that clients are asked to wait before they open a lost stream again."""
    held_per_session_max: int = 256
    """Messages of the server kept while the client has no stream open."""
    held_per_session_max_bytes: int = 4 * MIB
    """Bytes of those messages together; a single larger message is kept alone."""
    held_timeout_s: float = 30.0
    """Time that a server request waits for the client to open a stream."""
    subscriptions_per_session_max: int = 1024
    """Resource subscriptions remembered for replay after an upstream restart."""
    subscriptions_per_session_max_bytes: int = 256 * KIB
    """Bytes of those subscriptions: room for URIs of usual length."""

    # Clients without sessions (2026-07-28)
    collect_s: float = 0.02
    """Time for which further questions of a server are awaited after the first, to be asked together: the client counts
    the rounds, and gives up after ten."""
    suspended_call_ttl_s: float = 600.0
    """Time that a suspended call waits for its client to come back with answers. The state of the official Python SDK
    lives as long."""
    suspended_call_tick_s: float = 15.0
    """Interval of progress notifications to a server whose question is still open, if it asked for progress: servers
    wait for a minute."""
    suspended_calls_per_session_max: int = 64
    """Suspended calls of one client. Beyond it the server is told that the client cannot be asked."""
    suspended_calls_max: int = 1024
    """Suspended calls of all clients together: each is a request that a server works on."""
    suspended_call_logs_max: int = 32
    """Log messages kept for the client of one suspended call."""
    suspended_call_logs_max_bytes: int = 256 * KIB
    """Bytes of those messages together."""
    held_answers_max_bytes: int = 64 * MIB
    """Responses kept for the clients of all suspended calls together: one of the largest fits. The client of a response
    that does not fit is told that it was lost."""
    listens_per_session_max: int = 64
    """Subscriptions (`subscriptions/listen`) of one client at once. Official servers stop at 1024 for all clients."""
    listen_ack_s: float = 5.0
    """Time that a subscription waits for the server to confirm its parts; parts not confirmed by then are left out."""
    url_elicitation_wait_s: float = 10.0
    """Time that a call waits to hear that a URL elicitation is complete, once its client agreed to visit the page."""

    # Tasks
    task_ttl_s: float = 3600.0
    """Life of a task whose client names none, counted from its creation: an hour of work, or for a person to come
    back."""
    task_ttl_max_s: float = 86_400.0
    """Longest life that a client may ask for: a task begun today can be fetched tomorrow."""
    task_poll_s: float = 1.0
    """Poll interval suggested to clients, where the server suggests none."""
    task_poll_max_s: float = 30.0
    """Longest pause between two polls of a server's task while no client asks; the pauses grow from the task's own
    interval."""
    task_look_s: float = 5.0
    """Time that a client's `tasks/get` waits for the server's status; after it the last known status is returned."""
    task_grace_s: float = 0.25
    """Time that the server's first response to a call is awaited before its client is given a task: a mistake in the
    call is then a plain error."""
    task_after_s: float = 5.0
    """Duration after which a call of a client that declares tasks becomes one: most calls take less, and stay plain
    calls."""
    tasks_max: int = 10_000
    """Tasks of all clients, finished ones included: with their small results some 60 MB."""
    tasks_per_principal_max: int = 5_000
    """Tasks of one principal; all anonymous clients count as one."""
    tasks_per_session_max: int = 1_000
    """Tasks of one session."""
    task_inline_max_bytes: int = 4 * KIB
    """Largest result kept in memory; a larger one is a blob of its own in the storage."""
    task_questions_max: int = 64
    """Questions of one task that are open at once."""
    task_page_max: int = 100
    """Tasks in one page of `tasks/list`."""
    task_farewell_s: float = 2.0
    """Time for which the end of a session with a server is put off until the server has read the cancellation of its
    running tasks."""

    # Upstreams
    probe_timeout_s: float = 10.0
    """Time to answer `server/discover` for a server that may not know it. The official Python SDK waits as long."""
    probe_start_timeout_s: float = 20.0
    """Time to answer `server/discover` for a process, which has to start first: some load for ten seconds on a busy
    machine."""
    server_era_ttl_s: float = 86_400.0
    """Time after which an unsupported revision is tried again with a server: it may have been updated."""
    rounds_max: int = 32
    """Rounds of questions (`input_required`) that a server may need for one request. Clients stop at ten."""
    round_pause_s: float = 0.25
    """Pause before a request is repeated for a server whose `input_required` result asked nothing, doubled each
    time."""
    round_pause_max_s: float = 5.0
    """Longest such pause."""
    lookup_s: float = 10.0
    """Time that a call waits for its server's list of tools, or for its server to take a log level, where either must
    come first. Then it is sent without."""
    listen_pause_s: float = 0.05
    """Time for which further changes of the subscriptions are collected before the server is told."""
    schema_pages_max: int = 100
    """Pages of `tools/list` read to learn which arguments a server wants mirrored in headers."""
    tools_known_max: int = 10_000
    """Tools of a server about which something is remembered besides their list: hundreds are many."""
    audiences_max: int = 1024
    """Clients for whom that is remembered separately, since a server may show each other tools."""
    children_max: int = 512
    """Server processes at once, ending ones included. A Node or Python server takes 50 to 100 MB."""
    notifications_waiting_max: int = 256
    """Notifications of one client kept while its upstream starts."""
    notifications_waiting_max_bytes: int = 64 * KIB
    """Bytes of those notifications together. What clients send so early has some hundred bytes."""
    notifications_open_high: int = 64
    """POSTs with a notification or a response, of one session at once, above which their source is paused."""
    notifications_open_max: int = 1024
    """POSTs with a notification or a response, of one session at once, above which further ones are dropped: a peer
    with many connections cannot be paused."""
    notification_timeout_s: float = 60.0
    """Time that such a POST may take, and the DELETE that ends a session. Servers answer at once."""
    stream_farewell_s: float = 1.0
    """Time for which a server may end the GET stream of a session that we ended, so that its connection can be reused.
    Servers that do so end it before they answer the DELETE, or right after."""
    start_timeout_s: float = 60.0
    """Time from dialling an upstream to its response to `initialize`: real servers take up to 14 s, first-time npx
    more."""
    post_wait_s: float = 1.0
    """Time for which a message to an HTTP+SSE server is held back until the POST before it is answered, which keeps
    their order. Servers answer a POST at once, or not before they have answered its message; the latter must not have
    to wait for our next message."""
    listen_wait_s: float = 1.0
    """Time that first requests wait for the upstream's GET stream, so that its server requests are not lost."""
    listen_retry_s: float = 1.0
    """First pause before a lost GET stream is opened again; doubled up to `listen_retry_max_s`."""
    listen_retry_max_s: float = 30.0
    """Longest such pause: the stream is back within half a minute after the server."""
    resume_failures_max: int = 5
    """Connections in a row that fail to resume a server's reply; then the outcome of its request is unknown. With their
    pauses that is half a minute: a restart of the server, which a resumable reply may outlive."""
    polling_pause_min_s: float = 0.1
    """Shortest pause before a server's stream is opened again, whatever the server asks for."""
    polling_pause_max_s: float = 60.0
    """Longest pause before a server's stream is opened again, whatever the server asks for."""
    polling_idle_max_s: float = 5.0
    """Time from the beginning of one connection to the next, while they bring no message: doubled with each from
    `polling_pause_min_s` up to this, unless the server asks for more. A server that closes at once every time costs
    little then, and its answer is late by seconds at most."""
    reply_timeout_s: float = 3600.0
    """Silence of an upstream on a request, where progress ends the silence. Long tools are normal, eternal ones are
    not."""
    cancel_grace_s: float = 2.0
    """Time for which the upstream stream of an answered or cancelled request may stay open."""
    restart_backoff_s: float = 1.0
    """Pause after an upstream failed to start, doubled with each failure in a row up to `restart_backoff_max_s`."""
    restart_backoff_max_s: float = 30.0
    """Longest such pause: a repaired server is tried again within half a minute."""
    crash_loop_failures: int = 5
    """Processes of one server that fail in a row, over all sessions, after which it is left alone."""
    crash_loop_pause_s: float = 30.0
    """Time for which it is left alone, doubled with each further failure up to `crash_loop_pause_max_s`."""
    crash_loop_pause_max_s: float = 300.0
    """Longest such pause: a repaired server is tried again within minutes, or at once by an operator's order."""
    shared_linger_s: float = 60.0
    """Life of a shared process without sessions: clients come and go, and starting takes seconds."""
    cancelled_request_ttl_s: float = 60.0
    """Time for which a cancelled request may still be the reason of a shared server's request."""
    stop_grace_s: float = 3.0
    """Pause between closing a child's stdin and TERM, and between TERM and KILL."""
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
    """Life of a signed upload link: minutes, since the agent uses it at once."""
    upload_draft_ttl_s: float = 3600.0
    """Time that a resumable upload waits for more of it: a laptop that was closed for a meeting."""
    upload_draft_max_s: float = 86_400.0
    """Life of a resumable upload and its link: gigabytes over a slow line are done within a day."""
    upload_drafts_per_session_max: int = 16
    """Resumable uploads of one session at once. Each reserves the room of its whole file."""
    upload_drafts_max: int = 1024
    """Resumable uploads of all sessions together, including finished ones that can still be asked for: about 2 KB of
    memory each."""
    artifact_size_max_bytes: int = 1024 * MIB
    """One file taken in from a tool: screen recordings and exports fit."""
    artifact_ttl_s: float = 3600.0
    """Life of an artifact and its download link: time enough for a person to click."""
    artifacts_per_session_max: int = 1000
    """Artifacts of one session at once: a browser's session takes hundreds of screenshots."""
    files_known_max: int = 10_000
    """Files in a session's folders whose changes are noticed. A call that unpacks an archive makes thousands."""
    files_awaited_max: int = 64
    """Files of one session that were named before they were complete, and that later calls look for."""
    arguments_read_max: int = 256
    """Strings in a call's arguments that are taken for paths of output files."""
    artifacts_per_call_max: int = 64
    """Files taken in from one tool result."""
    artifact_page_max: int = 100
    """Artifacts in one page of `resources/list`."""
    inline_size_max_bytes: int = 8 * MIB
    """Largest artifact in a `resources/read` result; for a larger one the result names its download link."""
    session_storage_max_bytes: int = 1024 * MIB
    """Uploads and artifacts of one session together."""
    storage_max_bytes: int = 16 * 1024 * MIB
    """Uploads and artifacts of all sessions together."""
    stored_files_max: int = 100_000
    """Uploads and artifacts of all sessions together, ended sessions included: about 1 KB of memory each."""

    tombstones_max: int = 10_000
    """Removed files of which the reason is still known, some 500 bytes each."""
    tombstone_ttl_s: float = 86_400.0
    """Time for which the reason is known: agents resumed on the next day still name yesterday's files."""

    # The engine's own tables
    drain_s: float = 10.0
    """Time that running calls may take to finish on shutdown."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if getattr(self, name) <= 0:
                raise ValueError(f"limit {name} is {getattr(self, name)}, expected a positive number")
        if self.task_ttl_s > self.task_ttl_max_s:
            raise ValueError("limit task_ttl_s is above task_ttl_max_s, expected at most that")
        if self.outbox_low_bytes > self.outbox_high_bytes:
            raise ValueError("limit outbox_low_bytes is above outbox_high_bytes, expected at most that")
