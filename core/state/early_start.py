"""The answers that clients of a link get before their server has answered, and what is to be compared afterwards."""

from __future__ import annotations

from typing import NamedTuple

from ..base.revisions import Era
from ..bridge.request_meta import RequestMeta
from ..bridge.task_support import TaskAbilities


class Introduction(NamedTuple):
    """The result of a server's handshake, and what it means.

    Attributes:
        shown: the result, in the form that clients get.
        revision: the revision that it chose.
        capabilities: the names of its capabilities.
        abilities: what it declares about tasks.
    """

    shown: bytes
    revision: str | None
    capabilities: frozenset[str] | None
    abilities: TaskAbilities


class EarlyKey(NamedTuple):
    """All that an answer of a server depends on: equal keys have equal answers, as long as the server stays the same.

    Attributes:
        method: of the request; "initialize" or "server/discover" for an introduction.
        era: that the server was spoken to in.
        digest: of all that the server knew of the client.
        audience: a digest of the callers that the answer may be given to.
    """

    server: str
    method: str
    era: Era
    digest: bytes
    audience: bytes


class ShownList:
    """A list that clients were given before the server had listed anything in this session.

    Attributes:
        result: as an earlier process sent it.
        who: the client's description of itself, for a server that is told it with each request.
        is_promised: the client was told that it would be notified of changes.
        sids: the public names of the sessions that were given it.
    """

    __slots__ = ("is_promised", "key", "result", "sids", "who")

    def __init__(self, key: EarlyKey, result: bytes, who: RequestMeta, *, is_promised: bool) -> None:
        self.key = key
        self.result = result
        self.who = who
        self.is_promised = is_promised
        self.sids: dict[str, None] = {}

    def add(self, sid: str) -> None:
        """Adds a session that was given it."""
        self.sids[sid] = None


class EarlyStart:
    """The early answers of one link.

    A server may change its lists with any call. So a list is taken for that of a new process only if its process was
    sent nothing but what reads or sets something (`SAFE_TO_REPEAT`). Plain calls are not reported here. They show as a
    gap in the numbers of those requests.

    Attributes:
        introduction: what is taken for the server's own, while it starts; None: nothing is.
        is_ready: the server has answered for itself.
        shown: the lists that are to be compared with the server's, by a name of ours.
    """

    __slots__ = ("_era", "_last_safe", "introduction", "is_ready", "shown")

    def __init__(self) -> None:
        self.introduction: Introduction | None = None
        self.is_ready = False
        self.shown: dict[str, ShownList] = {}
        self._era = Era.HANDSHAKE
        self._last_safe = 0

    # --- Before the server answers ----------------------------------------------------------------------------------

    def begin(self) -> None:
        """Begins a handshake."""
        self.introduction, self.is_ready = None, False

    def presume(self, era: Era, introduction: Introduction) -> None:
        """Takes what the server said in another session for its answer."""
        self._era, self.introduction = era, introduction

    @property
    def is_presumed(self) -> bool:
        """True if clients have the introduction of another session."""
        return self.introduction is not None

    def speaks_for(self, era: Era) -> bool:
        """True if that introduction is one in the era in which the server is spoken to now."""
        return self.introduction is not None and era is self._era

    def show(self, key: EarlyKey, result: bytes, who: RequestMeta, sid: str, *, is_promised: bool) -> None:
        """Records a list that a session was given."""
        name = f"{key.method} {key.digest.hex()} {key.audience.hex()}"
        found = self.shown.get(name)
        if found is None:
            found = self.shown[name] = ShownList(key, result, who, is_promised=is_promised)
        found.add(sid)

    # --- Afterwards ---------------------------------------------------------------------------------------------------

    def receive_ready(self, last_id: int) -> None:
        """Handles the end of the handshake. `last_id` is the number of the request that was sent last."""
        self.introduction, self.is_ready = None, True
        self._last_safe = last_id

    def receive_lost(self) -> None:
        """Handles the loss of the server."""
        self.introduction, self.is_ready = None, False

    def receive_safe_request(self, number: int) -> None:
        """Records a request that only reads or sets something."""
        if number == self._last_safe + 1:
            self._last_safe = number

    def is_untouched(self, last_id: int) -> bool:
        """True if the process was sent no call yet."""
        return self.is_ready and self._last_safe == last_id

    def take_shown(self, name: str) -> ShownList | None:
        """Removes and returns a list that is compared now; None if there is none of that name."""
        return self.shown.pop(name, None)

    def drop_shown(self) -> None:
        """Drops all lists that are not compared yet: the server does not list them in time."""
        self.shown.clear()
