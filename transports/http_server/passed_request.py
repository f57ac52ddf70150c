"""The client's side of requests that are passed on to other replicas."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec

from ...core.base.errors import LocalProtocolError
from ...core.base.events import Cause, DraftOpening, End, PostOpening
from ...core.base.grants import NO_GRANTS
from ...core.base.limits import Limits
from ...core.base.replica import tag_of
from ...core.replicas.leases import Peer
from ...core.wire.http.error_responses import refusal_at
from ...core.wire.http.hop import HopCaller
from ...core.wire.http.reverse_proxy_exchange import ForwardFailed, ForwardPlan
from ...core.wire.http.routes import Head, McpRoute, Refused, UploadRoute
from ...core.wire.http1.events import RequestHead
from ..base.wire import ClientWire
from ..reverse_proxy.forwarder import NobodyThere
from ..reverse_proxy.replicas import HopPlan, Replicas
from .forwarded_request import ForwardedRequest
from .framing import Framing
from .jobs import Jobs
from .replies import Exchange
from .shared import ServerContext
from .writer import Writer

_log: Final = logging.getLogger("isthmus.http")


UNAVAILABLE: Final = "the replica that has this does not answer now: try again later"


LOST: Final = "the replica that has this was lost: it is not known whether the request was carried out"
MAY_HAVE_RUN: Final = frozenset({"upstream_broken", "upstream_timed_out"})
"""The codes of failures after which the other replica may have carried the request out. Clients and balancers send a
request again after a 503, and a call may not run twice."""


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

    __slots__ = ("_hand_back", "_is_post", "_replica", "_replicas", "_target")

    def __init__(
        self,
        replicas: Replicas,
        replica: Peer,
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
        self._replica = replica
        self._target = target
        self._is_post = plan.method == "POST"
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
            self._replicas.membership.note_refused(self._replica.tag)
            self._end()
            self._hand_back()
            return
        _log.warning("a request could not be passed on to replica %s: %s", self._replica.tag, failure.detail)
        is_lost = self._is_post and failure.code in MAY_HAVE_RUN
        self._refuse(refusal_at(self._target, 502, LOST) if is_lost else unavailable(self._target))


class Passing:
    """Passes the requests of one connection on to the replicas that the engine names.

    Args:
        begin: begins such a request with its body; None: the body is still to come.
        report: reports a request to the engine again, because the replica that it was for is gone.
    """

    __slots__ = (
        "_begin",
        "_framing",
        "_hop",
        "_jobs",
        "_listening",
        "_replicas",
        "_report",
        "_route",
        "_settle",
        "_tag",
        "_wire",
        "_writer",
    )

    def __init__(
        self,
        replicas: Replicas,
        *,
        wire: ClientWire,
        framing: Framing,
        writer: Writer,
        jobs: Jobs,
        listening: ServerContext,
        settle: Callable[[], None],
        begin: Callable[[PassedRequest, bytes | None], None],
        report: Callable[[McpRoute | UploadRoute, bytes | None], None],
    ) -> None:
        self._replicas = replicas
        self._wire = wire
        self._framing = framing
        self._writer = writer
        self._jobs = jobs
        self._listening = listening
        self._settle = settle
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
            self._writer.stop(Cause(End.BROKEN, "the reply has begun"))
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
            self._jobs.start(partial(self._find, tag, exchange, head))

    async def _find(self, tag: str, exchange: Exchange, head: RequestHead) -> None:
        replica = await self._replicas.membership.find(tag)
        if self._writer.exchange is not exchange:  # the client is gone
            return
        if replica is None:
            self._hand_back()
        else:
            self._pass_to(replica, exchange, head)

    def _pass_to(self, replica: Peer, exchange: Exchange, head: RequestHead) -> None:
        assert exchange.request is not None
        route, body = exchange.request
        try:
            request = PassedRequest(
                self._replicas,
                replica,
                self._plan(replica, route, head),
                head.body_size if body is None else len(body),
                target=head.target,
                hand_back=self._hand_back,
                framing=self._framing,
                writer=self._writer,
                wire=self._wire,
                jobs=self._jobs,
                limits=self._listening.limits,
                settle=self._settle,
            )
        except (LocalProtocolError, ForwardFailed) as error:
            _log.warning("a request could not be passed on to replica %s: %s", replica.tag, error)
            exchange.answer(unavailable(head.target))
            self._settle()
            return
        self._begin(request, body)

    def _plan(self, replica: Peer, route: McpRoute | UploadRoute, head: RequestHead) -> ForwardPlan:
        if route is self._route and self._hop is not None and self._hop.is_for(replica):
            return self._hop.plan
        opening, peer = route.opening, self._wire.peer
        caller = HopCaller(
            opening.principal,
            route.identity.grants if isinstance(route, McpRoute) else NO_GRANTS,
            self._framing.owner,
            opening.base_url if isinstance(opening, PostOpening | DraftOpening) else "",
            peer.is_secure or self._listening.scheme == "https",
        )
        judged = Head(head.method, head.target, head.headers, head.version)
        hop = self._replicas.plan_hop(replica, judged, caller, is_streamed=isinstance(route, UploadRoute))
        if route is self._route:
            self._hop = hop
        return hop.plan

    def _hand_back(self) -> None:
        exchange = self._writer.exchange
        if exchange is None:  # the client is gone
            return
        assert exchange.request is not None
        route, body = exchange.request
        self._writer.close_channel(Cause(End.UNREACHABLE, "the other replica is gone"))
        opening = msgspec.structs.replace(route.opening, is_returned=True)
        self._report(msgspec.structs.replace(route, opening=opening), body)
