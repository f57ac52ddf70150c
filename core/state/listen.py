"""One subscription of a client: a `subscriptions/listen` request.

A listen is a request that stays open. Its client names the notifications it wants, the server acknowledges those that
it will send, and from then on every change arrives under the listen's id. Changes are invalidations: a client that
receives one reads the resource or list anew. Therefore equal changes that wait are one, and after a gap a change of
every subscribed object makes up for all that were missed.

The machine is in OPENING until the listen is acknowledged. Changes that arrive then are queued, since nothing may be
sent before the acknowledgment; if too many wait, they are dropped and replaced by a change of everything. ACKNOWLEDGE
leads to LIVE: the acknowledgment is sent, then the queue, and from then on each change as it comes.

LOSE means that the connection to the server is gone, and leads to STALE: no changes come, and some may be missed.
RECOVER means that the server was asked for the same again: a change of everything is sent, and the listen is LIVE. A
server that is lost in OPENING needs no input, because the listen is acknowledged only after the server has been asked
again.

CLOSE ends the listen in every state: the client cancelled it, or the server or the proxy ended it, and the client is
sent the result.

Source: 2026-07-28 basic/patterns/subscriptions; the tasks extension for `taskIds`.
"""

from __future__ import annotations

import enum
from typing import Final

from ..base.state_machine import Machine
from .listen_filter import (
    ACKNOWLEDGED,
    TASK,
    Change,
    ListenFilter,
    format_filter,
    subject_of,
    tagged,
)

# --- The machine ----------------------------------------------------------------------------------------------------


class ListenState(enum.Enum):
    """The states of a listen."""

    OPENING = "opening"  # not acknowledged yet; changes wait
    LIVE = "live"  # changes are sent as they come
    STALE = "stale"  # the server is lost: nothing comes, and changes may be missed
    CLOSED = "closed"  # the client cancelled it, or was sent the result


class ListenInput(enum.Enum):
    """The inputs that move a listen from state to state."""

    ACKNOWLEDGE = "acknowledge"  # the server, or the proxy for it, confirmed what it will send
    LOSE = "lose"  # the connection to the server is gone
    RECOVER = "recover"  # the server was asked for the same again
    CLOSE = "close"  # cancelled, or ended with a result


# Source: 2026-07-28 basic/patterns/subscriptions, "Acknowledgment": the server "MUST NOT send any notification on the
# subscription before it". A server that is lost before that is asked again before it is acknowledged.
TRANSITIONS: Final[dict[ListenState, dict[ListenInput, ListenState]]] = {
    ListenState.OPENING: {ListenInput.ACKNOWLEDGE: ListenState.LIVE, ListenInput.CLOSE: ListenState.CLOSED},
    ListenState.LIVE: {ListenInput.LOSE: ListenState.STALE, ListenInput.CLOSE: ListenState.CLOSED},
    ListenState.STALE: {ListenInput.RECOVER: ListenState.LIVE, ListenInput.CLOSE: ListenState.CLOSED},
    ListenState.CLOSED: {},
}


class Listen(Machine[ListenState, ListenInput]):
    """The state of one listen. The messages that its methods return are to be sent on its stream, in that order.

    Args:
        id_raw: the JSON of the request's id; everything on its stream carries it.
        wanted: the filter of the request.
        queue_max: changes that wait for the acknowledgment, besides one for each task. Above that they are dropped, and
            made up for by a change of everything.

    Attributes:
        granted: the acknowledged part of the filter; empty before.
    """

    __slots__ = ("_has_overflowed", "_queue", "_queue_max", "granted", "id_raw", "wanted")

    TRANSITIONS = TRANSITIONS

    def __init__(self, id_raw: bytes, wanted: ListenFilter, *, queue_max: int) -> None:
        super().__init__(ListenState.OPENING)
        self.id_raw = id_raw
        self.wanted = wanted
        self.granted = ListenFilter()
        self._queue: dict[tuple[str, str | None], bytes | None] = {}
        self._queue_max = queue_max
        self._has_overflowed = False

    def receive_acknowledged(self, granted: ListenFilter) -> list[Change]:
        """Handles the acknowledgment of `granted`: returns it for the client, then the changes since.

        Raises:
            LocalProtocolError: it was acknowledged before, or is closed. Nothing has changed.
        """
        self.step(ListenInput.ACKNOWLEDGE)
        self.granted = granted & self.wanted
        changes = [Change(ACKNOWLEDGED, b'{"notifications":%b}' % format_filter(self.granted))]
        if self._has_overflowed:
            changes += self.granted.changes()
        for (method, subject), params in self._queue.items():
            if self.granted.covers(method, subject) and not (self._has_overflowed and method != TASK):
                changes.append(Change(method, params))
        self._queue = {}
        return self._tagged(changes)

    def receive_change(self, method: str, params: bytes | None) -> list[Change]:
        """Handles a change. Returns it if it is to be sent now; it may also be queued, or dropped if it is not
        subscribed or will be made up for.

        Args:
            params: as the server wrote them, without the id of its own listen.

        Raises:
            RemoteProtocolError: the params are no object, or have a member twice. Nothing has changed.
        """
        subject = subject_of(method, params)
        if self.state is ListenState.LIVE and self.granted.covers(method, subject):
            return self._tagged([Change(method, params)])
        if self.state is ListenState.OPENING and self.wanted.covers(method, subject):
            tagged(params, self.id_raw)  # for its exception: broken params must not be queued
            is_more = method != TASK and (method, subject) not in self._queue
            if is_more and len(self._queue) >= self._queue_max:
                self._has_overflowed = True
            else:
                self._queue[method, subject] = params
        return []

    def receive_lost(self) -> None:
        """Handles the loss of the server's connection.

        Raises:
            LocalProtocolError: the listen is not live. Nothing has changed.
        """
        self.step(ListenInput.LOSE)

    def receive_recovered(self) -> list[Change]:
        """Handles the return of the server. Returns a change of everything subscribed, to make up for missed ones.

        Raises:
            LocalProtocolError: it was not lost. Nothing has changed.
        """
        self.step(ListenInput.RECOVER)
        return self._tagged(self.granted.changes())

    def receive_close(self) -> bytes:
        """Ends the listen. Returns the JSON of its result, for where the server or the proxy ends it.

        Raises:
            LocalProtocolError: it had ended before.
        """
        self.step(ListenInput.CLOSE)
        self._queue = {}
        return tagged(b'{"resultType":"complete"}', self.id_raw)

    def _tagged(self, changes: list[Change]) -> list[Change]:
        return [Change(method, tagged(params, self.id_raw)) for method, params in changes]
