"""A table of losses: features that one side can express and the other cannot, and what is done with each.

Everything that is not in this table is carried over with the same effect, or byte for byte.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, Literal

import msgspec

from ...core.base.revisions import Era

Side = Literal["handshake", "stateless", "older", "any"]
"""A revision with `initialize`, one without, one with `initialize` that is older than the other side's, or any."""

Speaker = Literal["client", "server"]
"""The side that sends it."""

Fate = Literal["changed", "refused", "dropped"]
"""`changed`: sent in another form. `refused`: answered with an error or a safe default. `dropped`: not sent at all."""

SERVER_CAPABILITIES: Final = frozenset({"tools", "resources", "logging", "tasks", "extensions"})
"""Capabilities of servers that losses depend on; any other capability in the table is the client's."""


class Loss(msgspec.Struct, frozen=True, kw_only=True):
    """One feature that is not carried over as it is.

    Attributes:
        feature: the feature, in a few words.
        from_era: the era of the side that sends it.
        to_era: the era of the side that cannot receive it as it is.
        speaker: the side that sends it.
        fate: what is done with it, in a word.
        carried: what is done with it in full, and where the parts that cannot be carried are kept.
        capability: the client's or server's capability that it depends on, dotted; "" if none.
    """

    feature: str
    from_era: Side
    to_era: Side
    speaker: Speaker
    fate: Fate
    carried: str
    capability: str = ""


