"""Support for tasks: declared by servers and clients in their capabilities, and by each tool.

In 2025-11-25 a server declares `tasks`, part by part, and each tool declares in `execution.taskSupport` whether it may,
must or must not be called as a task. The extension that replaced this has one capability for all of it, and none for a
tool.

Source: 2025-11-25 basic/utilities/tasks, "Capabilities" and "Tool-Level Negotiation"; the extension, "Capability
Negotiation".
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from ..jsonrpc.append import readable_elements, readable_members, readable_text
from ..jsonrpc.object_editor import ObjectEditor, each
from ..jsonrpc.splice import take
from .tasks import TASKS

NEEDED: Final[dict[str, object]] = {"requiredCapabilities": {"extensions": {TASKS: {}}}}
"""The error data for a client that has not declared the tasks extension."""
UNDECLARED: Final = "Missing required client capability: tasks are an extension, declare it with each request"
_DECLARED: Final = b'{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}'


class TaskAbilities(NamedTuple):
    """The requests about tasks that a server supports.

    Attributes:
        calls: the server may answer a tool call with a task.
        cancels: the server knows `tasks/cancel`.
        lists: the server knows `tasks/list`.
    """

    calls: bool
    cancels: bool
    lists: bool


class Support(enum.Enum):
    """A tool's declaration about calls as a task."""

    REQUIRED = "required"
    OPTIONAL = "optional"
    FORBIDDEN = "forbidden"


# --- Capabilities ---------------------------------------------------------------------------------------------------


def server_abilities(capabilities: bytes | None, *, is_stateless: bool) -> TaskAbilities:
    """Returns what a server itself declared about tasks. Unreadable capabilities declare nothing."""
    if is_stateless:
        has_extension = declares(capabilities)
        return TaskAbilities(has_extension, has_extension, False)
    return TaskAbilities(
        _has(capabilities, "tasks", "requests", "tools", "call"),
        _has(capabilities, "tasks", "cancel"),
        _has(capabilities, "tasks", "list"),
    )


def declares(capabilities: bytes | None) -> bool:
    """True if stateless-era capabilities name the extension. Unreadable capabilities declare nothing."""
    return _has(capabilities, "extensions", TASKS)


def declare_legacy(capabilities: bytes) -> bytes:
    """Returns a server's capabilities with everything that `tasks` can declare, in place of any other `tasks`.

    Raises:
        RemoteProtocolError: the capabilities are no object, or have a key twice.
    """
    draft = ObjectEditor(capabilities)
    draft.set("tasks", _DECLARED)
    return draft.json()


def declare_modern(capabilities: bytes) -> bytes:
    """Returns capabilities, of a server or of a client, with the extension; it has no settings.

    Raises:
        RemoteProtocolError: the capabilities are no object, or they or their extensions have a key twice.
    """
    draft = ObjectEditor(capabilities)
    extensions = ObjectEditor(_object(draft.get("extensions")))
    extensions.set(TASKS, b"{}")
    draft.set("extensions", extensions.json())
    return draft.json()


# --- Tools ----------------------------------------------------------------------------------------------------------


def read_support(result: bytes) -> dict[str, Support]:
    """Returns the declarations of the tools in a `tools/list` result, by name. An unknown value counts as forbidden.

    A tool that cannot be read is left out; of two with one name, the first counts.
    """
    found: dict[str, Support] = {}
    for tool in readable_elements(take(result, readable_members(result).get("tools"))):
        spans = readable_members(tool)
        name, execution = readable_text(take(tool, spans.get("name"))), take(tool, spans.get("execution"))
        if name is not None and execution is not None:
            support = _support(take(execution, readable_members(execution).get("taskSupport")))
            if support is not None:
                found.setdefault(name, support)
    return found


def show_support(result: bytes, decide: Callable[[str, Support | None], Support | None]) -> bytes:
    """Returns a `tools/list` result whose tools declare what `decide` returns for their name and old declaration.

    `decide` returns None for no declaration. All else stays byte for byte, and so does a tool without a name, which
    nobody can call.

    Raises:
        RemoteProtocolError: the result is no object, or it, a tool or its `execution` has a key twice.
    """

    def change(tool: bytes) -> bytes:
        return _shown(tool, decide) if tool.startswith(b"{") else tool

    draft = ObjectEditor(result)
    tools = draft.get("tools")
    if tools is not None:
        draft.set("tools", each(tools, change))
    return draft.json()


def _shown(tool: bytes, decide: Callable[[str, Support | None], Support | None]) -> bytes:
    draft = ObjectEditor(tool)
    name = readable_text(draft.get("name"))
    if name is None:
        return tool
    execution = ObjectEditor(_object(draft.get("execution")))
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


# --- Helpers --------------------------------------------------------------------------------------------------------


def _support(raw: bytes | None) -> Support | None:
    if raw is None or raw == b"null":
        return None
    try:
        return Support(readable_text(raw))
    except ValueError:
        return Support.FORBIDDEN


def _has(data: bytes | None, *path: str) -> bool:
    """True if there is an object at this path of member names."""
    for name in path:
        spans = readable_members(data)
        data = take(data, spans.get(name)) if data is not None else None
    return data is not None and data.startswith(b"{")


def _object(raw: bytes | None) -> bytes:
    """Returns the JSON if it is an object, or else an empty object: any other value holds nothing that must stay."""
    return raw if raw is not None and raw.startswith(b"{") else b"{}"
