"""Reads configurations of rusted-tools: `[http]`, `[logging]`, `[mcp]` and a list of `[[endpoints]]`.

The settings of servers mean the same here: address, command, visible tools, and one process shared by all clients.
Keys without a meaning here are reported; nothing else is guessed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

from ..base.problem import Problem
from .settings import Core, Filter, Server, Settings, ToolFilter, Upstream
from .value_types import Port, Texts

REQUEST_TIMEOUT_MIN_S: Final = 5


class Http(Struct, frozen=True, forbid_unknown_fields=True):
    host: Annotated[str, Meta(min_length=1)] = "127.0.0.1"
    port: Port = 3000


class Logging(Struct, frozen=True, forbid_unknown_fields=True):
    level: Literal["trace", "debug", "info", "warn", "error"] = "info"


class Mcp(Struct, frozen=True, forbid_unknown_fields=True):
    request_timeout_secs: Annotated[int, Meta(ge=REQUEST_TIMEOUT_MIN_S)] | None = None


class Local(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="local"):
    name: str
    command: str
    args: Texts = ()
    env: dict[str, str] = {}
    tools: Filter = Filter()


class Remote(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="remote"):
    name: str
    url: str
    tools: Filter = Filter()


class EndpointsFile(Struct, frozen=True, forbid_unknown_fields=True):
    http: Http = Http()
    logging: Logging = Logging()
    mcp: Mcp = Mcp()
    endpoints: tuple[Local | Remote, ...] = ()


UNUSED: Final = {
    "format": "log lines are text, or JSON with --log-format json",
    "restart_delay_ms": "a restart waits until the process is gone, and no longer",
    "auto_start": "a server is started when it is needed, and asked once at the start",
    "restart_on_failure": "a server that failed is started again when it is needed",
    "path": "the path is the name",
}
"""Keys without a meaning here, and the behaviour in their place."""
IGNORED: Final[dict[type[Struct], tuple[str, ...]]] = {
    Logging: ("format",),
    Mcp: ("restart_delay_ms",),
    Local: ("auto_start", "restart_on_failure", "path"),
    Remote: ("auto_start", "restart_on_failure", "path"),
}

_LEVELS: Final = {"trace": "debug", "warn": "warning"}

# Our keys, as patterns, and the keys of such a file that they come from.
_THEIRS: Final = (
    (re.compile(r"core\.log_level"), r"logging.level"),
    (re.compile(r"core\.(host|port)"), r"http.\1"),
    (re.compile(r"servers\[(\d+)\]\.id"), r"endpoints[\1].name"),
    (re.compile(r"servers\[(\d+)\]\.upstream\.command(\[0\])?(?!\[)"), r"endpoints[\1].command"),
    (re.compile(r"servers\[(\d+)\]\.upstream\.command\[\d+\]"), r"endpoints[\1].args"),
    (re.compile(r"servers\[(\d+)\](\.upstream)?"), r"endpoints[\1]"),
    (re.compile(r"^servers$"), r"endpoints"),
)


def is_endpoints_file(document: object) -> bool:
    """True if a document is a configuration of rusted-tools: it has a key that ours do not have."""
    return isinstance(document, dict) and not document.keys().isdisjoint(("http", "endpoints"))


def to_settings(file: EndpointsFile) -> Settings:
    """Converts such a file to our settings."""
    level = _LEVELS.get(file.logging.level, file.logging.level)
    return Settings(
        core=Core(host=file.http.host, port=file.http.port, log_level=level),  # type: ignore[arg-type]
        servers=tuple(_server(endpoint, file.mcp.request_timeout_secs) for endpoint in file.endpoints),
    )


def _server(endpoint: Local | Remote, timeout_s: int | None) -> Server:
    if isinstance(endpoint, Remote):
        upstream = Upstream(url=endpoint.url)
    else:
        upstream = Upstream(command=(endpoint.command, *endpoint.args), env=endpoint.env)
    return Server(
        id=endpoint.name,
        upstream=upstream,
        share="concurrent" if isinstance(endpoint, Local) else "none",
        tools=ToolFilter(
            include=endpoint.tools.include,
            exclude=endpoint.tools.exclude,
            exclude_regexes=endpoint.tools.exclude_regexes,
        ),
        call_timeout_seconds=timeout_s,
    )


def to_their_keys(problem: Problem) -> Problem:
    """Converts a problem of the settings back to the keys of the file."""
    return Problem(*map(_renamed, problem))


def _renamed(text: str) -> str:
    for ours, theirs in _THEIRS:
        text = ours.sub(theirs, text)
    return text


def unused(keys: Sequence[str]) -> list[str]:
    """Returns a line for each name of a key that was ignored, with the first place where it stands."""
    lines = []
    for name, instead in UNUSED.items():
        found = [key for key in keys if key.rpartition(".")[2] == name]
        if found:
            more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
            lines.append(f"{found[0]}{more} is not used: {instead}")
    return lines
