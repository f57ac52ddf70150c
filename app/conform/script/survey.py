"""Surveys a server before it is tested: the revisions that it speaks, its tools, prompts and resources."""

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
"""Tools, prompts and resources, of each kind, that are tried: enough for nearly every server."""
SHOWN_MAX, SHOWN_MAX_CHARS = 3, 300
"""Messages, and characters of each, that are shown of a server that cannot be tested."""


class Played(msgspec.Struct):
    """The observations of one conversation.

    Attributes:
        seen: each observation with the number of its session or connection, in order.
        is_cut: there was more than is kept, so missing messages prove nothing.
        vain: test of a client: sessions in which its response never came within the timeout.
        is_hung: test of a client: it still ran, silent, though nothing was owed to it.
    """

    seen: list[tuple[int, AnyObservation]]
    is_cut: bool = False
    vain: frozenset[int] = frozenset()
    is_hung: bool = False


Play = Callable[[Conversation], Played]


def has_spoken(played: Played, role: Role) -> bool:
    """True if that side sent anything at all."""
    return any(
        seen.sender is role if isinstance(seen, Said) else isinstance(seen, Head) and role is Role.SERVER
        for _, seen in played.seen
    )


class Tool(msgspec.Struct, frozen=True):
    name: str
    schema: Json
    is_read_only: bool


class Survey(msgspec.Struct, frozen=True):
    """The features of a server in one revision that it speaks."""

    revision: str
    is_http: bool
    has_session: bool = False
    capabilities: Json = {}
    tools: tuple[Tool, ...] = ()
    prompts: tuple[Json, ...] = ()
    resources: tuple[str, ...] = ()


def survey(play: Play, transport: Transport, *, is_safe: bool, only: str | None = None) -> list[Survey]:
    """Returns a survey for each revision that the server speaks, or for `only`; the oldest first.

    Args:
        is_safe: leave out tools whose annotations do not say `readOnlyHint: true`.

    Raises:
        Failed: the server speaks none of them. The message says how it answers.
    """
    revisions = [each for each in (LEGACY if transport is Transport.EVENTS else REVISIONS) if only in (None, each)]
    is_http = transport is Transport.HTTP
    first_played: dict[str, Played] = {}

    def play_and_keep(conversation: Conversation) -> Played:
        played = play(conversation)
        first_played.setdefault(conversation.revision, played)
        return played

    found = [_survey(play_and_keep, revision, is_http, is_safe) for revision in revisions]
    if any(found):
        return [each for each in found if each is not None]
    latest = LATEST_LEGACY if LATEST_LEGACY in first_played else next(iter(first_played), "")
    answer = _described(first_played[latest]) if first_played else "nothing"
    raise Failed(f"the server speaks none of {only or ', '.join(revisions)}; asked for {latest} it answers: {answer}")


def _described(played: Played) -> str:
    """Describes the messages of a server, for people."""
    words: list[str] = []
    for _, seen in played.seen:
        if isinstance(seen, Head):
            words.append(f"HTTP status {seen.status} with {seen.content_type or 'no content type'}")
        elif isinstance(seen, Said) and seen.sender is Role.SERVER:
            text = seen.message.decode(errors="replace")
            words.append(text if len(text) <= SHOWN_MAX_CHARS else f"{text[:SHOWN_MAX_CHARS]}…")
    return output.plain(" | ".join(words[:SHOWN_MAX])) or "nothing, as long as it was waited for"


def _survey(play: Play, revision: str, is_http: bool, is_safe: bool) -> Survey | None:
    lists = [request(revision, name, f"{name}/list") for name in ("tools", "prompts", "resources")]
    if is_known_modern(revision):
        opening: tuple[Step, ...] = (request(revision, "hello-0", "server/discover"),)
        introduction = _results(play(Conversation(revision, opening)).seen).get("hello-0", {})
        if revision not in _listed(introduction, "supportedVersions", str):
            return None
    else:
        opening = handshake(revision)[:1]
        introduction = _results(play(Conversation(revision, opening)).seen).get("hello-0", {})
        if introduction.get("protocolVersion") != revision:
            return None
        opening = handshake(revision)
    capabilities = introduction.get("capabilities")
    capabilities = capabilities if isinstance(capabilities, dict) else {}
    asked = [step for step, name in zip(lists, ("tools", "prompts", "resources"), strict=True) if name in capabilities]
    played = play(Conversation(revision, (*opening, *asked)))
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
    """Returns the results that came, by request id."""
    found: dict[str, Json] = {}
    for _, each in seen:
        if isinstance(each, Said) and each.sender is Role.SERVER:
            for message in decoded(each.message):
                if isinstance(message.get("result"), dict):
                    found[str(message.get("id"))] = message["result"]
    return found


def _listed(result: Json, name: str, kind: type) -> list[Any]:
    """Returns the items of this type in a list of a result; empty if there is no such list."""
    found = result.get(name)
    return [each for each in found if isinstance(each, kind)] if isinstance(found, list) else []


def _tool(answer: Json) -> Tool:
    schema, hints = answer.get("inputSchema"), answer.get("annotations")
    return Tool(
        str(answer["name"]),
        schema if isinstance(schema, dict) else {},
        isinstance(hints, dict) and hints.get("readOnlyHint") is True,
    )


def can(survey: Survey, capability: str) -> bool:
    return declares(survey.capabilities, capability)
