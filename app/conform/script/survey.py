"""What a server says of itself, before it is tested: the revisions it can be brought to, and what there is to ask."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from ....core.base.revisions import LATEST_LEGACY, LEGACY, is_known_modern
from ....core.oracle.methods import declares
from ....core.oracle.observations import AnyObservation, Head, Role, Said, Transport
from ...base import output
from ...base.errors import Failed
from .steps import REVISIONS, Conversation, Json, Step, decoded, handshake, request

NAMES_MAX = 50
"""Tools, prompts and resources, each, that are tried: enough for nearly every server, and a bound for the rest."""
TOLD_MAX, TOLD_MAX_CHARS = 3, 300
"""Of what a server says that cannot be tested."""


class Played(msgspec.Struct):
    """What was seen while a conversation was played.

    Attributes:
        seen: each observation with its wire, in the order they happened.
        is_cut: there was more than is kept, so nothing can be said of what is missing.
        vain: of a client: wires on which an answer of it was waited for in vain.
        is_hung: of a client: it was still there, silent, and nobody owed it anything.
    """

    seen: list[tuple[int, AnyObservation]]
    is_cut: bool = False
    vain: frozenset[int] = frozenset()
    is_hung: bool = False


Play = Callable[[Conversation], Played]


def has_spoken(played: Played, role: Role) -> bool:
    return any(
        seen.sender is role if isinstance(seen, Said) else isinstance(seen, Head) and role is Role.SERVER
        for _, seen in played.seen
    )


class Tool(msgspec.Struct, frozen=True):
    name: str
    schema: Json
    is_read_only: bool


class Survey(msgspec.Struct, frozen=True):
    """Of one revision that the server speaks."""

    revision: str
    is_http: bool
    has_session: bool = False
    capabilities: Json = {}
    tools: tuple[Tool, ...] = ()
    prompts: tuple[Json, ...] = ()
    resources: tuple[str, ...] = ()


def survey(play: Play, transport: Transport, *, is_safe: bool, only: str | None = None) -> list[Survey]:
    """One for each revision that the server can be brought to, or for `only`; the oldest first.

    Args:
        is_safe: leave out tools that do not say that they only read.

    Raises:
        Failed: it can be brought to none. The message says what it answers instead.
    """
    revisions = [each for each in (LEGACY if transport is Transport.EVENTS else REVISIONS) if only in (None, each)]
    is_http = transport is Transport.HTTP
    greeted: dict[str, Played] = {}

    def ask(conversation: Conversation) -> Played:
        played = play(conversation)
        greeted.setdefault(conversation.revision, played)
        return played

    found = [_ask(ask, revision, is_http, is_safe) for revision in revisions]
    if any(found):
        return [each for each in found if each is not None]
    latest = LATEST_LEGACY if LATEST_LEGACY in greeted else next(iter(greeted), "")
    told = _told(greeted[latest]) if greeted else "nothing"
    raise Failed(f"the server speaks none of {only or ', '.join(revisions)}; asked for {latest} it answers: {told}")


def _told(played: Played) -> str:
    """What a server says to a greeting, for people."""
    words: list[str] = []
    for _, seen in played.seen:
        if isinstance(seen, Head):
            words.append(f"HTTP status {seen.status} with {seen.content_type or 'no content type'}")
        elif isinstance(seen, Said) and seen.sender is Role.SERVER:
            text = seen.message.decode(errors="replace")
            words.append(text if len(text) <= TOLD_MAX_CHARS else f"{text[:TOLD_MAX_CHARS]}…")
    return output.plain(" | ".join(words[:TOLD_MAX])) or "nothing, as long as it was waited for"


def _ask(play: Play, revision: str, is_http: bool, is_safe: bool) -> Survey | None:
    lists = [request(revision, name, f"{name}/list") for name in ("tools", "prompts", "resources")]
    if is_known_modern(revision):
        begin: tuple[Step, ...] = (request(revision, "hello-0", "server/discover"),)
        greeting = _results(play(Conversation(revision, begin)).seen).get("hello-0", {})
        if revision not in _listed(greeting, "supportedVersions", str):
            return None
    else:
        begin = handshake(revision)[:1]
        greeting = _results(play(Conversation(revision, begin)).seen).get("hello-0", {})
        if greeting.get("protocolVersion") != revision:
            return None
        begin = handshake(revision)
    capabilities = greeting.get("capabilities")
    capabilities = capabilities if isinstance(capabilities, dict) else {}
    asked = [step for step, name in zip(lists, ("tools", "prompts", "resources"), strict=True) if name in capabilities]
    played = play(Conversation(revision, (*begin, *asked)))
    results = _results(played.seen)
    tools = tuple(_tool(each) for each in _listed(results.get("tools", {}), "tools", dict) if "name" in each)
    return Survey(
        revision,
        is_http,
        any(getattr(seen, "session", None) for _, seen in played.seen),
        capabilities,
        tuple(tool for tool in tools if tool.is_read_only or not is_safe)[:NAMES_MAX],
        tuple(each for each in _listed(results.get("prompts", {}), "prompts", dict) if "name" in each)[:NAMES_MAX],
        tuple(str(each.get("uri")) for each in _listed(results.get("resources", {}), "resources", dict))[:NAMES_MAX],
    )


def _results(seen: Sequence[tuple[int, AnyObservation]]) -> dict[str, Json]:
    """The results that came, by their ids."""
    found: dict[str, Json] = {}
    for _, each in seen:
        if isinstance(each, Said) and each.sender is Role.SERVER:
            for message in decoded(each.message):
                if isinstance(message.get("result"), dict):
                    found[str(message.get("id"))] = message["result"]
    return found


def _listed(result: Json, name: str, kind: type) -> list[Any]:
    """A list of a result, without what cannot be in it."""
    found = result.get(name)
    return [each for each in found if isinstance(each, kind)] if isinstance(found, list) else []


def _tool(told: Json) -> Tool:
    schema, hints = told.get("inputSchema"), told.get("annotations")
    return Tool(
        str(told["name"]),
        schema if isinstance(schema, dict) else {},
        isinstance(hints, dict) and hints.get("readOnlyHint") is True,
    )


def can(survey: Survey, capability: str) -> bool:
    return declares(survey.capabilities, capability)
