"""What one side can say and the other cannot hear in the same way, and what becomes of it.

Everything that is not in this table crosses unchanged in effect, or byte for byte.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

Side = Literal["handshake", "stateless", "older"]
"""A revision with `initialize`, one without, or one with `initialize` that is older than the other side's."""


class Loss(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is changed on its way.

    Attributes:
        feature: what it is about.
        from_era: the side that says it.
        to_era: the side that cannot hear it as it is.
        carried: what happens, and where that which cannot be carried is kept.
        capability: the client's or server's capability it hangs on, dotted; "" if none.
    """

    feature: str
    from_era: Side
    to_era: Side
    carried: str
    capability: str = ""


LOSSES: Final[tuple[Loss, ...]] = (
    # --- Who is there, and what can they do -------------------------------------------------------------------------
    Loss(
        feature="server without a name",
        from_era="stateless",
        to_era="handshake",
        carried="A server that does not say who it is gets its configured id as its name, and version 0.",
    ),
    Loss(
        feature="state of a conversation",
        from_era="handshake",
        to_era="stateless",
        carried="Clients without sessions share one of the server's by principal, connection or configuration, so a"
        " server's memory of a session is not of one conversation.",
    ),
    Loss(
        feature="lost upstream session",
        from_era="handshake",
        to_era="handshake",
        carried="A new session is made, and log level and subscriptions are set in it again; what else the server"
        " remembered is gone.",
    ),
    Loss(
        feature="changed roots",
        from_era="handshake",
        to_era="stateless",
        carried="The notification is not passed on; the client is asked anew at the server's next question.",
        capability="roots.listChanged",
    ),
    Loss(
        feature="undeclared client capability",
        from_era="stateless",
        to_era="handshake",
        carried="A session's capabilities are fixed: a tool that needs more fails with a text that names them, any"
        " other request with -32603 and `data.requiredCapabilities`.",
    ),
    # --- Questions of the server ------------------------------------------------------------------------------------
    Loss(
        feature="members of a question",
        from_era="handshake",
        to_era="stateless",
        carried="Its `task`, `progressToken` and `elicitationId` are left out; the proxy serves them itself.",
    ),
    Loss(
        feature="question outside of a call",
        from_era="handshake",
        to_era="stateless",
        carried="Roots wait for the next call that can ask; an elicitation is answered with cancel, sampling with an"
        " error.",
    ),
    Loss(
        feature="question nobody comes back to answer",
        from_era="stateless",
        to_era="handshake",
        carried="After a while an elicitation is answered with cancel, sampling and roots with an error, and the call"
        " is cancelled.",
    ),
    Loss(
        feature="retry without its state",
        from_era="stateless",
        to_era="handshake",
        carried="It runs as a new call; the one it came from is given up in time.",
    ),
    Loss(
        feature="call held by a lost replica",
        from_era="stateless",
        to_era="handshake",
        carried="It ends with -31001, unless it only reads or may be repeated.",
    ),
    Loss(
        feature="rounds of questions",
        from_era="stateless",
        to_era="handshake",
        carried="They are bounded: beyond that a tool fails, and any other request ends with -31006.",
    ),
    Loss(
        feature="refused sampling or roots",
        from_era="handshake",
        to_era="stateless",
        carried="There is no way to answer with an error: the call ends for the client with it, and the server is not"
        " asked again.",
        capability="sampling",
    ),
    Loss(
        feature="question the client did not declare",
        from_era="stateless",
        to_era="handshake",
        carried="It is not asked: the call ends with -32603.",
    ),
    Loss(
        feature="question without an event stream",
        from_era="stateless",
        to_era="handshake",
        carried="A client that accepts only JSON cannot be asked in a call: it ends with an error that says so.",
    ),
    Loss(
        feature="rich forms",
        from_era="stateless",
        to_era="older",
        carried="Titles of choices become `enumNames`, several choices one yes or no each; defaults are not shown. The"
        " answer is put together again to fit the form that was sent.",
        capability="elicitation",
    ),
    Loss(
        feature="tools in sampling",
        from_era="stateless",
        to_era="older",
        carried="A message of several blocks becomes several messages; with tools, the server's question is refused.",
        capability="sampling.tools",
    ),
    Loss(
        feature="context for sampling",
        from_era="handshake",
        to_era="stateless",
        carried="`includeContext` is left out for clients that did not declare it.",
        capability="sampling.context",
    ),
    Loss(
        feature="page that has been visited",
        from_era="handshake",
        to_era="stateless",
        carried="The notification of it is not passed on; the retried call waits until the server goes on.",
        capability="elicitation.url",
    ),
    Loss(
        feature="page required before a call",
        from_era="handshake",
        to_era="stateless",
        carried="-32042 becomes a question; with its answer the call is made anew, as the error itself demands.",
        capability="elicitation.url",
    ),
    # --- Notifications ----------------------------------------------------------------------------------------------
    Loss(
        feature="changes without a push channel",
        from_era="handshake",
        to_era="stateless",
        carried="What the server cannot tell is left out of the acknowledgement of `subscriptions/listen`.",
        capability="resources.subscribe",
    ),
    Loss(
        feature="repeated changes",
        from_era="stateless",
        to_era="handshake",
        carried="Changes that wait are told once for each list or URI, and to whoever may be meant: none is missed,"
        " some are told needlessly.",
        capability="resources.subscribe",
    ),
    Loss(
        feature="changes during an outage",
        from_era="handshake",
        to_era="stateless",
        carried="After it, one change is announced for everything listened to.",
        capability="resources.subscribe",
    ),
    Loss(
        feature="log level",
        from_era="handshake",
        to_era="stateless",
        carried="A new level counts for the requests after it, not for those under way.",
        capability="logging",
    ),
    Loss(
        feature="log messages of one request",
        from_era="handshake",
        to_era="stateless",
        carried="Where a server does not say which request a message belongs to, every one that asked for messages gets"
        " it.",
        capability="logging",
    ),
    Loss(
        feature="progress between two legs of a call",
        from_era="handshake",
        to_era="stateless",
        carried="The latest progress and a few log messages are kept for the next leg.",
    ),
    Loss(
        feature="reason of a cancellation",
        from_era="handshake",
        to_era="stateless",
        carried="Over HTTP a request is cancelled by closing its stream, which gives no reason; it is logged.",
    ),
    Loss(
        feature="vendor's question",
        from_era="handshake",
        to_era="stateless",
        carried="The server is told -32601: only sampling, elicitation and roots can be asked for.",
    ),
    Loss(
        feature="vendor's notification outside of a call",
        from_era="handshake",
        to_era="stateless",
        carried="It is dropped and counted: nobody listens for it.",
    ),
    # --- Tasks ------------------------------------------------------------------------------------------------------
    Loss(
        feature="lifetime and progress of a task",
        from_era="handshake",
        to_era="stateless",
        carried="The requested `ttl` counts for tasks that the proxy runs itself; for others the server's own is shown."
        " Status messages stand for progress.",
        capability="tasks",
    ),
    Loss(
        feature="task that ends after it was cancelled",
        from_era="stateless",
        to_era="handshake",
        carried="It stays cancelled, as the client was told; its late outcome is dropped and counted.",
        capability="tasks.cancel",
    ),
    Loss(
        feature="cancelling a task",
        from_era="stateless",
        to_era="handshake",
        carried="Where the server cannot cancel, the wish is acknowledged and the work goes on.",
        capability="tasks.cancel",
    ),
    Loss(
        feature="tasks after a restart",
        from_era="handshake",
        to_era="stateless",
        carried="Tasks that the proxy ran itself are gone: -32602.",
        capability="tasks",
    ),
    # --- Results and errors -----------------------------------------------------------------------------------------
    Loss(
        feature="kind of a result",
        from_era="handshake",
        to_era="stateless",
        carried='Members that have a meaning only in the new era, with values it has not, move to `_meta["dev.isthmus/'
        'shadowed"]`.',
    ),
    Loss(
        feature="structured output",
        from_era="stateless",
        to_era="older",
        carried="Schemas and values that are no objects are put into one under `result`; a text block says the same.",
        capability="tools",
    ),
    Loss(
        feature="audio",
        from_era="handshake",
        to_era="older",
        carried='It becomes an embedded resource; the block is kept in its `_meta["dev.isthmus/original"]`.',
    ),
    Loss(
        feature="link to a resource",
        from_era="handshake",
        to_era="older",
        carried='It becomes a text that names it; the block is kept in its `_meta["dev.isthmus/original"]`.',
    ),
    Loss(
        feature="error codes of one era",
        from_era="handshake",
        to_era="stateless",
        carried="A missing resource is -32602 on one side and -32002 on the other; a code that the sender could not"
        " mean becomes -32603, with code and data under `data`.",
    ),
    Loss(
        feature="error without a usable code",
        from_era="handshake",
        to_era="stateless",
        carried='It becomes -32603; the error is kept in `data["dev.isthmus/original"]`.',
    ),
    Loss(
        feature="page in place of an answer",
        from_era="stateless",
        to_era="handshake",
        carried="A refusal that is no JSON-RPC becomes -31004, with its status and the first 200 characters in `data`.",
    ),
    Loss(
        feature="lines that are no messages",
        from_era="handshake",
        to_era="stateless",
        carried="They are logged and answered by nobody.",
    ),
)
