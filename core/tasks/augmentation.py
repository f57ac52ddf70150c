"""Calls before they go up: whether their client wants a task, whether their server may make one, and whether one is
made here.

Source: 2025-11-25 basic/utilities/tasks, "Task Support and Handling"; the tasks extension, "Capability Negotiation".
"""

from __future__ import annotations

from typing import Protocol

from ..base.errors import METHOD_NOT_FOUND, MISSING_CAPABILITY, RemoteProtocolError
from ..base.plan import Offer
from ..bridge import task_support, tasks
from ..bridge.task_support import Support
from ..downstream.responder import Courier
from ..jsonrpc import envelope
from ..state.context import Desk
from ..state.exchange import NO_WISH, Exchange, Wish
from ..state.link import Link
from ..state.session import Session
from ..upstream import task_offers
from ..upstream.task_offers import NEEDED, OURS, tool_of
from ..upstream.tool_discovery import Schooling
from .local_tasks import Tasking


class Finish(Protocol):
    def finish(self, link: Link, exchange: Exchange, message: bytes) -> None: ...


class Calling:
    """All calls of tools."""

    def __init__(self, desk: Desk, courier: Courier, tasking: Tasking, schooling: Schooling) -> None:
        self.onward: Finish
        self._desk = desk
        self._courier = courier
        self._tasking = tasking
        self._schooling = schooling

    # --- From the client --------------------------------------------------------------------------------------------

    def receive_request(self, link: Link, session: Session, exchange: Exchange) -> bool:
        """A client with a session calls, and may want that to be a task. True if it is refused.

        A `task` that was not offered means nothing: "Receivers that do not declare the task capability for a request
        type MUST process requests of that type normally" (2025-11-25 basic/utilities/tasks).
        """
        if exchange.method != "tools/call" or session.is_stateless or not exchange.params:
            return False
        if b"task" not in exchange.params and b"\\u" not in exchange.params:
            return False
        if not session.features.tasks or not task_offers.are_offered(link):
            return False
        try:
            is_asked, ttl_ms = tasks.wanted(exchange.params)
            if not is_asked:
                return False
            if task_offers.support_of(link, tool_of(exchange)) is Support.FORBIDDEN:
                raise _forbidden(tool_of(exchange))
            exchange.wish = Wish(is_asked=True, ttl_ms=ttl_ms)
            exchange.params = tasks.plain(exchange.params)
            self._tasking.room.reserve(session, exchange)
        except RemoteProtocolError as error:
            exchange.wish = NO_WISH
            message = envelope.encode_error(exchange.id_raw, error.rpc_code, error.message)
            self._courier.answer(session, exchange, message)
            return True
        self._tasking.adopt_later(session, exchange, self._desk.limits.task_grace_s)
        return False

    # --- Up ---------------------------------------------------------------------------------------------------------

    def prepare(self, link: Link, exchange: Exchange) -> bool:
        """A call is about to go up. True if it waits, or is refused."""
        if exchange.method != "tools/call":
            return False
        session = link.session_of(exchange)
        if session.is_stateless and exchange.leg is not None:
            knows = task_support.declares(exchange.leg.capabilities) and task_offers.are_offered(link)
            knows = knows and self._may_be_task(link, session, exchange)
            if knows is not exchange.wish.knows_tasks:
                exchange.wish = exchange.wish._replace(knows_tasks=knows)
        if not (link.abilities.calls or exchange.wish.is_asked or exchange.wish.knows_tasks):
            exchange.is_augmented = False
            return False
        tool = tool_of(exchange)
        if link.abilities.calls and not link.is_stateless and not link.knows_supports:
            self._schooling.begin(link, exchange)
            return True
        try:
            self._decide(link, session, exchange, tool)
        except RemoteProtocolError as error:
            message = envelope.encode_error(exchange.id_raw, error.rpc_code, error.message, error.data)
            exchange.is_native = True
            self.onward.finish(link, exchange, message)
            return True
        if exchange.task is None and exchange.wish.knows_tasks:
            self._begin_later(link, session, exchange, tool)
        return exchange.is_over

    def _decide(self, link: Link, session: Session, exchange: Exchange, tool: str) -> None:
        """Raises RemoteProtocolError where it is no way to call the tool."""
        wish, rules = exchange.wish, link.plan.tasks
        offered = task_offers.support_of(link, tool)
        if wish.is_asked and exchange.task is None and offered is Support.FORBIDDEN:
            raise _forbidden(tool)
        is_wanted = wish.is_asked or (wish.knows_tasks and offered is not Support.FORBIDDEN)
        exchange.is_augmented = False
        if not link.abilities.calls:
            return
        if link.is_stateless:
            exchange.is_augmented = is_wanted or exchange.must_augment
            return
        declared = link.supports.get(tool)
        if declared is Support.REQUIRED:
            if rules.strict and not is_wanted:
                raise _required(tool, is_stateless=session.is_stateless)
            exchange.is_augmented = True
        elif declared is Support.OPTIONAL and is_wanted:
            exchange.is_augmented = wish.is_asked or exchange.token_raw is None

    def _may_be_task(self, link: Link, session: Session, exchange: Exchange) -> bool:
        """Whether there is room for one: a place is kept before the server makes what could not be told of."""
        if exchange.task is not None or task_offers.support_of(link, tool_of(exchange)) is Support.FORBIDDEN:
            return exchange.task is not None
        try:
            self._tasking.room.reserve(session, exchange)
        except RemoteProtocolError as fault:
            self._desk.note("warning", f"a call can be no task: {fault.message}", session.server)
            return False
        return True

    def _begin_later(self, link: Link, session: Session, exchange: Exchange, tool: str) -> None:
        """A client that may be told of a task either way: by what the plan says, and how long the call takes."""
        offer = link.plan.tasks.offer_for(tool)
        if offer is Offer.ALWAYS:
            self._tasking.adopt(session, exchange)
        elif offer in OURS and not link.abilities.calls and exchange.token_raw is None:
            self._tasking.adopt_later(session, exchange, self._desk.limits.task_after_s)

    def params_to_legacy(self, exchange: Exchange, params: bytes | None) -> bytes | None:
        """The params of a request as a server with sessions is to have them.

        Raises:
            RemoteProtocolError: they are no object, or have a member twice.
        """
        if exchange.method != "tools/call":
            return params
        if exchange.is_augmented:
            wanted_ms = exchange.wish.ttl_ms
            limits = self._desk.limits
            ttl_ms = tasks.clamp_ttl(wanted_ms, int(limits.task_ttl_s * 1000), int(limits.task_ttl_max_s * 1000))
            return tasks.augmented(params, ttl_ms)
        return tasks.plain(params) if params is not None and b"task" in params else params

    def capabilities_up(self, exchange: Exchange, capabilities: bytes) -> bytes:
        """What a server without sessions is told that the client of a request can do."""
        if exchange.method != "tools/call":
            return capabilities
        if exchange.is_augmented:
            return capabilities if task_support.declares(capabilities) else task_support.declare_modern(capabilities)
        return task_offers.without_extension(capabilities)

    # --- Down -------------------------------------------------------------------------------------------------------

    def must_repeat(self, link: Link, exchange: Exchange, error: bytes) -> bool:
        """A server refused a call for want of tasks: it is called again as one, and waited for.

        One with sessions can say so only if it also does without: it is spoken to in that way from then on.

        Source: the tasks extension, "Capability Negotiation": -32021, naming the extension.
        """
        if exchange.method != "tools/call" or exchange.is_augmented or exchange.must_augment or link.plan.tasks.strict:
            return False
        if link.is_stateless and not link.abilities.calls:
            return False
        if not link.is_stateless and (link.plan.era is not None or link.session_of(exchange).is_stateless):
            return False
        if envelope.error_code(error) != MISSING_CAPABILITY:
            return False
        try:
            needed = envelope.member_of(envelope.member_of(error, "data"), "requiredCapabilities")
        except RemoteProtocolError:
            return False
        exchange.must_augment = task_support.declares(needed)
        return exchange.must_augment


def _forbidden(tool: str) -> RemoteProtocolError:
    text = f"Tool {tool[:100]} cannot be called as a task: call it without"
    return RemoteProtocolError(text, rpc_code=METHOD_NOT_FOUND)


def _required(tool: str, *, is_stateless: bool) -> RemoteProtocolError:
    text = f"Tool {tool[:100]} requires task augmentation: call it as a task"
    if is_stateless:
        return RemoteProtocolError(text, rpc_code=MISSING_CAPABILITY, data=NEEDED)
    return RemoteProtocolError(text, rpc_code=METHOD_NOT_FOUND)
