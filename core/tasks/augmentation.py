"""Task augmentation of `tools/call` requests before they are sent upstream: whether the client wants a task, whether
the server may make one of the call, and whether the proxy makes one itself.

Source: 2025-11-25 basic/utilities/tasks, "Task Support and Handling"; the tasks extension, "Capability Negotiation".
"""

from __future__ import annotations

from ..base.errors import METHOD_NOT_FOUND, MISSING_CAPABILITY, RemoteProtocolError
from ..base.plan import OURS, Offer, ServerPlan
from ..bridge import task_support, tasks
from ..bridge.task_support import NEEDED, Support
from ..downstream.responder import Responder
from ..jsonrpc import envelope
from ..jsonrpc.envelope import Frame
from ..jsonrpc.outline import outline_of
from ..state.context import Context
from ..state.exchange import Exchange, ExchangeState, TaskOptions
from ..state.interceptor import Interceptor
from ..state.link import Link
from ..state.session import Session
from ..upstream import task_offers
from ..upstream.task_offers import tool_of
from ..upstream.tool_discovery import ToolDiscovery
from .local_tasks import LocalTasks


class TaskRoom(Interceptor):
    """Gets a place for the task that a call may become from what all replicas may have together. That asks the storage
    once for many tasks; the call waits for it."""

    name = "task room"

    def __init__(self, context: Context, local_tasks: LocalTasks) -> None:
        self._context = context
        self._local_tasks = local_tasks

    def is_for(self, plan: ServerPlan) -> bool:
        return plan.tasks.are_offered and self._context.plan.replica is not None

    def has_say(self, link: Link) -> bool:
        return False

    def receive_request(self, link: Link, exchange: Exchange) -> bool:
        session = link.session_of(exchange)
        if exchange.method != "tools/call" or not _may_want_task(session, exchange):
            return False
        is_held = False

        def prepared(problem: str) -> None:
            if problem:  # a call that must be a task is refused for want of a place
                self._context.note("warning", f"no place for a task: {problem}", session.server)
            if is_held and exchange.state is ExchangeState.PREPARING:
                link.router.forward(link, exchange, after=self.name)

        is_answered = self._local_tasks.task_quota.prepare(session, prepared)
        is_held = not is_answered
        return is_held


def _may_want_task(session: Session, exchange: Exchange) -> bool:
    if session.is_stateless:
        return exchange.request is not None and task_support.declares(exchange.request.capabilities)
    return session.features.tasks and b"task" in outline_of(exchange.params or b"")


class TaskWishes(Interceptor):
    """Reads from calls of clients with sessions whether they want a task."""

    name = "task wishes"

    def __init__(self, context: Context, responder: Responder, local_tasks: LocalTasks) -> None:
        self._context = context
        self._responder = responder
        self._local_tasks = local_tasks

    def has_say(self, link: Link) -> bool:
        return False

    def receive_request(self, link: Link, exchange: Exchange) -> bool:
        """Handles a call of a client with a session, which may ask for a task. True if the call is refused.

        A `task` param that was not offered is ignored: "Receivers that do not declare the task capability for a request
        type MUST process requests of that type normally" (2025-11-25 basic/utilities/tasks).
        """
        session = link.session_of(exchange)
        if exchange.method != "tools/call" or session.is_stateless or not exchange.params:
            return False
        words = outline_of(exchange.params)
        if b"task" not in words and b"\\u" not in words:
            return False
        is_offered = task_offers.are_offered(link)
        if not session.features.tasks or not (is_offered or session.leg is not None):
            return False
        try:
            is_asked, ttl_ms = tasks.wanted(exchange.params)
            if not is_asked:
                return False
            if not is_offered or task_offers.support_of(link, tool_of(exchange)) is Support.FORBIDDEN:
                raise _forbidden(tool_of(exchange))
            self._promise(session, exchange, ttl_ms)
        except RemoteProtocolError as error:
            message = envelope.encode_error(exchange.id_raw, error.rpc_code, error.message)
            self._responder.answer(session, exchange, message)
            return True
        return False

    def receive_own(self, session: Session, exchange: Exchange) -> None:
        """Handles a call of a tool that a profile has itself, of a client with a session.

        Raises:
            RemoteProtocolError: it asks for a task, and there is no place for one.
        """
        is_asked, ttl_ms = tasks.wanted(exchange.params or b"{}")
        if is_asked:
            self._promise(session, exchange, ttl_ms)

    def _promise(self, session: Session, exchange: Exchange, ttl_ms: int | None) -> None:
        """Lets a call become a task: with its response, or when it takes longer than mistakes do."""
        exchange.want_task(self._local_tasks, TaskOptions(is_asked=True, ttl_ms=ttl_ms))
        try:
            exchange.replace_params(tasks.without_task(exchange.params))
            self._local_tasks.reserve(session, exchange)
        except RemoteProtocolError:
            exchange.forget_wish()
            raise
        self._local_tasks.adopt_later(session, exchange, self._context.limits.task_grace_s)


