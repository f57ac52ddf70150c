"""Calls that were lost while their client fetched answers: which are made again, and with what is known by then.

A call that is parked is kept in memory, so that a restart of the proxy loses it. Its client comes back with answers all
the same. Where running the call twice is the same as once, it is made again, and what the server asks anew is answered
with what the client brought, matched by what was asked. Any other call ends with an error that says it was lost.
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
"""Of the requests in whose course servers ask, those that change nothing."""

MARKS: Final = ("readOnlyHint", "idempotentHint")
"""Annotations of a tool that promise the same of it (2025-03-26 server/tools, "Tool Annotations")."""

QUESTIONS_MAX: Final = 32
"""So many digests fit into a token with room to spare; of a round with more, none is kept."""


class Replays:
    """Which tools may be called twice, by whom their lists were shown to. Who was shown one longest ago is forgotten
    first."""

    def __init__(self, limits: Limits) -> None:
        self._tools: dict[Audience, set[str]] = {}
        self._limits = limits

    def learn(self, audience: Audience, result: bytes, *, is_first: bool) -> None:
        """A page of a server's tools came by. What cannot be read is not learned from."""
        if not any(mark.encode() in result for mark in MARKS):
            if is_first:  # a list that is new promises nothing of what the last one did
                self._tools.pop(audience, None)
            return
        known = self._tools.pop(audience, set())
        self._tools[audience] = known
        if len(self._tools) > self._limits.audiences_max:
            del self._tools[next(iter(self._tools))]
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
        """Whether a request is the same when it is made twice."""
        if method in READS:
            return True
        name = envelope.text_of(envelope.member_of(params, "name"))
        return method == "tools/call" and name in self._tools.get(audience, ())


def digests(entries: Mapping[str, bytes]) -> dict[str, str]:
    """What a token says of the questions of its round."""
    if len(entries) > QUESTIONS_MAX:
        return {}
    return {key: digest_of_value(entry)[:16] for key, entry in entries.items()}


def answers(claims: Claims, responses: Mapping[str, bytes]) -> dict[str, bytes]:
    """What the client brought, by the digest of what it was asked."""
    return {digest: responses[key] for key, digest in claims.questions.items() if key in responses}


def take_answer(known: dict[str, bytes], entry: bytes) -> bytes | None:
    """The answer to a question that is asked anew, once."""
    return known.pop(digest_of_value(entry)[:16], None) if known else None


def _is_marked(tool: bytes) -> bool:
    annotations = envelope.member_of(tool, "annotations")
    if annotations is None or not annotations.startswith(b"{"):
        return False
    return any(envelope.member_of(annotations, mark) == b"true" for mark in MARKS)
