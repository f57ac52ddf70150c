"""Surveys a client before it is tested: plays a correct server in each revision, and notes what the client sends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from ....core.base.revisions import is_known_modern
from ....core.oracle.methods import TASKS_EXTENSION
from ....core.oracle.observations import Opened, Role, Said, Transport, Verb
from ...base.errors import Failed
from .behaviour import Behaviour
from .simulated_tasks import OFFERED
from .steps import META, REVISIONS, Json, decoded
from .survey import Played

METHODS_MAX: Final = 50
"""Methods kept of one client; the specification has fewer."""
TOOLS_MAX: Final = 10
HAVING: Final = {Transport.PIPE: REVISIONS, Transport.EVENTS: REVISIONS[:-1], Transport.HTTP: REVISIONS[1:]}
"""The revisions of each transport: Streamable HTTP exists since 2025-03-26, HTTP+SSE in the handshake era only."""


class ClientSurvey(msgspec.Struct, frozen=True):
    """The activity of a client in one revision that it speaks.

    Attributes:
        methods: the methods of its requests and notifications, each once, in order.
        requests: the methods of its requests.
        capabilities: the capabilities that it declares.
        tools: names of tools that it calls.
        has_stream: true if it opens a stream by GET.
        has_tasks: true if it asks for tasks, or declares that it accepts them.
    """

    revision: str
    transport: Transport
    methods: tuple[str, ...] = ()
    requests: tuple[str, ...] = ()
    capabilities: Json = {}
    tools: tuple[str, ...] = ()
    has_stream: bool = False
    has_tasks: bool = False


def survey_client(
    play: Callable[[Behaviour], Played], told: Callable[[], str], transport: Transport, *, only: str | None = None
) -> list[ClientSurvey]:
    """Returns a survey for each revision that the client speaks, or for `only`; the oldest first.

    Args:
        told: returns what else is known of the client, for error messages.

    Raises:
        Failed: the client sends nothing to any server, or goes on with none.
    """
    found: list[ClientSurvey] = []
    has_spoken = False
    for revision in HAVING[transport]:
        if only not in (None, revision):
            continue
        played = play(Behaviour(revision, tasks=1 if revision in OFFERED else None))
        messages = _messages_of(played)
        has_spoken |= bool(messages)
        seen = _survey(revision, messages, transport, any(_is_get(each) for _, each in played.seen))
        found += [] if seen is None else [seen]
    if not has_spoken:
        raise Failed(f"the client says nothing to the server; {told()}")
    if not found:
        raise Failed(f"the client goes on with none of {only or ', '.join(HAVING[transport])}; {told()}")
    return found


def _messages_of(played: Played) -> list[Json]:
    return [
        message
        for _, seen in played.seen
        if isinstance(seen, Said) and seen.sender is Role.CLIENT
        for message in decoded(seen.message)
        if isinstance(message.get("method"), str)
    ]


def _is_get(seen: object) -> bool:
    return isinstance(seen, Opened) and seen.verb is Verb.GET


def _survey(revision: str, messages: list[Json], transport: Transport, has_stream: bool) -> ClientSurvey | None:
    """Returns the survey of one revision; None if the client does not go on with it."""
    is_stateless = is_known_modern(revision)
    matching = [each for each in messages if (_meta(each).get(META + "protocolVersion") == revision) is is_stateless]
    methods = tuple(dict.fromkeys(str(each["method"]) for each in matching))[:METHODS_MAX]
    if not set(methods) - {"initialize", "server/discover"}:
        return None
    hello = next((_params(each) for each in matching if each["method"] == "initialize"), {})
    declared: Any = _meta(matching[-1]).get(META + "clientCapabilities") if is_stateless else hello.get("capabilities")
    called = [_params(each).get("name") for each in matching if each["method"] == "tools/call"]
    return ClientSurvey(
        revision,
        transport,
        methods,
        tuple(dict.fromkeys(str(each["method"]) for each in matching if "id" in each))[:METHODS_MAX],
        declared if isinstance(declared, dict) else {},
        tuple(dict.fromkeys(name for name in called if isinstance(name, str)))[:TOOLS_MAX],
        has_stream,
        _has_tasks(matching, declared),
    )


def _has_tasks(messages: list[Json], declared: object) -> bool:
    extensions = declared.get("extensions") if isinstance(declared, dict) else None
    return any("task" in _params(each) for each in messages) or (
        isinstance(extensions, dict) and TASKS_EXTENSION in extensions
    )


def _params(message: Json) -> Json:
    params = message.get("params")
    return params if isinstance(params, dict) else {}


def _meta(message: Json) -> Json:
    meta = _params(message).get("_meta")
    return meta if isinstance(meta, dict) else {}
