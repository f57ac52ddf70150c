"""The client's side of requests that are passed on to other replicas."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import h11
import msgspec

from ...core.base.errors import LocalProtocolError
from ...core.base.events import Cause, DraftOpening, End, MessageOpening, PostOpening
from ...core.base.grants import NO_GRANTS
from ...core.base.replica import tag_of
from ...core.replicas.leases import Peer
from ...core.wire.http.error_responses import refusal_at
from ...core.wire.http.hop import HopCaller
from ...core.wire.http.reply import Out
from ...core.wire.http.reverse_proxy_exchange import ForwardFailed, ForwardPlan
from ...core.wire.http.routes import Head, McpRoute, Refused, UploadRoute
from ...core.wire.http1.events import RequestHead
from ..base.traffic import Forwarded
from ..base.wire import Silent
from ..reverse_proxy.forwarder import NobodyThere
from ..reverse_proxy.replicas import UNIX, HopPlan, Replicas
from ..reverse_proxy.request import NotLetIn
from .forwarded_request import ConnectionParts, ForwardedRequest
from .replies import Exchange
from .shared import ServerContext

_log: Final = logging.getLogger("isthmus.http")


MAY_HAVE_RUN: Final = frozenset({"upstream_broken", "upstream_timed_out"})
"""The codes of failures after which the other replica may have carried the request out. Clients and balancers send a
request again after a 503, and a call may not run twice."""


_SEEN: Final = {
    "upstream_broken": "has broken off the connection",
    "upstream_timed_out": "does not respond in time",
    "overloaded": "takes no more requests from this one now",
}
"""Words for clients about another replica, by the code of a failure. The log has more, with the address."""
_UNREACHED: Final = "cannot be reached now"


def unavailable(target: str, what: str, tag: str, seen: str = _UNREACHED) -> Refused:
    """Returns the response to a request that its replica does not answer now.

    Args:
        what: what the request is about.
        seen: what was seen of that replica.
    """
    text = f"{what} is at replica {tag}, which {seen}: try again later"
    return refusal_at(target, 503, text, ((b"retry-after", b"1"),))


def lost(target: str, what: str, tag: str, seen: str) -> Refused:
    """Returns the response to a request that its replica may have carried out. Arguments are those of `unavailable`."""
    text = (
        f"{what} is at replica {tag}, which {seen}: it is not known whether the request was carried out; see whether "
        "it was before you repeat it"
    )
    return refusal_at(target, 502, text)


def _about(route: McpRoute | UploadRoute) -> str:
    """Returns what a request is about, for messages."""
    if isinstance(route, UploadRoute):
        return "the upload"
    has_session = isinstance(route.opening, MessageOpening) or getattr(route.opening, "session", None) is not None
    return "the session" if has_session else "what the request continues"


class PassedRequest(ForwardedRequest):
    """A request that another replica answers. Further arguments are those of `ForwardedRequest`.

    Args:
        target: of the client's request.
        what: what it is about, for messages.
        miss: called if the process of the replica is not at its address: none is there, or another one, which did not
            look at the request.
        count: called with the outcome.

    Raises:
        ForwardFailed: the replica cannot be reached.
    """

    __slots__ = ("_count", "_is_post", "_miss", "_replica", "_target", "_what")

    def __init__(
        self,
        parts: ConnectionParts,
        replicas: Replicas,
        replica: Peer,
        plan: ForwardPlan,
        size_bytes: int | None,
        target: str,
        what: str,
        miss: Callable[[Peer, ForwardFailed], None],
        count: Callable[[Forwarded], None],
    ) -> None:
        self._replica = replica
        self._target = target
        self._what = what
        self._is_post = plan.method == "POST"
        self._miss = miss
        self._count = count
        super().__init__(parts, replicas, replicas.reach(replica.address), plan, size_bytes)

    def finish(self, outs: Sequence[Out]) -> None:
        self._count(Forwarded.ANSWERED)
        super().finish(outs)

    def cancel(self) -> None:
        self._count(Forwarded.LEFT)
        super().cancel()

    def _break_off(self, error: Silent | h11.RemoteProtocolError) -> None:
        self._count(Forwarded.LEFT)
        super()._break_off(error)

    def fail(self, failure: ForwardFailed) -> None:
        if isinstance(failure, NobodyThere | NotLetIn):
            self._end()
            self._miss(self._replica, failure)
            return
        tag = self._replica.tag
        _log.warning("a request could not be passed on to replica %s: %s", tag, failure.detail)
        is_lost = self._is_post and failure.code in MAY_HAVE_RUN
        if self._request.has_begun:
            self._count(Forwarded.BROKEN)
        else:
            self._count(Forwarded.LOST if is_lost else Forwarded.UNAVAILABLE)
        respond = lost if is_lost else unavailable
        self._refuse(respond(self._target, self._what, tag, _SEEN.get(failure.code, _UNREACHED)))


class Passing:
    """Passes the requests of one connection on to the replicas that the engine names.

    Args:
        parts: of the connection.
        begin: begins such a request with its body; None: the body is still to come.
        report: reports a request to the engine again, because the replica that it was for is gone.
    """

    __slots__ = (
        "_begin",
        "_hop",
        "_listening",
        "_parts",
        "_replicas",
        "_report",
        "_route",
        "_tag",
    )

    def __init__(
        self,
        replicas: Replicas,
        parts: ConnectionParts,
        listening: ServerContext,
        *,
        begin: Callable[[PassedRequest, bytes | None], None],
        report: Callable[[McpRoute | UploadRoute, bytes | None], None],
    ) -> None:
        self._replicas = replicas
        self._parts = parts
        self._listening = listening
        self._begin = begin
        self._report = report
        self._route: McpRoute | None = None  # of the last message that was passed on
        self._tag = ""  # the replica of all messages with that route; "": the engine says
        self._hop: HopPlan | None = None  # the form in which they go there

    def replica_of(self, route: McpRoute) -> str:
        """Returns the tag of the replica for a message; "" if the engine is to be asked."""
        return self._tag if route is self._route else ""

    def pass_on(self, tag: str, exchange: Exchange, head: RequestHead) -> None:
        """Passes the request of an exchange on to the replica of that tag."""
        if exchange.has_begun:  # with a comment, because the engine took long
            self._count(Forwarded.BROKEN)
            self._parts.writer.stop(Cause(End.BROKEN, "the reply has begun"))
            return
        assert exchange.request is not None
        route, _ = exchange.request
        if isinstance(route, McpRoute) and route is not self._route:
            # The session alone decides, whatever the message is: the engine need not see the next one.
            is_of_session = isinstance(route.opening, PostOpening) and tag_of(route.opening.session or "") == tag
            self._route, self._tag, self._hop = route, tag if is_of_session else "", None
        exchange.hand_over()
        if (replica := self._replicas.membership.known(tag)) is not None:
            self._pass_to(replica, exchange, head)
        else:
            self._parts.jobs.start(partial(self._find, tag, exchange, head))

    async def _find(
        self,
        tag: str,
        exchange: Exchange,
        head: RequestHead,
        missed: Peer | None = None,
        failure: ForwardFailed | None = None,
    ) -> None:
        """Looks a replica up, and passes the request on to it.

        Args:
            missed: the replica as it was known, whose process was not met.
            failure: what was met instead.
        """
        is_replaced = isinstance(failure, NotLetIn)
        replica = await self._replicas.membership.find(tag, missed, is_replaced=is_replaced)
        if self._parts.writer.exchange is not exchange:
            self._count(Forwarded.LEFT)
        elif replica is not None and replica != missed:
            self._pass_to(replica, exchange, head, is_again=missed is not None)
        elif replica is not None and isinstance(failure, NotLetIn):
            self._answer_refused(replica, failure, exchange, head)
        else:
            self._hand_back()

    def _miss(self, is_again: bool, replica: Peer, failure: ForwardFailed) -> None:
        """Looks a replica up again whose process was not met at its address."""
        exchange, head = self._parts.writer.exchange, self._parts.framing.head
        if exchange is None or head is None:  # the client is gone
            self._count(Forwarded.LEFT)
            return
        assert exchange.request is not None
        is_partly_read = isinstance(failure, NotLetIn) and exchange.request[1] is None  # an upload
        stays = replica.address.startswith(UNIX)  # a successor has the same address
        if not (is_again or is_partly_read or (stays and isinstance(failure, NobodyThere))):
            self._parts.jobs.start(partial(self._find, replica.tag, exchange, head, replica, failure))
        elif isinstance(failure, NotLetIn):
            self._answer_refused(replica, failure, exchange, head)
        else:
            self._hand_back()

    def _answer_refused(self, replica: Peer, failure: NotLetIn, exchange: Exchange, head: RequestHead) -> None:
        _log.warning("a request could not be passed on to replica %s: %s", replica.tag, failure.detail)
        self._parts.framing.leave_rest()
        self._answer_unavailable(replica, exchange, head, "refuses requests of this one")

    def _answer_unavailable(self, replica: Peer, exchange: Exchange, head: RequestHead, seen: str = _UNREACHED) -> None:
        assert exchange.request is not None
        self._count(Forwarded.UNAVAILABLE)
        exchange.answer(unavailable(head.target, _about(exchange.request[0]), replica.tag, seen))
        self._parts.settle()

    def _count(self, outcome: Forwarded) -> None:
        self._listening.counts.forwards[outcome] += 1

    def _pass_to(self, replica: Peer, exchange: Exchange, head: RequestHead, *, is_again: bool = False) -> None:
        assert exchange.request is not None
        route, body = exchange.request
        try:
            request = PassedRequest(
                self._parts,
                self._replicas,
                replica,
                self._plan(replica, route, head),
                head.body_size if body is None else len(body),
                head.target,
                _about(route),
                partial(self._miss, is_again),
                self._count,
            )
        except (LocalProtocolError, ForwardFailed) as error:
            _log.warning("a request could not be passed on to replica %s: %s", replica.tag, error)
            self._answer_unavailable(replica, exchange, head)
            return
        self._begin(request, body)

    def _plan(self, replica: Peer, route: McpRoute | UploadRoute, head: RequestHead) -> ForwardPlan:
        if route is self._route and self._hop is not None and self._hop.is_for(replica):
            return self._hop.plan
        opening, peer = route.opening, self._parts.wire.peer
        caller = HopCaller(
            opening.principal,
            route.identity.grants if isinstance(route, McpRoute) else NO_GRANTS,
            self._parts.framing.owner,
            opening.base_url if isinstance(opening, PostOpening | DraftOpening) else "",
            peer.is_secure or self._listening.scheme == "https",
        )
        judged = Head(head.method, head.target, head.headers, head.version)
        hop = self._replicas.plan_hop(replica, judged, caller, is_streamed=isinstance(route, UploadRoute))
        if route is self._route:
            self._hop = hop
        return hop.plan

    def _hand_back(self) -> None:
        writer = self._parts.writer
        exchange = writer.exchange
        if exchange is None:  # the client is gone
            return
        self._count(Forwarded.GONE)
        assert exchange.request is not None
        route, body = exchange.request
        writer.close_channel(Cause(End.UNREACHABLE, "the other replica is gone"))
        opening = msgspec.structs.replace(route.opening, is_returned=True)
        self._report(msgspec.structs.replace(route, opening=opening), body)
