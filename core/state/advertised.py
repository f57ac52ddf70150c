"""The arguments of tools that HTTP clients were told to repeat in headers.

A client that was shown a tool with `x-mcp-header` sends the marked arguments as `Mcp-Param-…` headers, too. The proxy
that showed it the tool compares the two.

Source: 2026-07-28 server/tools, "x-mcp-header".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..wire.http.param_headers import Mirror, may_be_annotated, read_tools
from .session import Audience, Session

Mirrors = Mapping[str, tuple[Mirror, ...]]
"""The marked arguments, by the name that clients have for their tool."""


class Advertised:
    """The marked arguments that audiences were told of. The audience that was shown a list longest ago goes first.

    Args:
        audiences_max: see `Limits.audiences_max`.
    """

    def __init__(self, audiences_max: int) -> None:
        self._max = audiences_max
        self._by_audience: dict[Audience, Mirrors] = {}

    def __len__(self) -> int:
        return len(self._by_audience)

    def of(self, audience: Audience) -> Mirrors | None:
        """Returns what an audience was told; None if it was shown no such tool."""
        return self._by_audience.get(audience)

    def tell(self, session: Session, mirrors: Mirrors) -> None:
        """Records what the client of a session is told, if it has no session of its own: others send no such
        headers."""
        if session.affinity is None:
            return
        self._by_audience.pop(session.affinity.audience, None)
        self._by_audience[session.affinity.audience] = mirrors
        if len(self._by_audience) > self._max:
            del self._by_audience[next(iter(self._by_audience))]

    def tell_of_tools(self, session: Session, tools: Iterable[bytes]) -> None:
        """Records what the client of a session is told, from all the tools that it is shown.

        Raises:
            RemoteProtocolError: a tool cannot be read.
        """
        marked = b",".join(tool for tool in tools if may_be_annotated(tool))
        _, mirrors, _ = read_tools(b'{"tools":[%b]}' % marked)
        if mirrors:
            self.tell(session, mirrors)
        else:
            self.forget(session)

    def forget(self, session: Session) -> None:
        """Drops what the client of a session was told, since the list has changed."""
        if session.affinity is not None:
            self._by_audience.pop(session.affinity.audience, None)
