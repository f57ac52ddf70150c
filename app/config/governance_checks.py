"""Checks of pins, of rate limits, and of the way in which tools are shown."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from ...core.governance.canonical import PINNED
from ...core.governance.tool_names import NAME
from ..base.problem import Problem
from .governance_settings import RateLimit
from .settings import Server, Settings, ToolFilter
from .value_checks import check_path

MEMBERS = tuple(dict.fromkeys(member for members in PINNED.values() for member in members))


def check_pins(settings: Settings, is_sound: Callable[[str], bool]) -> Iterator[Problem]:
    if not is_sound("pins"):
        return
    yield from check_path("pins.file", settings.pins.file)
    ids = [server.id for server in settings.servers or () if server]
    for i, entry in enumerate(settings.pins.ignore):
        yield from _ignored(f"pins.ignore[{i}]", entry, ids)


def check_shown_tools(key: str, tools: ToolFilter) -> Iterator[Problem]:
    """Checks the overrides of one server."""
    seen: dict[str, str] = {}
    for tool, override in (tools.overrides or {}).items():
        at = f"{key}.overrides.{tool}"
        if not tool.strip():
            yield Problem(at, "the name of a tool, whole")
        if override is None or override.rename is None:  # None if it could not be read
            continue
        if re.fullmatch(NAME, override.rename) is None:
            yield Problem(f"{at}.rename", "1 to 128 letters, digits, dots, dashes and underscores")
        if override.rename in seen:
            yield Problem(f"{at}.rename", f"a name of its own ({seen[override.rename]} has this one)")
        seen.setdefault(override.rename, tool)


def check_rate_limits(key: str, limits: Sequence[RateLimit]) -> Iterator[Problem]:
    """Checks the rate limits of one server."""
    for i, limit in enumerate(limits):
        if not limit.tools or not all(tool.strip() for tool in limit.tools):
            yield Problem(f"{key}[{i}].tools", "names of tools, or patterns such as get_*")


def shows_otherwise(server: Server) -> bool:
    """True if tools are shown in another way than the server does."""
    return bool(server.tools.overrides) or server.tools.descriptions != "keep"


def _ignored(key: str, entry: str, ids: Sequence[str]) -> Iterator[Problem]:
    id, slash, member = entry.rpartition("/")
    if member not in MEMBERS:
        yield Problem(key, f"one of {', '.join(MEMBERS)}, or ID/ and one of them")
    elif slash and id not in ids:
        yield Problem(key, f"the id of a server before the slash: {', '.join(ids)}")
