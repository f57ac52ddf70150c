"""Who has tasks: servers and clients in their capabilities, and tool by tool.

In 2025-11-25 a server declares `tasks`, part by part, and each tool says in `execution.taskSupport` whether it may,
must or must not be called as one. The extension that came after it has one word for all, and none for a tool.

Source: 2025-11-25 basic/utilities/tasks, "Capabilities" and "Tool-Level Negotiation"; the extension, "Capability
Negotiation".
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from ..jsonrpc.append import readable_elements, readable_members, readable_text
from ..jsonrpc.object_editor import Draft, each
from ..jsonrpc.splice import take
from .tasks import TASKS

_DECLARED: Final = b'{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}'


class Abilities(NamedTuple):
    """What a server does about tasks.

    Attributes:
        calls: it may answer a call of a tool with a task.
        cancels: it knows `tasks/cancel`.
        lists: it knows `tasks/list`.
    """

    calls: bool
    cancels: bool
    lists: bool


class Support(enum.Enum):
    """What a tool says of calls as a task."""

    REQUIRED = "required"
    OPTIONAL = "optional"
    FORBIDDEN = "forbidden"


# --- Capabilities ---------------------------------------------------------------------------------------------------


def server_abilities(capabilities: bytes | None, *, is_stateless: bool) -> Abilities:
    """What a server declared itself. What cannot be read declares nothing."""
    if is_stateless:
        has_extension = declares(capabilities)
        return Abilities(has_extension, has_extension, False)
    return Abilities(
        _has(capabilities, "tasks", "requests", "tools", "call"),
        _has(capabilities, "tasks", "cancel"),
        _has(capabilities, "tasks", "list"),
    )


def declares(capabilities: bytes | None) -> bool:
    """Whether capabilities of the new era name the extension. What cannot be read declares nothing."""
    return _has(capabilities, "extensions", TASKS)


def declare_legacy(capabilities: bytes) -> bytes:
    """A server's capabilities with all there is of `tasks`, in place of any other.

    Raises:
        RemoteProtocolError: they are no object, or have a key twice.
    """
    draft = Draft(capabilities)
    draft.set("tasks", _DECLARED)
    return draft.json()


def declare_modern(capabilities: bytes) -> bytes:
    """Capabilities, of a server or of a client, with the extension; it has no settings.

    Raises:
        RemoteProtocolError: they are no object, or they or their extensions have a key twice.
    """
    draft = Draft(capabilities)
    extensions = Draft(_object(draft.get("extensions")))
    extensions.set(TASKS, b"{}")
    draft.set("extensions", extensions.json())
    return draft.json()


# --- Tools ----------------------------------------------------------------------------------------------------------


def read_support(result: bytes) -> dict[str, Support]:
    """By name, the tools in a `tools/list` result that say something. A word nobody knows forbids.

    A tool that cannot be read says nothing; of two with one name, the first counts.
    """
    found: dict[str, Support] = {}
    for tool in readable_elements(take(result, readable_members(result).get("tools"))):
        spans = readable_members(tool)
        name, execution = readable_text(take(tool, spans.get("name"))), take(tool, spans.get("execution"))
        if name is not None and execution is not None:
            said = _support(take(execution, readable_members(execution).get("taskSupport")))
            if said is not None:
                found.setdefault(name, said)
    return found


def show_support(result: bytes, decide: Callable[[str, Support | None], Support | None]) -> bytes:
    """A `tools/list` result whose tools say what `decide` makes of their name and of what they said; None: nothing.

    All else stays byte for byte, and so does a tool without a name: nobody can call it.

    Raises:
        RemoteProtocolError: the result is no object, or it, a tool or its `execution` has a key twice.
    """

    def change(tool: bytes) -> bytes:
        return _shown(tool, decide) if tool.startswith(b"{") else tool

    draft = Draft(result)
    tools = draft.get("tools")
    if tools is not None:
        draft.set("tools", each(tools, change))
    return draft.json()


def _shown(tool: bytes, decide: Callable[[str, Support | None], Support | None]) -> bytes:
    draft = Draft(tool)
    name = readable_text(draft.get("name"))
    if name is None:
        return tool
    execution = Draft(_object(draft.get("execution")))
    raw = execution.get("taskSupport")
    wanted = decide(name, _support(raw))
    if wanted is not None:
        if readable_text(raw) != wanted.value:
            execution.set("taskSupport", msgspec.json.encode(wanted.value))
            draft.set("execution", execution.json())
    elif execution.remove("taskSupport") is not None:
        if execution:
            draft.set("execution", execution.json())
        else:
            draft.remove("execution")
    return draft.json()


# --- Below ----------------------------------------------------------------------------------------------------------


def _support(raw: bytes | None) -> Support | None:
    if raw is None or raw == b"null":
        return None
    try:
        return Support(readable_text(raw))
    except ValueError:
        return Support.FORBIDDEN


def _has(data: bytes | None, *path: str) -> bool:
    """Whether there is an object at this path of member names."""
    for name in path:
        spans = readable_members(data)
        data = take(data, spans.get(name)) if data is not None else None
    return data is not None and data.startswith(b"{")


def _object(raw: bytes | None) -> bytes:
    """What is no object holds nothing that would have to stay."""
    return raw if raw is not None and raw.startswith(b"{") else b"{}"
