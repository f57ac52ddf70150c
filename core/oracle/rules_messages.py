"""The rules of messages, requests, capabilities, the handshake and progress, on any transport."""

from __future__ import annotations

from typing import Final

from .methods import ALL, HANDSHAKE, V1, V2, V3, V4, V5
from .rule import (
    CANCEL,
    CLIENT,
    EITHER,
    INITIALIZATION,
    MESSAGES,
    PROGRESS,
    PROGRESS_RULES,
    REQUESTS,
    RESPONSES,
    SERVER,
    Rule,
    page,
    within,
)

MESSAGE_RULES: Final = (
    # --- Messages
    Rule("not-json", "A message is JSON in UTF-8.", EITHER, MESSAGES),
    Rule("not-jsonrpc", "A message is a JSON-RPC 2.0 request, notification or response.", EITHER, MESSAGES),
    Rule("id-type", "A request's id is a string or an integer.", EITHER, REQUESTS),
    Rule("response-shape", "A response has either a result or an error.", EITHER, RESPONSES),
    Rule("result-type", "A result is an object.", EITHER, RESPONSES),
    Rule("error-shape", "An error has an integer code and a message.", EITHER, RESPONSES),
    Rule(
        "error-code-withdrawn",
        "Error codes -32002 and -32042 are not used any more.",
        EITHER,
        within((V5,), 'basic, "Error Codes"'),
    ),
    Rule(
        "error-code-reserved",
        "Of -32020 to -32099 only codes that the specification defines are used.",
        EITHER,
        within((V5,), 'basic, "Error Codes"'),
    ),
    Rule("batch-unknown", "Messages do not come in arrays.", EITHER, within((V3, V4, V5), 'basic, "Messages"')),
    Rule("batch-initialize", "`initialize` is not part of a batch.", CLIENT, within((V2,), INITIALIZATION)),
    Rule("schema", "Each message has the shape its schema gives.", EITHER, within(ALL, "schema")),
    # --- Requests and their responses
    Rule(
        "id-reused",
        "A requestor uses an id once in a session (2026-07-28: once at a time).",
        EITHER,
        REQUESTS,
    ),
    Rule("response-unknown", "A response has the id of a request that was made.", EITHER, RESPONSES),
    Rule("response-twice", "A request is answered once.", EITHER, RESPONSES),
    Rule("error-without-id", "Only an error about a message that could not be read has no id.", EITHER, RESPONSES),
    Rule("unanswered", "Each request that was not cancelled is answered.", EITHER, RESPONSES),
    Rule("cancel-unknown", "What is cancelled is a request of the canceller's own.", EITHER, CANCEL),
    Rule("cancel-initialize", "`initialize` is not cancelled.", CLIENT, within(HANDSHAKE, CANCEL[V1])),
    Rule(
        "cancel-of-task",
        "A task is cancelled by `tasks/cancel`.",
        EITHER,
        within((V4,), CANCEL[V4]),
    ),
    Rule(
        "cancel-by-server", "A server cancels nothing but a `subscriptions/listen`.", SERVER, within((V5,), CANCEL[V5])
    ),
    Rule(
        "cancel-over-http",
        "Over HTTP a request is cancelled by closing its stream.",
        CLIENT,
        within((V5,), 'basic/patterns/cancellation, "Transport-Specific Cancellation"'),
        frozenset({V5}),
    ),
    # --- Methods and capabilities
    Rule("method-foreign", "A method belongs to the revision that is spoken.", EITHER, within(ALL, "schema")),
    Rule("method-direction", "A method is said by the peer that it belongs to.", EITHER, within(ALL, "schema")),
    Rule("method-kind", "A request has an id and a notification has none.", EITHER, within(ALL, "schema")),
    Rule(
        "request-by-server",
        "A server sends no requests.",
        SERVER,
        within((V5,), 'basic/transports/stdio, "Receiving Messages"; basic/transports/streamable-http'),
    ),
    Rule(
        "capability-undeclared",
        "Only what was declared is used.",
        EITHER,
        within(HANDSHAKE, 'basic/lifecycle, "Operation"') | within((V5,), 'server/discover, "DiscoverResult"'),
        frozenset({V1, V2}),
    ),
    Rule(
        "elicitation-mode",
        "A client is asked in the modes that it declares.",
        SERVER,
        within((V4,), 'client/elicitation, "Capabilities"'),
    ),
    Rule(
        "sampling-tools",
        "Only a client that declares `sampling.tools` is sent tools.",
        SERVER,
        within((V4,), 'client/sampling, "Capabilities"'),
    ),
    Rule(
        "elicitation-id",
        "`notifications/elicitation/complete` names an elicitation that there was.",
        SERVER,
        within((V4,), 'client/elicitation, "Completion Notifications for URL Mode Elicitation"'),
    ),
    Rule(
        "log-unasked",
        "Log messages come for requests that ask for them, at their level or above.",
        SERVER,
        within((V5,), 'server/utilities/logging, "Per-request log level"'),
    ),
    Rule(
        "log-stream",
        "Log messages come on the stream of the request that asked for them.",
        SERVER,
        within((V5,), 'server/utilities/logging, "Per-request log level"'),
    ),
    # --- The handshake
    Rule(
        "initialize-first",
        "`initialize` comes before everything but `ping`, and once.",
        CLIENT,
        within(HANDSHAKE, INITIALIZATION),
    ),
    Rule(
        "client-early",
        "Until `initialize` is answered a client sends no requests but `ping`.",
        CLIENT,
        within(HANDSHAKE, INITIALIZATION),
        frozenset(HANDSHAKE),
    ),
    Rule(
        "initialized-missing",
        "`notifications/initialized` comes before ordinary requests.",
        CLIENT,
        within(HANDSHAKE, INITIALIZATION),
    ),
    Rule(
        "server-early",
        "Until `notifications/initialized` a server sends no requests but `ping`.",
        SERVER,
        within(HANDSHAKE, INITIALIZATION),
        frozenset(HANDSHAKE),
    ),
    Rule(
        "initialize-params",
        "`initialize` says version, capabilities and client.",
        CLIENT,
        within(HANDSHAKE, INITIALIZATION),
    ),
    Rule(
        "initialize-result",
        "The answer to `initialize` says version, capabilities and server.",
        SERVER,
        within(HANDSHAKE, INITIALIZATION),
    ),
    Rule(
        "version-answered",
        "`initialize` is answered with the version asked for, or another that the server supports and has a handshake.",
        SERVER,
        within(HANDSHAKE, 'basic/lifecycle, "Version Negotiation"'),
    ),
    Rule(
        "version-unsupported",
        "A client goes away from a version that it does not support.",
        CLIENT,
        within(HANDSHAKE, 'basic/lifecycle, "Version Negotiation"'),
        frozenset(HANDSHAKE),
    ),
    # --- Progress
    Rule("progress-token", "A progress token is a string or an integer.", EITHER, PROGRESS),
    Rule("progress-token-reused", "No two active requests have one progress token.", EITHER, PROGRESS),
    Rule("progress-unknown", "Progress has a token that was given.", EITHER, PROGRESS_RULES),
    Rule(
        "progress-late",
        "Progress ends with the request's answer, or with its task.",
        EITHER,
        page('basic/utilities/progress, "Implementation Notes"', 'basic/patterns/progress, "Implementation Notes"'),
    ),
    Rule("progress-stands", "Progress increases.", EITHER, PROGRESS),
)
