"""The rules of Streamable HTTP and HTTP+SSE."""

from __future__ import annotations

from typing import Final

from .methods import V1, V3, V4, V5
from .rule import BY_SESSION, CLIENT, RESUMING, SENDING, SERVER, SESSIONS, STREAMABLE, Rule, within

HTTP_RULES: Final = (
    # --- HTTP
    Rule(
        "accept",
        "A POST accepts JSON and events, a GET events.",
        CLIENT,
        within(BY_SESSION, SENDING) | within((V5,), f'{STREAMABLE}, "Sending Messages"'),
    ),
    Rule(
        "accepted-status",
        "A POST without a request is answered 202, or with an error's status.",
        SERVER,
        within(BY_SESSION, SENDING) | within((V5,), f'{STREAMABLE}, "Sending Messages"'),
    ),
    Rule(
        "content-type",
        "A request is answered in JSON or by an event stream, and a GET by an event stream.",
        SERVER,
        within(BY_SESSION, SENDING) | within((V5,), f'{STREAMABLE}, "Sending Messages"'),
    ),
    Rule(
        "error-status",
        "Errors that have an HTTP status of their own come with it.",
        SERVER,
        within((V5,), f'{STREAMABLE}, "Protocol Version Header", "Server Validation"; basic, "`_meta`"'),
    ),
    Rule("session-id-form", "A session id is visible ASCII.", SERVER, within(BY_SESSION, SESSIONS)),
    Rule(
        "session-id-given",
        "A session gets its id with the answer to `initialize`, and no other.",
        SERVER,
        within(BY_SESSION, SESSIONS),
    ),
    Rule(
        "session-id-missing",
        "Every request after `initialize` has the session's id.",
        CLIENT,
        within(BY_SESSION, SESSIONS),
    ),
    Rule("session-id-lost", "After a 404 a client begins a new session.", CLIENT, within(BY_SESSION, SESSIONS)),
    Rule("session-revived", "A session that was ended is not found any more.", SERVER, within(BY_SESSION, SESSIONS)),
    Rule(
        "session-end-status",
        "What is asked in a session that was ended is answered 404, and not 400.",
        SERVER,
        within(BY_SESSION, SESSIONS),
    ),
    Rule(
        "session-stateless",
        "There are no session ids.",
        SERVER,
        within((V5,), f'{STREAMABLE}, "Earlier Streamable HTTP Revisions"'),
        frozenset({V5}),
    ),
    Rule(
        "version-header-missing",
        "Every request (of a session: after `initialize`) has the `MCP-Protocol-Version` header.",
        CLIENT,
        within((V3, V4), 'basic/transports, "Protocol Version Header"')
        | within((V5,), f'{STREAMABLE}, "Protocol Version Header"'),
    ),
    Rule(
        "version-header",
        "The `MCP-Protocol-Version` header is the negotiated version, or that of the body.",
        CLIENT,
        within((V3, V4), 'basic/transports, "Protocol Version Header"')
        | within((V5,), f'{STREAMABLE}, "Protocol Version Header"'),
        frozenset({V3, V4}),
    ),
    Rule(
        "version-refused",
        "A request whose `MCP-Protocol-Version` is no version is not accepted.",
        SERVER,
        within((V3, V4), 'basic/transports, "Protocol Version Header"')
        | within((V5,), f'{STREAMABLE}, "Protocol Version Header"'),
    ),
    Rule(
        "mismatch-refused",
        "A request whose headers say something else than its body is not accepted.",
        SERVER,
        within((V5,), f'{STREAMABLE}, "Server Validation"'),
    ),
    Rule(
        "mirrored-method",
        "`Mcp-Method` is the body's method.",
        CLIENT,
        within((V5,), f'{STREAMABLE}, "Standard Request Headers"'),
    ),
    Rule(
        "mirrored-name",
        "`Mcp-Name` is the name, URI or task that the body names.",
        CLIENT,
        within((V5,), f'{STREAMABLE}, "Standard Request Headers"'),
    ),
    Rule(
        "mirrored-argument",
        "`Mcp-Param-…` are the arguments that the tool's schema wants there.",
        CLIENT,
        within((V5,), f'{STREAMABLE}, "Custom Headers from Tool Parameters"'),
    ),
    Rule(
        "response-on-get",
        "A GET's stream has no responses, unless it takes up a POST's.",
        SERVER,
        within(BY_SESSION, 'basic/transports, "Listening for Messages from the Server"'),
    ),
    Rule(
        "response-stream",
        "A response comes on the stream of its request.",
        SERVER,
        within(BY_SESSION, SENDING) | within((V5,), f'{STREAMABLE}, "Receiving Messages"'),
        frozenset(BY_SESSION),
    ),
    Rule(
        "unrelated-on-stream",
        "What a POST's stream has before the response belongs to the request.",
        SERVER,
        within(BY_SESSION, SENDING) | within((V5,), f'{STREAMABLE}, "Receiving Messages"'),
        frozenset(BY_SESSION),
    ),
    Rule(
        "stream-goes-on",
        "A POST's stream ends with its last response.",
        SERVER,
        within(BY_SESSION, SENDING) | within((V5,), f'{STREAMABLE}, "Receiving Messages"'),
        frozenset((*BY_SESSION, V5)),
    ),
    Rule(
        "stream-ended-early",
        "A POST's stream ends with its last response, and not before, unless it can be taken up, or is one of an "
        "acknowledged subscription.",
        SERVER,
        within(BY_SESSION, SENDING) | within((V5,), f'{STREAMABLE}, "Sending Messages"'),
        frozenset(BY_SESSION),
    ),
    Rule("event-id-reused", "An event id names one event of one stream.", SERVER, within(BY_SESSION, RESUMING)),
    Rule(
        "replay-stream",
        "What is sent again belongs to the stream that is taken up.",
        SERVER,
        within(BY_SESSION, RESUMING),
    ),
    Rule(
        "endpoint-first",
        "An event stream begins with an `endpoint` event, and has `message` events after it.",
        SERVER,
        within((V1,), 'basic/transports, "HTTP with SSE"'),
    ),
    Rule(
        "message-on-post",
        "Messages of the server come on the event stream.",
        SERVER,
        within((V1,), 'basic/transports, "HTTP with SSE"'),
    ),
)
