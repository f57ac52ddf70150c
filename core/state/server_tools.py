"""The facts known of a server's tools, and the reading of their list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..base.empty import NONE
from ..bridge.task_support import Support
from ..wire.http.param_headers import Mirror
from .exchange import Exchange
from .tool_hints import Hints

NO_TOOLS: frozenset[str] = frozenset()


class ServerTools:
    """The tools of the server of one link.

    A page of the list is learned on top of the pages before it; the first page replaces all that was known. What is
    known is bounded by `Limits.tools_known_max`, given to the methods as `tools_max`.

    Attributes:
        hints: file hints, for `files: auto`; None: not read.
        mirrors: arguments for `Mcp-Param-…` headers; None: not read.
        supports: the declared task support, by tool.
        knows_supports: the whole list was read for that.
        wrapped: tools whose results are wrapped for clients that know only objects.
        pages_read: pages read so far, while the list is being read.
        page_read: the cursor of the last page that was requested.
    """

    __slots__ = (
        "_waiting",
        "hints",
        "knows_supports",
        "mirrors",
        "page_read",
        "pages_read",
        "supports",
        "wrapped",
    )

    def __init__(self) -> None:
        self.hints: Mapping[str, Hints] | None = None
        self.mirrors: dict[str, tuple[Mirror, ...]] | None = None
        self.supports: Mapping[str, Support] = NONE
        self.knows_supports = False
        self.wrapped = NO_TOOLS
        self.pages_read = 0
        self.page_read: bytes | None = None
        self._waiting: list[Exchange] | None = None

    # --- Reading ----------------------------------------------------------------------------------------------------

    @property
    def waiting(self) -> Sequence[Exchange]:
        """The requests that wait for the list."""
        return self._waiting or ()

    def wait(self, exchange: Exchange) -> bool:
        """Lets a request wait for the list. True if it is the first, so that the list must be requested."""
        if self._waiting is not None:
            self._waiting.append(exchange)
            return False
        self._waiting = [exchange]
        self.pages_read, self.page_read = 0, None
        return True

    def request_page(self, cursor: bytes | None) -> None:
        """Requests a page, the first one for None."""
        self.pages_read += 1
        self.page_read = cursor

    def take_waiting(self) -> Sequence[Exchange]:
        """Removes and returns the requests that wait."""
        waiting, self._waiting = self.waiting, None
        return waiting

    def receive_end(self, *, is_stateless: bool) -> None:
        """Handles the end of the list, or of the attempt to read it: what was not read is taken for empty."""
        if self.mirrors is None and is_stateless:
            self.mirrors = {}
        if self.hints is None:
            self.hints = {}
        self.knows_supports = True

    def receive_change(self) -> None:
        """Handles a change of the list: what was read of it holds no longer."""
        self.mirrors = self.hints = None
        self.knows_supports = False

    def receive_handshake(self) -> None:
        """Handles a new upstream session, whose tools may support tasks in another way."""
        self.knows_supports = False

    # --- Pages ------------------------------------------------------------------------------------------------------

    def learn_supports(self, found: Mapping[str, Support], *, is_first: bool, is_last: bool, tools_max: int) -> None:
        """Learns the task support. A page for which there is no room is ignored; `is_last` says that all was read."""
        known: Mapping[str, Support] = {} if is_first else self.supports
        if len(known) + len(found) <= tools_max:
            self.supports = {**known, **found}
        self.knows_supports = is_last

    def learn_mirrors(
        self, found: dict[str, tuple[Mirror, ...]], *, is_first: bool, tools_max: int
    ) -> dict[str, tuple[Mirror, ...]]:
        """Learns the arguments to be mirrored, and returns all that are known. If there are too many tools, only those
        of this page are kept."""
        mirrors = found if is_first else {**(self.mirrors or {}), **found}
        self.mirrors = found if len(mirrors) > tools_max else mirrors
        return self.mirrors

    def learn_hints(self, found: Mapping[str, Hints], *, is_first: bool, tools_max: int) -> None:
        """Learns file hints. A page for which there is no room is ignored."""
        known: Mapping[str, Hints] = {} if is_first or self.hints is None else self.hints
        self.hints = {**known, **found} if len(known) + len(found) <= tools_max else known

    def learn_wrapped(self, found: frozenset[str], *, is_first: bool, tools_max: int) -> None:
        """Learns the tools whose results are wrapped. If there are too many, only those of this page are kept."""
        has_room = len(self.wrapped) + len(found) <= tools_max
        self.wrapped = self.wrapped | found if has_room and not is_first else found