LOSSES: Final[tuple[Loss, ...]] = (
    # --- Identity, capabilities and sessions ------------------------------------------------------------------------
    Loss(
        feature="server without a name",
        from_era="stateless",
        to_era="handshake",
        speaker="server",
        fate="changed",
        carried="A server that does not say who it is gets its configured id as its name, and version 0.",
    ),
    Loss(
        feature="state of a conversation",
        from_era="handshake",
        to_era="stateless",
        speaker="server",
        fate="changed",
        carried="Clients without sessions share one of the server's by principal, connection, handle or configuration,"
        " so a server's memory of a session is not of one conversation.",
    ),
    Loss(
        feature="lost upstream session",
        from_era="handshake",
        to_era="handshake",
        speaker="server",
        fate="changed",
        carried="A new session is made, and log level and subscriptions are set in it again; what else the server"
        " remembered is gone.",
    ),
    Loss(
        feature="changed roots",
        from_era="handshake",
        to_era="stateless",
        speaker="client",
        fate="changed",
        carried="The notification is not passed on; the client is asked anew at the server's next question.",
        capability="roots.listChanged",
    ),
    Loss(
        feature="undeclared client capability",
        from_era="stateless",
        to_era="handshake",
        speaker="server",
        fate="refused",
        carried="A session's capabilities are fixed: a tool that needs more fails with a text that names them, any"
        " other request with -32603 and `data.requiredCapabilities`.",
    ),
    # --- Questions of the server ------------------------------------------------------------------------------------
    Loss(
        feature="members of a question",
        from_era="handshake",
        to_era="stateless",
        speaker="server",
        fate="changed",
        carried="Its `task`, `progressToken` and `elicitationId` are left out; the proxy serves them itself.",
    ),
    Loss(
        feature="question outside of a call",
        from_era="handshake",
        to_era="stateless",
        speaker="server",
        fate="refused",
        carried="Roots wait for the next call that can ask; an elicitation is answered with cancel, sampling with an"
        " error.",
    ),
    Loss(
        feature="question nobody comes back to answer",
        from_era="stateless",
        to_era="handshake",
        speaker="client",
        fate="refused",
        carried="After a while an elicitation is answered with cancel, sampling and roots with an error, and the call"
        " is cancelled.",
    ),
    Loss(
        feature="retry without its state",
        from_era="stateless",
        to_era="handshake",
        speaker="client",
        fate="changed",
        carried="It runs as a new call; the one it came from is given up in time.",
    ),
    Loss(
        feature="call lost while it waited for answers",
        from_era="stateless",
        to_era="handshake",
        speaker="client",
        fate="refused",
        carried="After a restart of the proxy a prompt, a resource, or a tool known to be marked read-only or"
        " idempotent is asked for again, and what its server asks is answered with what the client brought. Any other"
        " call ends as a failed tool, or with -31001: it may have had effects.",
    ),
    Loss(
        feature="rounds of questions",
        from_era="stateless",
        to_era="handshake",
        speaker="server",
        fate="refused",
        carried="They are bounded: beyond that a tool fails, and any other request ends with -31006.",
    ),
    Loss(
        feature="refused sampling or roots",
        from_era="handshake",
        to_era="stateless",
        speaker="client",
        fate="refused",
        carried="There is no way to answer with an error: the call ends for the client with it, and the server is not"
        " asked again.",
        capability="sampling",
    ),
    Loss(
        feature="question the client did not declare",
        from_era="stateless",
        to_era="handshake",
        speaker="server",
        fate="refused",
        carried="It is not asked: the call ends with -32603.",
    ),
    Loss(
        feature="question without an event stream",
        from_era="stateless",
        to_era="handshake",
        speaker="server",
        fate="refused",
        carried="A client that accepts only JSON for a call is asked on its GET stream; if it opens none soon, it"
        " counts as refusing.",
    ),
    Loss(
        feature="rich forms",
        from_era="stateless",
        to_era="older",
        speaker="server",
        fate="changed",
        carried="Titles of choices become `enumNames`, several choices one yes or no each; defaults are not shown. The"
        " answer is put together again to fit the form that was sent.",
        capability="elicitation",
    ),
    Loss(
        feature="tools in sampling",
        from_era="stateless",
        to_era="older",
        speaker="server",
        fate="refused",
        carried="A message of several blocks becomes several messages; with tools, the server's question is refused.",
        capability="sampling.tools",
    ),
    Loss(
        feature="context for sampling",
        from_era="handshake",
        to_era="stateless",
        speaker="server",
        fate="dropped",
        carried="`includeContext` is left out for clients that did not declare it.",
        capability="sampling.context",
    ),
    Loss(
        feature="page that has been visited",
        from_era="handshake",
        to_era="stateless",
        speaker="server",
        fate="dropped",
        carried="The notification of it is not passed on; the retried call waits until the server goes on.",
        capability="elicitation.url",
    ),
    Loss(
        feature="page required before a call",
        from_era="handshake",
        to_era="stateless",
        speaker="server",
        fate="changed",
        carried="-32042 becomes a question; with its answer the call is made anew, as the error itself demands.",
        capability="elicitation.url",
    ),
    # --- Notifications ----------------------------------------------------------------------------------------------
    Loss(
        feature="changes without a push channel",
        from_era="handshake",
        to_era="stateless",
        speaker="server",
        fate="dropped",
        carried="What the server cannot tell is left out of the acknowledgement of `subscriptions/listen`.",
        capability="resources.subscribe",
    ),
    Loss(
        feature="repeated changes",
        from_era="stateless",
        to_era="handshake",
        speaker="server",
        fate="changed",
        carried="Changes that wait are told once for each list or URI, and to whoever may be meant: none is missed,"
        " some are told needlessly.",
        capability="resources.subscribe",
    ),
    Loss(
        feature="changes during an outage",
        from_era="handshake",
        to_era="stateless",
        speaker="server",
        fate="changed",
        carried="After it, one change is announced for everything listened to.",
        capability="resources.subscribe",
    ),
    Loss(
        feature="log level",
        from_era="handshake",
        to_era="stateless",
        speaker="client",
        fate="changed",
        carried="A client that has set no level gets the log from `info` on. A new level counts for the requests after "
        "it, not for those under way.",
        capability="logging",
    ),
    Loss(
        feature="log messages of one request",
        from_era="handshake",
        to_era="stateless",
        speaker="server",
        fate="changed",
        carried="Where a server does not say which request a message belongs to, every one that asked for messages gets"
        " it.",
        capability="logging",
    ),
    Loss(
        feature="progress between two legs of a call",
        from_era="handshake",
        to_era="stateless",
        speaker="server",
        fate="dropped",
        carried="The latest progress and a few log messages are kept for the next leg.",
    ),
    Loss(
        feature="reason of a cancellation",
        from_era="handshake",
        to_era="stateless",
        speaker="client",
        fate="dropped",
        carried="Over HTTP a request is cancelled by closing its stream, which gives no reason.",
    ),
    Loss(
        feature="vendor's question",
        from_era="handshake",
        to_era="stateless",
        speaker="server",
        fate="refused",
        carried="The server is told -32601: only sampling, elicitation and roots can be asked for.",
    ),
    Loss(
        feature="vendor's notification of a client over HTTP",
        from_era="stateless",
        to_era="handshake",
        speaker="client",
        fate="dropped",
        carried="It names no session, so that nothing says whose it is. On a pipe it reaches the client's servers.",
    ),
    Loss(
        feature="vendor's notification outside of a call",
        from_era="handshake",
        to_era="stateless",
        speaker="server",
        fate="dropped",
        carried="It is dropped and counted: nobody listens for it.",
    ),
    # --- Tasks ------------------------------------------------------------------------------------------------------
    Loss(
        feature="tasks of a session",
        from_era="handshake",
        to_era="stateless",
        speaker="server",
        fate="changed",
        carried="They are tasks of the extension: `tasks/list` and `tasks/result` are gone, outcome and questions come"
        " with `tasks/get`. A tool that requires a task is called as one for every client; those that know none wait.",
        capability="tasks",
    ),
    Loss(
        feature="failed task",
        from_era="handshake",
        to_era="stateless",
        speaker="server",
        fate="changed",
        carried="One whose tool reported an error is `completed`, with that result: `failed` is for"
        " errors of the protocol.",
        capability="tasks",
    ),
    Loss(
        feature="progress of a task",
        from_era="handshake",
        to_era="stateless",
        speaker="server",
        fate="dropped",
        carried="The extension has none: what the server says of its task's state is told as `statusMessage`.",
        capability="tasks",
    ),
    Loss(
        feature="tasks extension",
        from_era="stateless",
        to_era="handshake",
        speaker="server",
        fate="changed",
        carried="Every tool can be called as a task: what the server runs as an ordinary call is made one by the proxy."
        " Clients of older revisions are given the plain result.",
        capability="extensions",
    ),
    Loss(
        feature="wished lifetime of a task",
        from_era="handshake",
        to_era="stateless",
        speaker="client",
        fate="changed",
        carried="The server decides how long it keeps its own; the wish holds for what the proxy makes a task of.",
    ),
    # --- Results and errors -----------------------------------------------------------------------------------------
    Loss(
        feature="kind of a result",
        from_era="handshake",
        to_era="stateless",
        speaker="server",
        fate="changed",
        carried='Members that have a meaning only in the new era, with values it has not, move to `_meta["dev.isthmus/'
        'shadowed"]`.',
    ),
    Loss(
        feature="structured output",
        from_era="stateless",
        to_era="older",
        speaker="server",
        fate="changed",
        carried="Schemas and values that are no objects are put into one under `result`; a text block says the same.",
        capability="tools",
    ),
    Loss(
        feature="audio",
        from_era="any",
        to_era="older",
        speaker="server",
        fate="changed",
        carried='It becomes an embedded resource; the block is kept in its `_meta["dev.isthmus/original"]`.',
    ),
    Loss(
        feature="link to a resource",
        from_era="any",
        to_era="older",
        speaker="server",
        fate="changed",
        carried='It becomes a text that names it; the block is kept in its `_meta["dev.isthmus/original"]`.',
    ),
    Loss(
        feature="error codes of one era",
        from_era="handshake",
        to_era="stateless",
        speaker="server",
        fate="changed",
        carried="A missing resource is -32602 on one side and -32002 on the other; a code that the sender could not"
        " mean becomes -32603, with code and data under `data`.",
    ),
    Loss(
        feature="error without a usable code",
        from_era="handshake",
        to_era="stateless",
        speaker="server",
        fate="changed",
        carried='It becomes -32603; the error is kept in `data["dev.isthmus/original"]`.',
    ),
    Loss(
        feature="page in place of an answer",
        from_era="stateless",
        to_era="handshake",
        speaker="server",
        fate="changed",
        carried="A refusal that is no JSON-RPC becomes -31004, with its status and the first 200 characters in `data`.",
    ),
    Loss(
        feature="lines that are no messages",
        from_era="handshake",
        to_era="stateless",
        speaker="server",
        fate="dropped",
        carried="They are logged and answered by nobody.",
    ),
)


def losses_of(server: Era, client: Era, declared: Collection[str]) -> list[Loss]:
    """Returns the losses for clients of one era with a server of the other.

    Args:
        declared: the server's capabilities, dotted, with their parents: `resources`, `resources.subscribe`.
    """
    assert server is not client
    return [loss for loss in LOSSES if _eras_of(loss) == (server.value, client.value) and _can_occur(loss, declared)]


def losses_for_older(server: Era, declared: Collection[str]) -> list[Loss]:
    """Returns the losses for clients with sessions whose revision is older than their server's."""
    return [
        loss
        for loss in LOSSES
        if loss.to_era == "older" and loss.from_era in ("any", server.value) and _can_occur(loss, declared)
    ]


def _eras_of(loss: Loss) -> tuple[Side, Side]:
    """Returns the eras of the server and of the client."""
    return (loss.from_era, loss.to_era) if loss.speaker == "server" else (loss.to_era, loss.from_era)


def _can_occur(loss: Loss, declared: Collection[str]) -> bool:
    """True if the loss can occur with a server of these capabilities. Those of clients are not known, so they count."""
    return loss.capability.partition(".")[0] not in SERVER_CAPABILITIES or loss.capability in declared
