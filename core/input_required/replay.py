"""Suspended calls that were lost in a restart: which of them may be run again, and with which answers.

A suspended call is kept in memory, so a restart of the proxy loses it. Its client retries with the answers all the
same. If running the call twice has the same effect as running it once, the proxy runs it again. Questions that the
server asks again are then answered from the retry, matched by their digest. Any other call ends with an error that
says it was lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ..base.errors import RemoteProtocolError
from ..base.limits import Limits
from ..bridge.request_state import Claims, digest_of_value
from ..jsonrpc import envelope
from ..jsonrpc.splice import elements
from ..state.session import Audience

READS: Final = frozenset({"prompts/get", "resources/read"})
"""The requests that change nothing, among those during which a server may ask questions."""

MARKS: Final = ("readOnlyHint", "idempotentHint")
"""Annotations of a tool that promise that a second run has no further effect (2025-03-26 server/tools, "Tool
Annotations")."""

QUESTIONS_MAX: Final = 32
"""The most questions of a round whose digests go into the token, where so many fit with room to spare. A larger round
has no digests at all."""


class Replays:
    """The tools that may be called twice, by the audience that was shown their list.

    Bounded by `Limits.audiences_max` (the audience whose list was shown longest ago is forgotten first) and
    `Limits.tools_known_max` per audience.
    """

    def __init__(self, limits: Limits) -> None:
        self._tools: dict[Audience, set[str]] = {}
        self._limits = limits

    def learn(self, audience: Audience, result: bytes, *, is_first: bool) -> None:
        """Learns from one page of a `tools/list` result. A page that cannot be read makes the audience's tools unknown.

        Args:
            is_first: the page begins a new list, so what earlier lists said no longer holds.
        """
        if not any(mark.encode() in result for mark in MARKS):
            if is_first:  # the promises of the previous list no longer hold
                self._tools.pop(audience, None)
            return
        known = self._tools.pop(audience, set())
        self._tools[audience] = known
        if len(self._tools) > self._limits.audiences_max:
            del self._tools[next(iter(self._tools))]
        # Forgetting is safe: a call of an unknown tool is not repeated.
        if is_first or len(known) >= self._limits.tools_known_max:
            known.clear()
        try:
            tools = envelope.member_of(result, "tools")
            for start, stop in elements(tools) if tools is not None and tools.startswith(b"[") else []:
                assert tools is not None
                name = envelope.text_of(envelope.member_of(tools[start:stop], "name"))
                if name is not None and _is_marked(tools[start:stop]):
                    known.add(name)
        except RemoteProtocolError:
            known.clear()

    def may_repeat(self, audience: Audience, method: str, params: bytes | None) -> bool:
        """True if running a request twice has the same effect as running it once.

        Raises:
            RemoteProtocolError: the params are no object, or have a member twice.
        """
        if method in READS:
            return True
        name = envelope.text_of(envelope.member_of(params, "name"))
        return method == "tools/call" and name in self._tools.get(audience, ())


def digests(entries: Mapping[str, bytes]) -> dict[str, str]:
    """Returns the digests of a round's questions by their keys, for its token; empty above `QUESTIONS_MAX`."""
    if len(entries) > QUESTIONS_MAX:
        return {}
    return {key: digest_of_question(entry) for key, entry in entries.items()}


def answers(claims: Claims, responses: Mapping[str, bytes]) -> dict[str, bytes]:
    """Returns the answers of a retry by the digests of their questions."""
    return {digest: responses[key] for key, digest in claims.questions.items() if key in responses}


def digest_of_question(entry: bytes) -> str:
    """Returns the digest by which a question that is asked again is known."""
    return digest_of_value(entry)[:16]


def _is_marked(tool: bytes) -> bool:
    annotations = envelope.member_of(tool, "annotations")
    if annotations is None or not annotations.startswith(b"{"):
        return False
    return any(envelope.member_of(annotations, mark) == b"true" for mark in MARKS)
