"""The tasks that clients are offered: those of the server, and those that the proxy makes of its calls.

Source: 2025-11-25 basic/utilities/tasks, "Tool-Level Negotiation"; the tasks extension, "Capability Negotiation".
"""

from __future__ import annotations

from ..base.errors import RemoteProtocolError
from ..base.limits import Limits
from ..base.plan import OURS, Offer
from ..bridge import task_support, tasks
from ..bridge.task_support import Support
from ..bridge.tasks import TASKS
from ..jsonrpc import envelope
from ..jsonrpc.outline import outline_of
from ..jsonrpc.splice import remove_member, set_member
from ..state.exchange import Exchange
from ..state.link import Link
from ..state.session import Session


def are_offered(link: Link) -> bool:
    """True if a server's tasks are shown to clients at all."""
    rules = link.plan.tasks
    if not rules.are_offered:
        return False
    return link.abilities.calls or rules.offer in OURS or any(offer in OURS for _, offer in rules.tools)


def support_of(link: Link, tool: str) -> Support | None:
    """Returns the task support of a tool that clients are shown; None if the server's list of tools must be read
    first."""
    offer = link.plan.tasks.offer_for(tool)
    if offer is Offer.NEVER:
        return Support.FORBIDDEN
    if not link.abilities.calls:
        return Support.OPTIONAL if offer in OURS else Support.FORBIDDEN
    if link.is_stateless:
        return Support.OPTIONAL  # a stateless server decides with each call
    return link.tools.supports.get(tool, Support.FORBIDDEN) if link.tools.knows_supports else None


def tool_of(exchange: Exchange) -> str:
    """Returns the name of the tool that a call is for; "" if it cannot be read."""
    try:
        return envelope.text_of(envelope.member_of(exchange.params, "name")) or ""
    except RemoteProtocolError:
        return ""


def shown_capabilities(link: Link, handshake: bytes, *, is_legacy: bool, knows_tasks: bool = True) -> bytes:
    """Returns a handshake result in which the server's capabilities show the tasks that are offered.

    Args:
        handshake: the result for clients of that era.
        knows_tasks: the client's revision has tasks.
    """
    declared = envelope.member_of(handshake, "capabilities")
    if declared is None or not declared.startswith(b"{"):
        return handshake
    is_offered = knows_tasks and are_offered(link)
    if is_legacy:
        shown = remove_member(declared, "tasks") if not is_offered else task_support.declare_legacy(declared)
    elif is_offered:
        shown = task_support.declare_modern(declared)
    else:
        shown = without_extension(declared)
    return handshake if shown == declared else set_member(handshake, "capabilities", shown)


def without_extension(capabilities: bytes) -> bytes:
    """Returns capabilities, of a client or a server, without the tasks extension."""
    extensions = envelope.member_of(capabilities, "extensions")
    if extensions is None or not extensions.startswith(b"{"):
        return capabilities
    kept = remove_member(extensions, TASKS)
    if kept == extensions:
        return capabilities
    if kept.strip()[1:-1].strip():
        return set_member(capabilities, "extensions", kept)
    return remove_member(capabilities, "extensions")


def shown_tools(link: Link, session: Session, result: bytes) -> bytes:
    """Returns a list of tools for a client with a session, with the task support of each tool.

    Raises:
        RemoteProtocolError: the list cannot be read.
    """
    if session.is_stateless or session.is_own:
        return result
    if not session.features.tasks or not are_offered(link):
        if not link.abilities.calls:
            return result  # without the capability, `execution.taskSupport` has no meaning
        return task_support.show_support(result, lambda tool, declared: None)

    def decide(tool: str, declared: Support | None) -> Support | None:
        if link.plan.tasks.offer_for(tool) is Offer.NEVER:
            return None
        if link.abilities.calls and not link.is_stateless:
            return declared
        found = support_of(link, tool)
        return None if found is Support.FORBIDDEN else found

    return task_support.show_support(result, decide)


def params_to_legacy(exchange: Exchange, params: bytes | None, limits: Limits) -> bytes | None:
    """Returns the params of a request for a server with sessions: a call has the member `task` if the server may make a
    task of it.

    Raises:
        RemoteProtocolError: they are no object, or have a member twice.
    """
    if exchange.method != "tools/call":
        return params
    if exchange.is_augmented:
        wanted_ms = exchange.task_options.ttl_ms
        ttl_ms = tasks.clamp_ttl(wanted_ms, int(limits.task_ttl_s * 1000), int(limits.task_ttl_max_s * 1000))
        return tasks.augmented(params, ttl_ms)
    return tasks.without_task(params) if params is not None and b"task" in outline_of(params) else params


def capabilities_up(exchange: Exchange, capabilities: bytes) -> bytes:
    """Returns the client capabilities to send to a stateless server with a request: those of a call include the tasks
    extension if the server may make a task of it."""
    if exchange.method != "tools/call":
        return capabilities
    if exchange.is_augmented:
        return capabilities if task_support.declares(capabilities) else task_support.declare_modern(capabilities)
    return without_extension(capabilities)
