"""What each protocol revision can do: a table of features. Nothing outside this file compares revision strings."""

from __future__ import annotations

import enum
from typing import Final

import msgspec


class Era(enum.Enum):
    """The two ways to talk."""

    HANDSHAKE = "handshake"  # initialize, then a session
    STATELESS = "stateless"  # each request says all


class Features(msgspec.Struct, frozen=True, kw_only=True):
    """One revision's abilities, as far as a decision depends on them."""

    revision: str
    sessions: bool = True
    """Handshake with `initialize`; `Mcp-Session-Id` on Streamable HTTP."""
    batching: bool = False
    """JSON-RPC batches may be received (2025-03-26 basic, "Batching")."""
    version_header: bool = False
    """`MCP-Protocol-Version` accompanies requests (2025-06-18 basic/transports, "Protocol Version Header")."""
    resource_links: bool = False
    """Tool results may hold `resource_link` blocks (2025-06-18 server/tools)."""
    elicitation: bool = False
    """The server may ask the user by a form (2025-06-18 client/elicitation)."""
    url_elicitation: bool = False
    """… or by a page to visit, named by an `elicitationId` as long as there are sessions (2025-11-25)."""
    rich_forms: bool = False
    """Forms have titled and multiple choices, and defaults everywhere (2025-11-25 client/elicitation)."""
    audio: bool = False
    """Content may be audio (2025-03-26 server/tools)."""
    structured: bool = False
    """Results have `structuredContent`, an object, and tools an `outputSchema` for it (2025-06-18 server/tools)."""
    any_structure: bool = False
    """… which may be any value, and any schema (2026-07-28 server/tools)."""
    completions: bool = False
    """There is a capability for completion, and not only the method (2025-03-26 server/utilities/completion)."""
    sampling_tools: bool = False
    """Sampling may have tools, and messages with several blocks (2025-11-25 client/sampling)."""
    tasks: bool = False
    """Requests may be run as tasks by a `task` member of their params (2025-11-25 basic/utilities/tasks)."""
    event_ids: bool = False
    """Event streams can be resumed by event id (2025-03-26 basic/transports, "Resumability and Redelivery")."""
    priming: bool = False
    """A stream may begin with an event that has an id and no data, and be closed to be polled (2025-11-25)."""


LEGACY: Final[dict[str, Features]] = {
    features.revision: features
    for features in (
        Features(revision="2024-11-05", batching=True),
        Features(revision="2025-03-26", batching=True, audio=True, completions=True, event_ids=True),
        Features(
            revision="2025-06-18",
            version_header=True,
            resource_links=True,
            elicitation=True,
            audio=True,
            structured=True,
            completions=True,
            event_ids=True,
        ),
        Features(
            revision="2025-11-25",
            version_header=True,
            resource_links=True,
            elicitation=True,
            url_elicitation=True,
            rich_forms=True,
            audio=True,
            structured=True,
            completions=True,
            sampling_tools=True,
            tasks=True,
            event_ids=True,
            priming=True,
        ),
    )
}
"""Revisions with a handshake, oldest first."""

MODERN: Final[dict[str, Features]] = {
    features.revision: features
    for features in (
        Features(
            revision="2026-07-28",
            sessions=False,
            version_header=True,
            resource_links=True,
            elicitation=True,
            url_elicitation=True,
            rich_forms=True,
            audio=True,
            structured=True,
            any_structure=True,
            completions=True,
            sampling_tools=True,
        ),
    )
}
"""Revisions without a handshake, oldest first: each request says what it needs."""

LATEST_LEGACY: Final = "2025-11-25"

LATEST_MODERN: Final = "2026-07-28"

DEFAULT_HTTP_REVISION: Final = "2025-03-26"
"""What a client speaks that sends no version header (2025-06-18 basic/transports)."""


def features_of(revision: str | None) -> Features:
    """The features of a revision; for dates nobody here has heard of, those of the newest older one under its name."""
    if revision is None:
        return LEGACY[DEFAULT_HTTP_REVISION]
    known = LEGACY.get(revision) or MODERN.get(revision)
    if known is not None:
        return known
    older = [features for name, features in LEGACY.items() if name <= revision]
    return msgspec.structs.replace(older[-1] if older else LEGACY["2024-11-05"], revision=revision)


def is_known_legacy(revision: str) -> bool:
    return revision in LEGACY


def is_known_modern(revision: str) -> bool:
    return revision in MODERN


def is_older(revision: str, than: str) -> bool:
    """Whether a revision came before another; they are named by their dates."""
    return revision < than
