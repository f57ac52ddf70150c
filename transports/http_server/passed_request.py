"""The client's side of a request that is passed on to another replica."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from ...core.base.limits import Limits
from ...core.wire.http.error_responses import refusal_at
from ...core.wire.http.reverse_proxy_exchange import ForwardFailed, ForwardPlan
from ...core.wire.http.routes import Refused
from ..base.wire import ClientWire
from ..reverse_proxy.forwarder import NobodyThere
from ..reverse_proxy.replicas import ReplicaPeer, Replicas
from .forwarded_request import ForwardedRequest
from .framing import Framing
from .jobs import Jobs
from .writer import Writer

_log: Final = logging.getLogger("isthmus.http")


UNAVAILABLE: Final = "the replica that has this does not answer now: try again later"


def unavailable(target: str) -> Refused:
    """Returns the response to a request that its replica does not answer now."""
    return refusal_at(target, 503, UNAVAILABLE, ((b"retry-after", b"1"),))


class PassedRequest(ForwardedRequest):
    """A request that another replica answers. Further arguments are those of `ForwardedRequest`.

    Args:
        target: of the client's request.
        hand_back: called if the replica refuses connections. Nothing of the body was read then.

    Raises:
        ForwardFailed: the replica cannot be reached.
    """

    __slots__ = ("_hand_back", "_replicas", "_tag", "_target")

    def __init__(
        self,
        replicas: Replicas,
        replica: ReplicaPeer,
        plan: ForwardPlan,
        size_bytes: int | None,
        *,
        target: str,
        hand_back: Callable[[], None],
        framing: Framing,
        writer: Writer,
        wire: ClientWire,
        jobs: Jobs,
        limits: Limits,
        settle: Callable[[], None],
    ) -> None:
        self._replicas = replicas
        self._tag = replica.tag
        self._target = target
        self._hand_back = hand_back
        super().__init__(
            replicas,
            replicas.reach(replica.address),
            plan,
            size_bytes,
            framing=framing,
            writer=writer,
            wire=wire,
            jobs=jobs,
            limits=limits,
            settle=settle,
        )

    def fail(self, failure: ForwardFailed) -> None:
        if isinstance(failure, NobodyThere):
            self._replicas.note_refused(self._tag)
            self._end()
            self._hand_back()
            return
        self._replicas.note_failed(self._tag)
        _log.warning("a request could not be passed on to replica %s: %s", self._tag, failure.detail)
        self._refuse(unavailable(self._target))
