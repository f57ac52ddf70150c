"""What is measured, as data: who is on either side, through whom, and what the load generator is told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from subjects import Route

HTTP: Final = Route("http", "http")
FROM_STDIO: Final = Route("stdio", "http")
TO_STDIO: Final = Route("http", "stdio")
SSE: Final = Route("http", "sse")
WS: Final = Route("http", "ws")

OURS: Final = ("isthmus", "isthmus-anyio")
BYTES: Final = ("nginx", "haproxy")
FLOORS: Final = ("floor",)


@dataclass(frozen=True)
class Workload:
    """One row of the report.

    Attributes:
        load: options of the load generator.
        calls_max: calls of one measurement; fewer where they take longer than the time for one.
        divisor: what one call's figures are divided by: the events of a stream, say.
        is_fresh: whether each measurement has a process of its own: where memory is the figure.
        is_quick: whether the short run has it.
    """

    name: str
    route: Route
    subjects: tuple[str, ...]
    sessions: int = 16
    load: tuple[str, ...] = ()
    calls_max: int = 20_000
    divisor: int = 1
    is_fresh: bool = False
    is_quick: bool = False


WORKLOADS: Final = (
    Workload(
        "http_c16",
        HTTP,
        ("direct", *OURS, "floor", "floor-anyio", "floor-h11", *BYTES, "fastmcp-reused", "fastmcp"),
        is_quick=True,
    ),
    Workload("http_c1", HTTP, ("direct", *OURS, "floor", *BYTES), sessions=1, is_quick=True),
    Workload("http_c128", HTTP, ("direct", *OURS, "floor", *BYTES), sessions=128, is_quick=True),
    Workload(
        "from_stdio_c16",
        FROM_STDIO,
        (*OURS, "floor", "supergateway", "mcp-proxy-npm", "mcp-proxy-pypi", "translate", "fastmcp"),
        is_quick=True,
    ),
    Workload("to_stdio_c16", TO_STDIO, (*OURS, "floor", "supergateway", "mcp-proxy-pypi", "fastmcp"), is_quick=True),
)
