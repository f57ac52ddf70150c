"""The methods of every revision: their senders, their kind, and the capability that each needs.

The table follows the unions `ClientRequest`, `ServerRequest`, `ClientNotification` and `ServerNotification` of the
official schemas, and the tasks extension. Other names are vendors' own and are not judged.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ..base.revisions import LEGACY, MODERN
from .observations import Role

V1, V2, V3, V4 = LEGACY
(V5,) = MODERN
HANDSHAKE: Final = (V1, V2, V3, V4)
ALL: Final = (*HANDSHAKE, V5)

TASKS_EXTENSION: Final = "io.modelcontextprotocol/tasks"

_C, _S = (Role.CLIENT,), (Role.SERVER,)
_BOTH = (Role.CLIENT, Role.SERVER)


class Use(NamedTuple):
    """The rules of a method.

    Attributes:
        senders: the roles that may send it.
        is_request: True for a request, False for a notification.
        revisions: the revisions that have it.
        needs: path of the capability that must be declared, such as "resources.subscribe"; "" for none.
        of: the role that must have declared it; None: the receiver.
        needs_in: the revisions in which the capability exists.
    """

    senders: tuple[Role, ...]
    is_request: bool
    revisions: tuple[str, ...]
    needs: str = ""
    of: Role | None = None
    needs_in: tuple[str, ...] = ALL


def _request(senders: tuple[Role, ...], revisions: tuple[str, ...], needs: str = "", since: int = 0) -> Use:
    return Use(senders, True, revisions, needs, None, ALL[since:])


def _notification(
    senders: tuple[Role, ...], revisions: tuple[str, ...], needs: str = "", of: Role | None = None
) -> Use:
    return Use(senders, False, revisions, needs, of)


METHODS: Final[dict[str, Use]] = {
    "initialize": _request(_C, HANDSHAKE),
    "ping": _request(_BOTH, HANDSHAKE),
    "tools/list": _request(_C, ALL, "tools"),
    "tools/call": _request(_C, ALL, "tools"),
    "prompts/list": _request(_C, ALL, "prompts"),
    "prompts/get": _request(_C, ALL, "prompts"),
    "resources/list": _request(_C, ALL, "resources"),
    "resources/templates/list": _request(_C, ALL, "resources"),
    "resources/read": _request(_C, ALL, "resources"),
    "resources/subscribe": _request(_C, HANDSHAKE, "resources.subscribe"),
    "resources/unsubscribe": _request(_C, HANDSHAKE, "resources.subscribe"),
    "logging/setLevel": _request(_C, HANDSHAKE, "logging"),
    "completion/complete": _request(_C, ALL, "completions", since=1),
    "sampling/createMessage": _request(_S, HANDSHAKE, "sampling"),
    "roots/list": _request(_S, HANDSHAKE, "roots"),
    "elicitation/create": _request(_S, (V3, V4), "elicitation"),
    "tasks/get": Use(_BOTH, True, (V4, V5), "tasks", None, (V4,)),
    "tasks/result": Use(_BOTH, True, (V4,), "tasks", None, (V4,)),
    "tasks/list": Use(_BOTH, True, (V4,), "tasks.list", None, (V4,)),
    "tasks/cancel": Use(_BOTH, True, (V4, V5), "tasks.cancel", None, (V4,)),
    "tasks/update": Use(_C, True, (V5,)),
    "server/discover": _request(_C, (V5,)),
    "subscriptions/listen": _request(_C, (V5,)),
    "notifications/initialized": _notification(_C, HANDSHAKE),
    "notifications/cancelled": _notification(_BOTH, ALL),
    "notifications/progress": _notification(_BOTH, ALL),
    "notifications/message": _notification(_S, ALL, "logging", Role.SERVER),
    "notifications/tools/list_changed": _notification(_S, ALL, "tools.listChanged", Role.SERVER),
    "notifications/prompts/list_changed": _notification(_S, ALL, "prompts.listChanged", Role.SERVER),
    "notifications/resources/list_changed": _notification(_S, ALL, "resources.listChanged", Role.SERVER),
    "notifications/resources/updated": _notification(_S, ALL, "resources.subscribe", Role.SERVER),
    "notifications/roots/list_changed": _notification(_C, HANDSHAKE, "roots.listChanged", Role.CLIENT),
    "notifications/elicitation/complete": _notification(_S, (V4,), "elicitation.url", Role.CLIENT),
    "notifications/tasks/status": _notification(_BOTH, (V4,)),
    "notifications/tasks": _notification(_S, (V5,)),
    "notifications/subscriptions/acknowledged": _notification(_S, (V5,)),
}

ONE_WAY: Final[dict[tuple[str, str], tuple[Role, ...]]] = {
    ("notifications/progress", V5): _S,
    ("tasks/get", V5): _C,
    ("tasks/cancel", V5): _C,
}
"""The senders of a method in a revision that allows fewer than the others do."""

INTERACTIVE: Final = ("tools/call", "prompts/get", "resources/read")
"""Requests that may be answered with `input_required` (2026-07-28 basic/patterns/mrtr, "Supported Requests")."""

QUESTIONS: Final = ("elicitation/create", "sampling/createMessage", "roots/list")
"""Methods that an `input_required` result may contain."""

CACHEABLE: Final = (
    "server/discover",
    "tools/list",
    "prompts/list",
    "resources/list",
    "resources/templates/list",
    "resources/read",
)
"""Requests whose results say how long they are valid (2026-07-28 server/utilities/caching, "Cacheable Results")."""

NAMED: Final = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}
"""The param of each request that `Mcp-Name` repeats (2026-07-28; ext-tasks, "Streamable HTTP: Routing Headers")."""

AUGMENTED: Final = {
    "tools/call": "tasks.requests.tools.call",
    "sampling/createMessage": "tasks.requests.sampling.createMessage",
    "elicitation/create": "tasks.requests.elicitation.create",
}
"""Requests that may be run as tasks, and the receiver's capability for it (2025-11-25 basic/utilities/tasks)."""


def senders(method: str, revision: str) -> tuple[Role, ...]:
    """Returns the roles that may send a method of the table; none, if the revision does not have it."""
    use = METHODS[method]
    return ONE_WAY.get((method, revision), use.senders) if revision in use.revisions else ()


def takes_mode(declared: object, mode: object) -> bool:
    """True if a client with this `elicitation` capability accepts the mode. A capability without modes means forms."""
    modes = declared if isinstance(declared, dict) else {}
    return isinstance(mode, str) and (mode in modes or (mode == "form" and not modes))


def declares(capabilities: dict[str, object], path: str) -> bool:
    """True if a capability is declared: each step of the path is present, and neither false nor null."""
    found: object = capabilities
    for step in path.split("."):
        found = found.get(step) if isinstance(found, dict) else None
        if found is None or found is False:
            return False
    return True
