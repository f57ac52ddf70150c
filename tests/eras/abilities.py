"""The features of each protocol revision, as one table for the scripted peers that uses no part of the product."""

from __future__ import annotations

from typing import Final

K: Final = "io.modelcontextprotocol/"

ADDED: Final[dict[str, tuple[str, ...]]] = {
    "2024-11-05": ("handshake", "sampling", "roots"),
    "2025-03-26": ("audio", "completions", "progress texts"),
    "2025-06-18": ("structured", "links", "form", "version header"),
    "2025-11-25": ("url", "choices"),
    "2026-07-28": ("any structure",),
}
"""Features that each revision has and the one before had not."""

TAKEN_AWAY: Final[dict[str, tuple[str, ...]]] = {"2026-07-28": ("handshake",)}

REVISIONS: Final = tuple(ADDED)
"""Oldest first."""


def _abilities() -> dict[str, frozenset[str]]:
    found: dict[str, frozenset[str]] = {}
    known: frozenset[str] = frozenset()
    for revision, added in ADDED.items():
        known = (known | set(added)) - set(TAKEN_AWAY.get(revision, ()))
        found[revision] = known
    return found


ABILITIES: Final = _abilities()

QUESTIONS: Final[dict[str, dict[str, object]]] = {
    "sampling": {"sampling": {}},
    "roots": {"roots": {}},
    "form": {"elicitation": {"form": {}}},
    "url": {"elicitation": {"url": {}}},
}
"""The kinds of server requests, and the capability with which a client of the newest revision declares each."""


def client_capabilities(revision: str) -> dict[str, object]:
    """Returns all capabilities that a client of the revision can declare."""
    can = ABILITIES[revision]
    declared: dict[str, object] = {"sampling": {}, "roots": {"listChanged": True} if "handshake" in can else {}}
    if "form" in can:
        declared["elicitation"] = {"form": {}, "url": {}} if "url" in can else {}
    return declared


def askable(declared: dict[str, object]) -> frozenset[str]:
    """Returns the kinds of requests that a client with these capabilities can be sent."""
    found = {name for name in ("sampling", "roots") if name in declared}
    elicitation = declared.get("elicitation")
    if isinstance(elicitation, dict):
        found |= {name for name in ("form", "url") if name in elicitation} or {"form"}
    return frozenset(found)
