"""Every method of every revision: who may say it, as what, and which capability that takes.

The table is of the official schemas' unions `ClientRequest`, `ServerRequest`, `ClientNotification` and
`ServerNotification`, and of the tasks extension. Names that are not in it are somebody's own, and nothing is said of
them.
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
    """Where a method has its place.

    Attributes:
        senders: who may say it.
        is_request: it is a request; else a notification.
        revisions: which know it.
        needs: path of the capability that must be declared, such as "resources.subscribe"; "" for none.
        of: who must have declared it, for those revisions of `needs_since` on; None: whoever receives it.
        needs_since: revisions in which the capability exists.
    """

    senders: tuple[Role, ...]
    is_request: bool
    revisions: tuple[str, ...]
    needs: str = ""
    of: Role | None = None
    needs_in: tuple[str, ...] = ALL


def _request(senders: tuple[Role, ...], revisions: tuple[str, ...], needs: str = "", since: int = 0) -> Use:
    return Use(senders, True, revisions, needs, None, ALL[since:])


def _notice(senders: tuple[Role, ...], revisions: tuple[str, ...], needs: str = "", of: Role | None = None) -> Use:
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
    "notifications/initialized": _notice(_C, HANDSHAKE),
    "notifications/cancelled": _notice(_BOTH, ALL),
    "notifications/progress": _notice(_BOTH, ALL),
    "notifications/message": _notice(_S, ALL, "logging", Role.SERVER),
    "notifications/tools/list_changed": _notice(_S, ALL, "tools.listChanged", Role.SERVER),
    "notifications/prompts/list_changed": _notice(_S, ALL, "prompts.listChanged", Role.SERVER),
    "notifications/resources/list_changed": _notice(_S, ALL, "resources.listChanged", Role.SERVER),
    "notifications/resources/updated": _notice(_S, ALL, "resources.subscribe", Role.SERVER),
    "notifications/roots/list_changed": _notice(_C, HANDSHAKE, "roots.listChanged", Role.CLIENT),
    "notifications/elicitation/complete": _notice(_S, (V4,), "elicitation.url", Role.CLIENT),
    "notifications/tasks/status": _notice(_BOTH, (V4,)),
    "notifications/tasks": _notice(_S, (V5,)),
    "notifications/subscriptions/acknowledged": _notice(_S, (V5,)),
}

ONE_WAY: Final[dict[tuple[str, str], tuple[Role, ...]]] = {
    ("notifications/progress", V5): _S,
    ("tasks/get", V5): _C,
    ("tasks/cancel", V5): _C,
}
"""Who may say it in a revision that lets fewer say it than others do."""

INTERACTIVE: Final = ("tools/call", "prompts/get", "resources/read")
"""Requests that may be answered with `input_required` (2026-07-28 basic/patterns/mrtr, "Supported Requests")."""

QUESTIONS: Final = ("elicitation/create", "sampling/createMessage", "roots/list")
"""What an `input_required` result may ask."""

CACHEABLE: Final = (
    "server/discover",
    "tools/list",
    "prompts/list",
    "resources/list",
    "resources/templates/list",
    "resources/read",
)
"""Requests whose results say how long they hold (2026-07-28 server/utilities/caching, "Cacheable Results")."""

NAMED: Final = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}
"""Which of a request's params `Mcp-Name` says again (2026-07-28; ext-tasks, "Streamable HTTP: Routing Headers")."""

AUGMENTED: Final = {
    "tools/call": "tasks.requests.tools.call",
    "sampling/createMessage": "tasks.requests.sampling.createMessage",
    "elicitation/create": "tasks.requests.elicitation.create",
}
"""Requests that may be run as tasks, and the receiver's capability for it (2025-11-25 basic/utilities/tasks)."""


def senders(method: str, revision: str) -> tuple[Role, ...]:
    """Who may say a method of the table; nobody, where the revision has none of the name."""
    use = METHODS[method]
    return ONE_WAY.get((method, revision), use.senders) if revision in use.revisions else ()


def takes_mode(declared: object, mode: object) -> bool:
    """Whether who declares this as `elicitation` can be asked in that mode. One who names no mode means forms."""
    modes = declared if isinstance(declared, dict) else {}
    return isinstance(mode, str) and (mode in modes or (mode == "form" and not modes))


def declares(capabilities: dict[str, object], path: str) -> bool:
    """Whether a capability is declared: each step of the path is there, and is not false or null."""
    found: object = capabilities
    for step in path.split("."):
        found = found.get(step) if isinstance(found, dict) else None
        if found is None or found is False:
            return False
    return True
