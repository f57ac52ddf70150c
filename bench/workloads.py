"""The workloads: the peers on both sides, the subjects between them, and the options of the load generator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from issuer import NEW_TOKENS
from subjects import Route

HTTP: Final = Route("http", "http")
FROM_STDIO: Final = Route("stdio", "http")
TO_STDIO: Final = Route("http", "stdio")
SSE: Final = Route("http", "sse")
WS: Final = Route("http", "ws")

MODERN: Final = Route("http", "http", "modern", "modern")
TO_LEGACY: Final = Route("http", "http", "legacy", "modern")
TO_MODERN: Final = Route("http", "http", "modern", "legacy")
MODERN_FROM_LEGACY_STDIO: Final = Route("stdio", "http", "legacy", "modern")

OURS: Final = ("isthmus", "isthmus-anyio")
RELAYS: Final = ("isthmus-relay", "isthmus-relay-anyio")
"""The product in front of a transparent server."""
BYTES: Final = ("nginx", "haproxy")
WRAPPERS: Final = ("supergateway", "mcp-proxy-npm", "mcp-proxy-pypi", "translate")
"""Peers that put HTTP in front of a server on stdio."""
FASTMCP_SEVERAL: Final = ("fastmcp-5", "fastmcp-reused-5", "fastmcp-lists", "fastmcp-reused-lists")
SLOW: Final = ("fastmcp", "fastmcp-reused", *FASTMCP_SEVERAL, "mcp-proxy-npm", "mcp-proxy-pypi", "translate")
"""Peers that the short run leaves out: they take seconds to start, and as long as all others together."""
PEERS: Final = ("supergateway", "mcp-hub-5", "mcp-hub-lists", *SLOW)
"""Peers measured in the first round only: their cost differs from ours by far more than the rounds differ."""
BURST: Final = 1000
"""Events of one call: so many that the cost of the call itself is negligible in the cost of an event."""


@dataclass(frozen=True)
class Workload:
    """One row of the report.

    Attributes:
        idle: sessions that hold a stream and do nothing else; fewer if the limit of open files is lower.
        load: options of the load generator.
        calls_max: calls of one measurement; fewer if they take longer than the time for one.
        divisor: the divisor of the CPU time of a call, such as the number of events of a stream.
        is_fresh: each measurement has a process of its own, because memory is the figure.
        is_quick: the short run includes it.
        rounds_max: the bound on rounds, below that of the run if one round takes long.
    """

    name: str
    route: Route
    subjects: tuple[str, ...]
    sessions: int = 16
    idle: int = 0
    load: tuple[str, ...] = ()
    calls_max: int = 20_000
    divisor: int = 1
    is_fresh: bool = False
    is_quick: bool = False
    rounds_max: int = 100


def _options(**numbers: int) -> tuple[str, ...]:
    return tuple(part for name, value in numbers.items() for part in ("--" + name.replace("_", "-"), str(value)))


WORKLOADS: Final = (
    Workload(
        "http_c16",
        HTTP,
        ("direct", *OURS, "isthmus-logged", "floor", "floor-anyio", "floor-h11", *BYTES, "fastmcp-reused", "fastmcp"),
        is_quick=True,
    ),
    Workload("http_auth_c16", HTTP, ("isthmus-served", "isthmus-jwt"), is_quick=True),
    Workload(
        "http_new_token_c16",
        HTTP,
        ("isthmus-served", "isthmus-jwt-turns", "isthmus-new-jwt"),
        calls_max=NEW_TOKENS // 4,
    ),
    Workload(
        "http_profile_c16",
        HTTP,
        (
            "isthmus-served",
            "isthmus-profile-5",
            "isthmus-profile-50",
            "isthmus-profile-500",
            "isthmus-prefix-5",
            "fastmcp-reused-5",
            "fastmcp-5",
        ),
        is_quick=True,
    ),
    Workload(
        "http_profile_list_c16",
        HTTP,
        ("isthmus-lists", "fastmcp-reused-lists", "fastmcp-lists"),
        load=_options(tools=204),
        is_quick=True,
    ),
    Workload("sse_profile_c16", SSE, ("isthmus-prefix-5", "mcp-hub-5"), is_quick=True),
    Workload("sse_profile_list_c16", SSE, ("isthmus-lists", "mcp-hub-lists"), load=_options(tools=204), is_quick=True),
    Workload("http_c1", HTTP, ("direct", *OURS, "floor", *BYTES), sessions=1, is_quick=True),
    Workload("http_c128", HTTP, ("direct", *OURS, "floor", *BYTES), sessions=128),
    Workload("http_sse_c16", HTTP, ("direct", *OURS, "isthmus-sqlite", "floor", *BYTES), load=("--sse",)),
    Workload("from_stdio_c16", FROM_STDIO, (*OURS, "isthmus-shared", "floor", *WRAPPERS, "fastmcp"), is_quick=True),
    Workload("from_stdio_c1", FROM_STDIO, (*OURS, "floor"), sessions=1),
    Workload("to_stdio_c16", TO_STDIO, (*OURS, "floor", "supergateway", "mcp-proxy-pypi", "fastmcp"), is_quick=True),
    Workload("to_stdio_c1", TO_STDIO, (*OURS, "floor"), sessions=1),
    Workload("sse_c16", SSE, OURS, is_quick=True),
    Workload("ws_c16", WS, OURS, is_quick=True),
    Workload("modern_c16", MODERN, ("direct", *OURS, "floor", *BYTES), is_quick=True),
    Workload("modern_to_legacy_c16", TO_LEGACY, OURS, is_quick=True),
    Workload("legacy_to_modern_c16", TO_MODERN, OURS, is_quick=True),
    Workload("modern_to_legacy_stdio_c16", MODERN_FROM_LEGACY_STDIO, OURS),
    Workload(
        "http_100k", HTTP, ("direct", *OURS, "floor", *BYTES), sessions=4, load=_options(size=100_000), is_quick=True
    ),
    Workload("from_stdio_100k", FROM_STDIO, (*OURS, "floor"), sessions=4, load=_options(size=100_000)),
    Workload(
        "http_10m",
        HTTP,
        ("direct", *OURS, "floor", *BYTES),
        sessions=1,
        load=_options(size=10_000_000),
        calls_max=40,
        is_quick=True,
    ),
    Workload(
        "http_sse_10m", HTTP, (*OURS, *BYTES), sessions=1, load=(*_options(size=10_000_000), "--sse"), calls_max=40
    ),
    Workload(
        "from_stdio_10m",
        FROM_STDIO,
        (*OURS, "supergateway", "translate"),
        sessions=1,
        load=_options(size=10_000_000),
        calls_max=40,
    ),
    Workload(
        "http_burst",
        HTTP,
        (*OURS, "floor", *BYTES),
        sessions=4,
        load=_options(events=BURST),
        calls_max=400,
        divisor=BURST,
        is_quick=True,
    ),
    Workload(
        "http_paced",
        HTTP,
        ("direct", *OURS, "floor", *BYTES),
        sessions=4,
        load=_options(events=50, pace_ms=4),
        calls_max=40,
        divisor=50,
    ),
    Workload("relay_c16", HTTP, ("direct", *RELAYS, "isthmus", *BYTES), is_quick=True),
    Workload(
        "relay_paced",
        HTTP,
        ("direct", *RELAYS, *BYTES),
        sessions=4,
        load=_options(events=50, pace_ms=4),
        calls_max=40,
        divisor=50,
    ),
    Workload(
        "from_stdio_burst",
        FROM_STDIO,
        (*OURS, "floor", "supergateway"),
        sessions=4,
        load=_options(events=BURST),
        calls_max=400,
        divisor=BURST,
    ),
    Workload("http_churn", HTTP, (*OURS, *BYTES), sessions=8, load=("--churn",), calls_max=4000, is_quick=True),
    Workload("from_stdio_churn_shared", FROM_STDIO, ("isthmus-shared",), sessions=8, load=("--churn",), calls_max=4000),
    Workload("from_stdio_churn", FROM_STDIO, ("isthmus", *WRAPPERS), sessions=8, load=("--churn",), calls_max=200),
    Workload("http_idle_1k", HTTP, (*OURS, *BYTES), idle=1000, calls_max=12_000, is_fresh=True, rounds_max=1),
    Workload("http_idle_10k", HTTP, ("isthmus", *BYTES), idle=9_984, calls_max=12_000, is_fresh=True, rounds_max=1),
)