class TaskAugmentation(Interceptor):
    """The task augmentation of all tool calls."""

    name = "task augmentation"

    def __init__(self, context: Context, local_tasks: LocalTasks, tool_discovery: ToolDiscovery) -> None:
        self._context = context
        self._local_tasks = local_tasks
        self._tool_discovery = tool_discovery

    def has_say(self, link: Link) -> bool:
        return link.abilities.calls

    # --- To the server ------------------------------------------------------------------------------------------------

    def prepare(self, link: Link, exchange: Exchange) -> bool:
        """Prepares a call that is about to be sent upstream. True if it must not be sent now: it waits until the
        server's tools are known, or is refused, or is over."""
        if exchange.method != "tools/call":
            return False
        session = link.session_of(exchange)
        if session.is_stateless and exchange.request is not None:
            knows = task_support.declares(exchange.request.capabilities) and task_offers.are_offered(link)
            knows = knows and self._may_be_task(link, session, exchange)
            if knows is not exchange.task_options.knows_tasks:
                exchange.want_task(self._local_tasks, exchange.task_options._replace(knows_tasks=knows))
        if not (link.abilities.calls or exchange.task_options.is_asked or exchange.task_options.knows_tasks):
            exchange.augment(False)
            return False
        tool = tool_of(exchange)
        if link.abilities.calls and not link.is_stateless and not link.tools.knows_supports:
            self._tool_discovery.begin(link, exchange)
            return True
        try:
            self._decide(link, session, exchange, tool)
        except RemoteProtocolError as error:
            message = envelope.encode_error(exchange.id_raw, error.rpc_code, error.message, error.data)
            exchange.mark_native()
            link.router.finish(link, exchange, message)
            return True
        if exchange.task is None and exchange.task_options.knows_tasks:
            self._begin_later(link, session, exchange, tool)
        return exchange.is_over

    def _decide(self, link: Link, session: Session, exchange: Exchange, tool: str) -> None:
        """Decides whether the server may make a task of the call. Raises RemoteProtocolError if the tool cannot be
        called so."""
        task_options, rules = exchange.task_options, link.plan.tasks
        offered = task_offers.support_of(link, tool)
        if task_options.is_asked and exchange.task is None and offered is Support.FORBIDDEN:
            raise _forbidden(tool)
        is_wanted = task_options.is_asked or (task_options.knows_tasks and offered is not Support.FORBIDDEN)
        exchange.augment(False)
        if not link.abilities.calls:
            return
        if link.is_stateless:
            exchange.augment(is_wanted or exchange.must_augment)
            return
        declared = link.tools.supports.get(tool)
        if declared is Support.REQUIRED:
            if rules.strict and not is_wanted:
                raise _required(tool, is_stateless=session.is_stateless)
            exchange.augment(True)
        elif declared is Support.OPTIONAL and is_wanted:
            exchange.augment(task_options.is_asked or exchange.token_raw is None)

    def _may_be_task(self, link: Link, session: Session, exchange: Exchange) -> bool:
        """True if the call may become a task. Its place in the quota is reserved before the server can make a task for
        which there is no room."""
        if exchange.task is not None or task_offers.support_of(link, tool_of(exchange)) is Support.FORBIDDEN:
            return exchange.task is not None
        try:
            self._local_tasks.reserve(session, exchange)
        except RemoteProtocolError as fault:
            self._context.note("warning", f"a call can be no task: {fault.message}", session.server)
            return False
        return True

    def _begin_later(self, link: Link, session: Session, exchange: Exchange, tool: str) -> None:
        """Makes a task of the call here, at once or after `Limits.task_after_s`, as the plan offers it for the tool.
        The client accepts a task as well as a result."""
        offer = link.plan.tasks.offer_for(tool)
        if offer is Offer.ALWAYS:
            self._local_tasks.adopt(session, exchange)
        elif offer in OURS and not link.abilities.calls and exchange.token_raw is None:
            self._local_tasks.adopt_later(session, exchange, self._context.limits.task_after_s)

    # --- From the server ----------------------------------------------------------------------------------------------

    def receive_response(self, link: Link, exchange: Exchange, frame: Frame) -> bool:
        if frame.error is None or exchange.state is not ExchangeState.SENT:
            return False
        if not self._must_repeat(link, exchange, envelope.usable_error(frame.error)):
            return False
        exchange.requeue()
        if link.is_stateless:
            link.router.resend(link, exchange)
        else:
            link.router.renegotiate(link, exchange, for_tasks=True)
        return True

    def _must_repeat(self, link: Link, exchange: Exchange, error: bytes) -> bool:
        """True if a server refused a call because it needs tasks: the call is sent again, as one that may become a
        task.

        A server with sessions can answer so only if it is stateless as well: it is used without a session from then
        on.

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
        if not task_support.declares(needed):
            return False
        exchange.require_task()
        return True


def _forbidden(tool: str) -> RemoteProtocolError:
    text = f"Tool {tool[:100]} cannot be called as a task: call it without"
    return RemoteProtocolError(text, rpc_code=METHOD_NOT_FOUND)


def _required(tool: str, *, is_stateless: bool) -> RemoteProtocolError:
    text = f"Tool {tool[:100]} requires task augmentation: call it as a task"
    if is_stateless:
        return RemoteProtocolError(text, rpc_code=MISSING_CAPABILITY, data=NEEDED)
    return RemoteProtocolError(text, rpc_code=METHOD_NOT_FOUND)
