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


class Limits(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    repr_omit_defaults=True,  # help() shows the signatures of those that take them
    rename=_NAMES_IN_TRACES,
):
    """The bounds of one proxy. Sizes are in bytes and times in seconds; all other fields are counts. Reaching a limit
    is an ordinary outcome with its own error.

    After a field stand its reason and, from `At it:` on, what happens when the limit is reached. The page of the limits
    is made of that.
    """

    # Messages
    request_size_max_bytes: int = 16 * MIB
    """Longest message from a client. SDK servers stop at 1 to 4 MiB, which users of proxies complain about. At it: 413
    on HTTP; on a pipe and a WebSocket error -31007, and the WebSocket is closed with 1009."""
    reply_size_max_bytes: int = 64 * MIB
    """Longest message from a server: base64 of a 40 MB file still passes. At it: error -31007 for the request that it
    answers; the rest of the message is dropped."""
    batch_max: int = 64
    """Messages in one JSON-RPC batch (2025-03-26 only). At it: 400 with error -32600 for the whole batch."""

    # HTTP
    head_size_max_bytes: int = 64 * KIB
    """Request line and headers together. Browsers and proxies send up to about 16 KiB. At it: 431, or 414 if the
    request line alone is too long."""
    headers_max: int = 256
    """Headers of one request. Each is some 200 bytes in memory, however short its line is, and the last head of a
    connection is kept. Browsers and proxies send up to about 50, and usual servers stop at 100. At it: 431."""
    head_timeout_s: float = 20.0
    """Time from a request's first byte to the end of its headers, so that slow senders do not hold a socket for longer.
    A TLS handshake may take as long. At it: 408, and the connection is closed; a handshake is broken off."""
    body_timeout_s: float = 60.0
    """Silence within a request body after which its sender is given up. At it: 408, and the connection is closed; an
    upload leaves nothing."""
    refused_body_max_bytes: int = 256 * MIB
    """Bytes of a refused request that are read after the refusal: many clients send all before they read, and would
    see a broken connection in place of 413. At it: the connection is closed."""
    refused_body_timeout_s: float = 60.0
    """Time for which they are read, from the first of them. At it: the connection is closed."""
    bodies_max_bytes: int = 256 * MIB
    """Messages of clients that are arriving, on all connections together: sixteen of the largest. At it: 503 with
    `Retry-After: 1`; a WebSocket is closed with 1013."""
    bodies_per_owner_max_bytes: int = 128 * MIB
    """Bytes of those messages from one address: half, so that the others are served. At it: 503 with `Retry-After: 1`;
    a WebSocket is closed with 1013."""
    replies_max_bytes: int = 512 * MIB
    """Messages of servers that are arriving, from all servers together: eight of the largest. At it: the message that
    finds no room is dropped like one that is too long, and its request gets error -31007."""
    replies_per_server_max_bytes: int = 256 * MIB
    """Bytes of those messages from one server: half, so that the others are served. At it: the message is dropped, and
    its request gets error -31007."""
    reply_ratio_max: int = 200
    """Bytes that one byte of a compressed response may stand for, once more than 16 MiB of it are decompressed. JSON
    shrinks to a fifth or a twentieth; Apache's mod_deflate stops at 200 as well. At it: the response is broken off, and
    its request gets an error that names the coding."""
    write_timeout_s: float = 60.0
    """Time after which a peer that reads nothing is disconnected. At it: the connection is cut."""
    idle_connection_timeout_s: float = 75.0
    """Life of a kept-alive connection without a request. Longer than the usual 60 s of load balancers in front. At it:
    the connection is closed without a response."""
    connections_max: int = 12_288
    """Open client connections. Each session may hold a stream, and two thousand make calls. At it: 503 and a closed
    connection; on a Unix socket, a closed connection."""
    connections_per_address_max: int = 8_192
    """Open client connections from one address: two thirds, so that no address can take all, and one may be a reverse
    proxy. At it: 503 and a closed connection."""
    keep_alive_s: float = 15.0
    """Pause after which an idle event stream gets a comment, and an idle WebSocket a ping, so that load balancers (30
    to 60 s) do not cut it. At it: a comment or a ping is sent."""
    pings_unanswered_max: int = 2
    """Pings in a row after which a silent WebSocket is given up. One may be lost on a network that pauses; two are half
    a minute. At it: the WebSocket is closed with 1011."""
    connect_timeout_s: float = 10.0
    """TCP and TLS set-up to an upstream. At it: error -31004; from a transparent server, 504."""
    redirects_max: int = 5
    """Redirects of a server that one request follows. Real ones are one or two; more are a loop. At it: error -31004:
    the last redirect is not followed."""
    cookies_max: int = 32
    """Cookies kept for a session with a server. A load balancer sets one or two, a login a few. At it: the cookie set
    longest ago is dropped."""
    cookies_max_bytes: int = 8 * KIB
    """Names and values of all cookies together: servers take heads of 8 to 16 KiB. At it: the cookies set longest ago
    are dropped."""
    pool_idle_max: int = 32
    """Idle upstream connections kept for each origin. At it: the connection is closed after its response."""
    pool_idle_timeout_s: float = 30.0
    """Shorter than servers' own keep-alive time-outs, so that a reused connection is rarely a dead one. At it: the
    connection is closed."""
    upstream_connections_max: int = 1024
    """Connections to one origin at once, without those of long-lived event streams: the share of calls. At it: as many
    requests wait in turn, a further one gets error -31004; for a transparent server, 503 at once."""
    upstream_streams_max: int = 10_000
    """Long-lived event streams to all HTTP servers together: one for each session. At it: a GET stream waits until
    another ends, and its session goes on without what its server sends outside of calls. A subscription gets error
    -31004; a stream of a transparent server 503."""
    forward_reply_timeout_s: float = 3600.0
    """Time from the last byte of a forwarded request to the head of its response. As long as a call may take: a server
    that answers in JSON sends nothing before it has the answer. At it: 504."""
    forward_idle_timeout_s: float = 3600.0
    """Silence within a forwarded response, or on both sides of a forwarded WebSocket. Servers send comments and pings
    to keep a connection alive; one that does not is idle no longer than a call may take. At it: the response is cut, or
    the WebSocket closed."""

    # Flow control
    outbox_high_bytes: int = 1 * MIB
    """Unsent bytes on a channel above which its sources are paused. At it: reading from the sources pauses."""
    outbox_low_bytes: int = 256 * KIB
    """Unsent bytes below which the sources are resumed. At it: reading from the sources goes on."""
    outboxes_max_bytes: int = 1024 * MIB
    """Unsent bytes on all channels together: sixteen of the largest responses. At it: the client with the most, which
    does not read, is cut off, within a message if need be."""
    outbox_max_bytes: int = 32 * MIB
    """Unsent bytes for a server above which HTTP clients, which cannot be paused, are refused. For a client of a shared
    server, which is not paused for one of many, unsent bytes above which that client is disconnected. At it: 503 with
    error -31007, or the end of that client's connection."""
    read_size_bytes: int = 64 * KIB
    """One read from a socket or pipe. At it: the rest is read next."""

    # Sessions
    sessions_max: int = 10_000
    """Live downstream sessions. The official Python SDK stops at 10,000 as well. At it: 503 with error -31007 for
    `initialize`."""
    sessions_per_owner_max: int = 7_500
    """Live sessions of one principal or, where clients are not authenticated, of one address, which may be a reverse
    proxy. At it: 503 with error -31007 for `initialize`."""
    calls_per_owner_max: int = 8_192
    """Requests in flight in all sessions of one principal or, where clients are not authenticated, of one address: two
    thirds of the connections, so that nobody takes them all. At it: error -31007; without a session, 503."""
    streams_per_owner_max: int = 8_192
    """GET streams and subscriptions of all sessions of one principal or, where clients are not authenticated, of one
    address, likewise. At it: 503 with error -31007 for a GET; error -31007 for a subscription."""
    initialize_size_max_bytes: int = 256 * KIB
    """Params of `initialize`, which are kept as long as the session. Clients send a few KiB; icons may be more. At it:
    error -32602."""
    session_memory_max_bytes: int = 64 * MIB
    """Bytes that one session keeps of messages: its client's description of itself, the requests in flight, and the
    questions to the client. Four of the largest requests fit. The request of a POST up to 64 KiB does not count. At it:
    error -31007 for the request; for a question of a server, -32603."""
    owner_memory_max_bytes: int = 512 * MIB
    """Bytes that all sessions of one principal keep or, where clients are not authenticated, those of one address. At
    it: error -31007 for the request; for a question of a server, -32603."""
    memory_max_bytes: int = 1024 * MIB
    """Bytes that all sessions keep of messages. At it: error -31007 for the request; for a question of a server,
    -32603."""
    session_idle_ttl_s: float = 1800.0
    """Time without a request, stream or call after which a session is ended. The official SDK's default. At it: the
    session ends, and later requests in it get 404."""
    page_session_idle_ttl_s: float = 60.0
    """Time after its last call after which a session that was begun for calls at `/mcp/<id>/tools` is ended: scripts
    make several in a row, and each session may be a process. At it: the session ends, and the next call begins
    another."""
    unclaimed_session_ttl_s: float = 60.0
    """Time after its call for which a session waits for an anonymous client without sessions, over HTTP, that has not
    shown that it knows handles. Each may be a process, and an owner has one at a server. At it: the session ends, and
    its handle is refused."""
    exchanges_per_session_max: int = 256
    """Requests in flight in one session. At it: error -31007; without a session, 503."""
    questions_per_session_max: int = 256
    """Server requests that wait for one client's response. At it: the server gets error -32603; a round of a server
    without sessions ends its call with it."""
    decision_timeout_s: float = 60.0
    """Time that a request waits for the decision of the driver (`ServerPlan.decides`): SDK clients wait as long for a
    response. At it: error -31009, and the request has not run."""
    question_timeout_s: float = 1800.0
    """Time that a server request waits for the client's response: people fill forms. Less than `reply_timeout_s`, so
    that the call in whose course it was sent can still be told. At it: the server gets error -31008, and the client a
    cancellation."""
    streams_per_session_max: int = 8
    """GET streams of one session at once. The oldest may well be a dead one. At it: the oldest stream is closed."""
    greeting_timeout_s: float = 60.0
    """Time from opening an event pipe (HTTP+SSE) to `initialize`: clients send it at once. At it: the stream is
    closed."""
    resumable_per_session_max: int = 64
    """Event streams of one session that can be resumed, ended ones included. At it: one that has ended, or else lost
    its connection, is forgotten: 400 for its `Last-Event-ID`."""
    events_max: int = 256
    """Events of one stream kept in memory for a client that was cut off. At it: the oldest progress and log messages
    are dropped, before any other event; with a storage, events are moved there first."""
    events_per_session_max_bytes: int = 4 * MIB
    """Events of one session kept in memory; a single larger one is kept alone. At it: ended streams are forgotten, then
    events of others are dropped, or moved to the storage."""
    events_max_bytes: int = 256 * MIB
    """Events of all sessions together kept in memory. At it: ended streams are forgotten, then events of the session
    that was sent nothing for longest are dropped."""
    events_stored_max: int = 4096
    """Further events of one stream kept in the storage, where the configuration says so. At it: events are dropped as
    without a storage."""
    events_stored_per_session_max_bytes: int = 128 * MIB
    """Events of one session in the storage: two of the largest messages fit. At it: ended streams are forgotten, then
    events of open ones are dropped."""
    events_stored_max_bytes: int = 1024 * MIB
    """Events of all sessions in the storage. At it: the oldest ended stream of any session is forgotten."""
    events_saving_max: int = 4096
    """Events being written to the storage: each costs some KiB beside its message. At it: events are dropped as without
    a storage."""
    events_saving_max_bytes: int = 16 * MIB
    """Bytes of the events being written to the storage, which are still in memory; a single larger one is written
    alone. At it: events are dropped as without a storage."""
    stream_ttl_s: float = 300.0
    """Time for which an ended stream can still be resumed, and for which the messages of a GET stream without a
    connection are kept: clients come back within seconds, people's machines within minutes. At it: the stream is
    forgotten: 400 for its `Last-Event-ID`."""
    stream_commit_s: float = 5.0
    """Silence on a reply after which its client gets an event id to resume from (2025-11-25). Most calls are shorter,
    and are answered with plain JSON. At it: the response becomes an event stream."""
    stream_retry_s: float = 1.0
    """Time that clients are asked to wait before they open a lost stream again. At it: the client reconnects."""
    held_per_session_max: int = 256
    """Messages of the server kept while the client has no stream open. At it: the oldest message that is no change
    notification is dropped; the server of a question gets error -32603."""
    held_per_session_max_bytes: int = 4 * MIB
    """Bytes of those messages together; a single larger message is kept alone. At it: as at `held_per_session_max`."""
    held_timeout_s: float = 30.0
    """Time that a server request waits for the client to open a stream. At it: the server gets error -32603."""
    subscriptions_per_session_max: int = 1024
    """Resource subscriptions remembered for replay after an upstream restart. At it: the request goes on and a note
    says that it is not remembered; for an artifact error -31007, with a server without sessions -32602."""
    subscriptions_per_session_max_bytes: int = 256 * KIB
    """Bytes of those subscriptions: room for URIs of usual length. At it: as at `subscriptions_per_session_max`; a
    `subscriptions/listen` gets error -31007."""

    # Clients without sessions (2026-07-28)
    collect_s: float = 0.02
    """Time for which further questions of a server are awaited after the first, to be asked together: the client counts
    the rounds, and gives up after ten. At it: the client is asked all of them."""
    suspended_call_ttl_s: float = 600.0
    """Time that a suspended call waits for its client to come back with answers. The state of the official Python SDK
    lives as long. At it: the call is cancelled at the server, or the response that was kept is dropped."""
    suspended_call_tick_s: float = 15.0
    """Interval of progress notifications to a server whose question is still open, if it asked for progress: servers
    wait for a minute. At it: progress is sent."""
    suspended_calls_per_session_max: int = 64
    """Suspended calls of one client. At it: the server's question gets error -32603, and the call goes on."""
    suspended_calls_max: int = 1024
    """Suspended calls of all clients together: each is a request that a server works on. At it: the server's question
    gets error -32603, and the call goes on."""
    suspended_call_logs_max: int = 32
    """Log messages kept for the client of one suspended call. At it: further ones are dropped."""
    suspended_call_logs_max_bytes: int = 256 * KIB
    """Bytes of those messages together. At it: further ones are dropped."""
    held_answers_max_bytes: int = 64 * MIB
    """Responses kept for the clients of all suspended calls together: one of the largest fits. At it: error -31007,
    with `data.outcome` executed."""
    listens_per_session_max: int = 64
    """Subscriptions (`subscriptions/listen`) of one client at once. Official servers stop at 1024 for all clients. At
    it: error -31007."""
    listen_ack_s: float = 5.0
    """Time that a subscription waits for the server to confirm its parts. At it: the subscription is acknowledged
    without them."""
    url_elicitation_wait_s: float = 10.0
    """Time that a call waits to hear that a URL elicitation is complete, once its client agreed to visit the page. At
    it: the call is sent to the server again."""

    # Tasks
    task_ttl_s: float = 3600.0
    """Life of a task whose client names none, counted from its creation: an hour of work, or for a person to come back.
    At it: the task is removed, and its id is unknown: error -32602."""
    task_ttl_max_s: float = 86_400.0
    """Longest life that a client may ask for: a task begun today can be fetched tomorrow. At it: the task gets this
    life."""
    task_poll_s: float = 1.0
    """Poll interval suggested to clients, where the server suggests none. At it: the client polls."""
    task_poll_max_s: float = 30.0
    """Longest pause between two polls of a server's task while no client asks; the pauses grow from the task's own
    interval. At it: the server is polled."""
    task_look_s: float = 5.0
    """Time that a client's `tasks/get` waits for the server's status. At it: the last known status is returned."""
    task_grace_s: float = 0.25
    """Time that the server's first response to a call is awaited before its client is given a task: a mistake in the
    call is then a plain error. At it: the client gets its task."""
    task_after_s: float = 5.0
    """Duration after which a call of a client that declares tasks becomes one: most calls take less, and stay plain
    calls. At it: the call becomes a task."""
    tasks_max: int = 10_000
    """Tasks of all clients, finished ones included: with their small results some 60 MB. At it: a call for a task gets
    error -31007; one that need not be a task stays a call."""
    tasks_per_principal_max: int = 5_000
    """Tasks of one principal; all anonymous clients count as one. At it: as at `tasks_max`."""
    tasks_per_session_max: int = 1_000
    """Tasks of one session. At it: as at `tasks_max`."""
    task_inline_max_bytes: int = 4 * KIB
    """Largest result kept in memory. At it: a larger one is a blob of its own in the storage."""
    task_questions_max: int = 64
    """Questions of one task that are open at once. At it: the server gets error -32603; questions of a server's own
    task stay unanswered."""
    task_page_max: int = 100
    """Tasks in one page of `tasks/list`. At it: the result has a `nextCursor`."""
    task_farewell_s: float = 2.0
    """Time for which the end of a session with a server is put off until the server has read the cancellation of its
    running tasks. At it: the connection is closed."""

    # Upstreams
    probe_timeout_s: float = 10.0
    """Time to answer `server/discover` for a server that may not know it. The official Python SDK waits as long. At it:
    the handshake of the other era is tried, or requests get error -31004."""
    probe_start_timeout_s: float = 20.0
    """Time to answer `server/discover` for a process, which has to start first: some load for ten seconds on a busy
    machine. At it: as at `probe_timeout_s`."""
    session_check_timeout_s: float = 10.0
    """Time to answer the `ping` that asks whether the server still knows a session, after a refusal that could mean it
    does not. At it: the refusal is passed on to the client."""
    server_era_ttl_s: float = 86_400.0
    """Time after which an unsupported revision is tried again with a server: it may have been updated. At it: the next
    connection tries it."""
    rounds_max: int = 32
    """Rounds of questions (`input_required`) that a server may need for one request. Clients stop at ten. At it: error
    -31006; a tool call gets a result with `isError`."""
    round_pause_s: float = 0.25
    """Pause before a request is repeated for a server whose `input_required` result asked nothing, doubled each time.
    At it: the request is sent again."""
    round_pause_max_s: float = 5.0
    """Longest such pause. At it: the pause stays as long."""
    lookup_s: float = 10.0
    """Time that a call waits for its server's list of tools, or for its server to take a log level, where either must
    come first. At it: the call is sent."""
    listen_pause_s: float = 0.05
    """Time for which further changes of the subscriptions are collected before the server is told. At it: the server is
    sent one subscription for all."""
    schema_pages_max: int = 100
    """Pages of `tools/list` read to learn which arguments a server wants mirrored in headers. At it: the pages after it
    are not read."""
    definitions_ttl_s: float = 300.0
    """Time for which the definitions of a server without sessions are known once they were listed: it need not say that
    they have changed. At it: its lists are read again before the next use of one."""
    tools_known_max: int = 10_000
    """Tools of a server about which something is remembered besides their list: hundreds are many. At it: the page that
    goes beyond is not remembered."""
    rate_buckets_max: int = 100_000
    """Callers whose latest calls still count, each as often as rate limits cover them: about 600 bytes each. At it: a
    call of a further caller is refused until one of them has made no calls for long enough."""
    audiences_max: int = 1024
    """Clients for whom that is remembered separately, since a server may show each other tools. At it: the one whose
    list was shown longest ago is forgotten."""
    cached_results_max: int = 4096
    """Results of lists and reads that are kept, of all servers: a server has some five lists and tens of resources, and
    the official SDK's client keeps 1024 for itself. At it: the one that was used least lately is dropped."""
    cached_results_max_bytes: int = 64 * MIB
    """Memory of all of them together, as much as one response may have. At it: as at `cached_results_max`."""
    cached_result_max_bytes: int = 1 * MIB
    """Memory of one of them: the list of four hundred tools has one MB, and a larger one would drive many others out.
    At it: the result is not kept."""
    cache_ttl_max_s: float = 86_400.0
    """Longest time for which a result is kept, whatever its server says, as in the official SDK's client. At it: the
    server is asked again."""
    children_max: int = 512
    """Server processes at once, ending ones included. A Node or Python server takes 50 to 100 MB. At it: error -31004;
    spare processes are not started."""
    notifications_waiting_max: int = 256
    """Notifications of one client kept while its upstream starts. At it: the notification is dropped, and a warning
    noted."""
    notifications_waiting_max_bytes: int = 64 * KIB
    """Bytes of those notifications together. What clients send so early has some hundred bytes. At it: as at
    `notifications_waiting_max`."""
    notifications_open_high: int = 64
    """POSTs with a notification or a response, of one session at once, above which their source is paused. At it:
    reading from the source pauses until one of them ends."""
    notifications_open_max: int = 1024
    """POSTs with a notification or a response, of one session at once, above which further ones are dropped: a peer
    with many connections cannot be paused. At it: the message is dropped, and a warning noted."""
    notification_timeout_s: float = 60.0
    """Time that such a POST may take, and the DELETE that ends a session. Servers answer at once. At it: the POST is
    closed."""
    stream_farewell_s: float = 1.0
    """Time for which a server may end the GET stream of a session that we ended, so that its connection can be reused.
    Servers that do so end it before they answer the DELETE, or right after. At it: the stream is closed."""
    start_timeout_s: float = 60.0
    """Time from dialling an upstream to its response to `initialize`: real servers take up to 14 s, first-time npx
    more. At it: error -31004, and the process is stopped."""
    post_wait_s: float = 1.0
    """Time for which a message to an HTTP+SSE server is held back until the POST before it is answered, which keeps
    their order. Servers answer a POST at once, or not before they have answered its message; the latter must not have
    to wait for our next message. At it: the next message is sent."""
    listen_wait_s: float = 1.0
    """Time that first requests wait for the upstream's GET stream, so that its server requests are not lost. At it: the
    requests are sent."""
    listen_retry_s: float = 1.0
    """First pause before a lost GET stream is opened again; doubled up to `listen_retry_max_s`. At it: the stream is
    opened again."""
    listen_retry_max_s: float = 30.0
    """Longest such pause: the stream is back within half a minute after the server. At it: the pause stays as long."""
    resume_failures_max: int = 5
    """Connections in a row that fail to resume a server's reply; then the outcome of its request is unknown. With their
    pauses that is half a minute: a restart of the server, which a resumable reply may outlive. At it: error -31001."""
    polling_pause_min_s: float = 0.1
    """Shortest pause before a server's stream is opened again, whatever the server asks for. At it: the pause is this
    long."""
    polling_pause_max_s: float = 60.0
    """Longest pause before a server's stream is opened again, whatever the server asks for. At it: the pause is this
    long."""
    polling_idle_max_s: float = 5.0
    """Time from the beginning of one connection to the next, while they bring no message: doubled with each from
    `polling_pause_min_s` up to this, unless the server asks for more. A server that closes at once every time costs
    little then, and its answer is late by seconds at most. At it: the pause stays as long."""
    reply_timeout_s: float = 3600.0
    """Silence of an upstream on a request, where progress ends the silence. Long tools are normal, eternal ones are
    not. At it: error -31008, and the request is cancelled at the server."""
    cancel_grace_s: float = 2.0
    """Time for which the upstream stream of an answered or cancelled request may stay open. At it: the stream is
    closed."""
    restart_backoff_s: float = 1.0
    """Pause after an upstream failed to start, doubled with each failure in a row up to `restart_backoff_max_s`. At it:
    the next request starts it; until then requests get error -31004."""
    restart_backoff_max_s: float = 30.0
    """Longest such pause: a repaired server is tried again within half a minute. At it: the pause stays as long."""
    crash_loop_failures: int = 5
    """Processes of one server that fail in a row, over all sessions, after which it is left alone. At it: error -31004,
    with the last cause, for all sessions."""
    crash_loop_pause_s: float = 30.0
    """Time for which it is left alone, doubled with each further failure up to `crash_loop_pause_max_s`; the same for a
    URL of a server that has several, from its first failure. At it: the next request starts it."""
    crash_loop_pause_max_s: float = 300.0
    """Longest such pause: a repaired server is tried again within minutes, or at once by an operator's order. At it:
    the pause stays as long."""
    shared_linger_s: float = 60.0
    """Life of a shared process without sessions: clients come and go, and starting takes seconds. At it: the process is
    stopped."""
    spare_idle_s: float = 1800.0
    """Life of a process that is kept ready by default (`ServerPlan.spares_on_trial`), as long as that of an idle
    session. At it: the process is stopped."""
    cancelled_request_ttl_s: float = 60.0
    """Time for which a cancelled request may still be the reason of a shared server's request. At it: it is forgotten,
    and the server's request counts for the calls that are open."""
    stop_grace_s: float = 3.0
    """Pause between closing a child's stdin and TERM, and between TERM and KILL. At it: TERM is sent, then KILL."""
    stderr_ring_lines: int = 200
    """Last lines of a child's stderr kept for error messages. At it: the oldest line is forgotten."""

    # Files
    storage_timeout_s: float = 120.0
    """A storage order unanswered for this long counts as failed. At it: the call or the transfer gets the error of a
    broken storage."""
    upload_size_max_bytes: int = 50 * MIB
    """One uploaded file: documents and images fit, disk images do not come by accident. At it: 413 `file_too_large`."""
    upload_files_max: int = 32
    """Files in one upload request. At it: 400 `too_many_files`, and none is kept."""
    uploads_per_session_max: int = 1000
    """Uploads of one account (`files.store.owners.account_of`) at once, however small. At it: those of ended sessions
    are evicted; if there are none, 507 `storage_full`."""
    upload_part_max_bytes: int = 4 * MIB
    """Content of a file within one message: a part in a call of the upload tool, or a `data:` URI in an argument. In
    base64 it fits into a request of `request_size_max_bytes`, with room to spare. At it: an error result says how else
    to send the file."""
    upload_ttl_s: float = 3600.0
    """Unused uploads are removed after this; each use starts it anew. At it: the file is removed, and its handle says
    that it expired."""
    upload_link_ttl_s: float = 120.0
    """Life of a signed upload link: minutes, since the agent uses it at once. At it: 403 `bad_credential`."""
    upload_draft_ttl_s: float = 3600.0
    """Time that an upload in several parts waits for more of it: a laptop that was closed for a meeting. At it: the
    upload is removed: 404 `not_found`."""
    upload_draft_max_s: float = 86_400.0
    """Life of an upload in several parts: gigabytes over a slow line are done within a day. At it: the upload is
    removed: 404 `not_found`, or 410 `ended` to a request under way."""
    upload_drafts_per_session_max: int = 16
    """Resumable uploads of one session at once, and as many that come in calls of the upload tool. Each of the former
    reserves the room of its whole file. At it: 429 `too_many_uploads`, or an error result."""
    upload_drafts_max: int = 1024
    """Resumable uploads of all sessions together, including finished ones that can still be asked for: about 2 KB of
    memory each; and as many that come in calls of the upload tool. One owner has half of them at most. At it: the
    oldest finished one is forgotten; if none is, the owner's own of an ended session that has waited for longest; if
    there is none, 429 `too_many_uploads`, or an error result."""
    artifact_size_max_bytes: int = 1024 * MIB
    """One file taken in from a tool: screen recordings and exports fit. At it: the file stays where it is, and the
    result says so."""
    artifact_ttl_s: float = 3600.0
    """Life of an artifact and its download link: time enough for a person to click. At it: the file is removed: 403
    `bad_credential` for its link, an error for its URI."""
    artifacts_per_session_max: int = 1000
    """Artifacts of one account at once: a browser's session takes hundreds of screenshots. At it: those of ended
    sessions are evicted; if there are none, further files are not taken in, and the result says so."""
    files_known_max: int = 10_000
    """Files in a session's folders whose changes are noticed. A call that unpacks an archive makes thousands. At it:
    only so many are looked at, and the result says so."""
    files_awaited_max: int = 64
    """Files of one session that were named before they were complete, and that later calls look for. At it: the one
    named longest ago is not looked for any more."""
    arguments_read_max: int = 256
    """Strings in a call's arguments that are taken for paths of output files. At it: further strings are not looked
    at."""
    artifacts_per_call_max: int = 64
    """Files taken in from one tool result. At it: further files are left for later calls, and the result says so."""
    artifact_page_max: int = 100
    """Artifacts in one page of `resources/list`. At it: the result has a `nextCursor`."""
    inline_size_max_bytes: int = 8 * MIB
    """Largest artifact in a `resources/read` result, and content put into a call or a result. At it: error -31007 with
    the link; a tool that takes content gets an error result."""
    session_storage_max_bytes: int = 1024 * MIB
    """Uploads and artifacts of one account together: of all sessions of an authenticated principal, or of one session
    of an anonymous client. At it: files that no call uses are evicted; if that is too little,
    413 or 507, and files of results are not taken in."""
    storage_max_bytes: int = 16 * 1024 * MIB
    """Uploads and artifacts of all sessions together. At it: as at `session_storage_max_bytes`; files of ended sessions
    of the same principal are evicted too."""
    stored_files_max: int = 100_000
    """Uploads and artifacts of all sessions together, ended sessions included: about 1 KB of memory each. At it:
    those of ended sessions of the same principal are evicted; if there are none, 507 `storage_full`, and files of
    results are not taken in."""

    tombstones_max: int = 10_000
    """Removed files of which the reason is still known, some 500 bytes each. At it: the oldest is forgotten: its file
    counts as unknown."""
    tombstone_ttl_s: float = 86_400.0
    """Time for which the reason is known: agents resumed on the next day still name yesterday's files. At it: the file
    counts as unknown."""

    # Shutdown
    drain_s: float = 10.0
    """Time that running calls may take to finish on shutdown. At it: calls that still run get error -31001, those that
    were not sent yet -31007."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if getattr(self, name) <= 0:
                raise ValueError(f"limit {name} is {getattr(self, name)}, expected a positive number")
        if self.task_ttl_s > self.task_ttl_max_s:
            raise ValueError("limit task_ttl_s is above task_ttl_max_s, expected at most that")
        if self.outbox_low_bytes > self.outbox_high_bytes:
            raise ValueError("limit outbox_low_bytes is above outbox_high_bytes, expected at most that")
