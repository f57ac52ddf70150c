"""The features of each protocol revision, as a table. No other file compares revision strings."""

from __future__ import annotations

import enum
from typing import Final

import msgspec


class Era(enum.Enum):
    """The two ways to use the protocol."""

    HANDSHAKE = "handshake"  # `initialize`, then a session; revisions up to 2025-11-25
    STATELESS = "stateless"  # no session: each request carries all that the server must know; 2026-07-28


class Features(msgspec.Struct, frozen=True, kw_only=True):
    """The features of one revision, as far as a decision depends on them."""

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
    """The server may ask the user to fill a form (2025-06-18 client/elicitation)."""
    url_elicitation: bool = False
    """The server may ask the user to visit a page, named by an `elicitationId` as long as there are sessions
    (2025-11-25)."""
    rich_forms: bool = False
    """Forms have titled and multiple choices, and defaults everywhere (2025-11-25 client/elicitation)."""
    audio: bool = False
    """Content may be audio (2025-03-26 server/tools)."""
    structured: bool = False
    """Results have `structuredContent`, an object, and tools an `outputSchema` for it (2025-06-18 server/tools)."""
    any_structure: bool = False
    """`structuredContent` may be any value, and `outputSchema` any schema (2026-07-28 server/tools)."""
    completions: bool = False
    """Completion is a declared capability, and not only a method (2025-03-26 server/utilities/completion)."""
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
"""Revisions without a handshake, oldest first."""

LATEST_LEGACY: Final = "2025-11-25"
"""The newest revision with a handshake."""

LATEST_MODERN: Final = "2026-07-28"
"""The newest revision without a handshake."""

DEFAULT_HTTP_REVISION: Final = "2025-03-26"
"""The revision of a client that sends no version header (2025-06-18 basic/transports)."""


def features_of(revision: str | None) -> Features:
    """Returns the features of a revision. An unknown date has those of the newest known revision before it, under its
    own name; None stands for `DEFAULT_HTTP_REVISION`."""
    if revision is None:
        return LEGACY[DEFAULT_HTTP_REVISION]
    known = LEGACY.get(revision) or MODERN.get(revision)
    if known is not None:
        return known
    older = [features for name, features in LEGACY.items() if name <= revision]
    return msgspec.structs.replace(older[-1] if older else LEGACY["2024-11-05"], revision=revision)


def is_known_legacy(revision: str) -> bool:
    """True if the revision is a known one with a handshake."""
    return revision in LEGACY


def is_known_modern(revision: str) -> bool:
    """True if the revision is a known one without a handshake."""
    return revision in MODERN


def is_older(revision: str, than: str) -> bool:
    """True if `revision` came before `than`. Revisions are named by their dates, which sort as text."""
    return revision < than
