"""The filters of our subscriptions with stateless servers: what the sessions of a link want, and what its server
offers."""

from __future__ import annotations

from ..base.errors import RemoteProtocolError
from ..jsonrpc import envelope
from ..state.context import Context
from ..state.link import Link
from ..state.listen_filter import LISTS, ListenFilter
from ..state.upstream_session import UpstreamSessionState


def wanted(link: Link) -> ListenFilter:
    """Returns what the sessions of a link want to be notified of, as far as the server offers it."""
    found = ListenFilter()
    for session in link.sessions.values():
        if session.is_stateless:
            for subscription in session.listens.values():
                found |= subscription.wanted
        elif not session.is_brief:
            found |= ListenFilter(tools=True, prompts=True, resources=True, uris=frozenset(session.subscriptions))
    return found & offered(link)


def offered(link: Link) -> ListenFilter:
    """Returns what the server declares that it notifies of. If it has resource subscriptions, that is each resource
    that a session wants: its acknowledgment says which of them it grants."""
    assert link.handshake.result is not None
    declared = envelope.member_of(link.handshake.result, "capabilities")
    tools, prompts, resources = (declares(declared, name, "listChanged") for name in LISTS.values())
    every_uri = frozenset(
        uri
        for session in link.sessions.values()
        for uri in {*session.subscriptions, *(u for each in session.listens.values() for u in each.wanted.uris)}
    )
    uris = every_uri if declares(declared, "resources", "subscribe") else frozenset()
    return ListenFilter(tools, prompts, resources, uris)


def declares(capabilities: bytes | None, name: str, ability: str) -> bool:
    """True if the capability `name` has the member `ability`, with the value true."""
    try:
        return envelope.member_of(envelope.member_of(capabilities, name), ability) == b"true"
    except RemoteProtocolError:
        return False


def renew_later(context: Context, link: Link) -> None:
    """Schedules a new subscription after `Limits.listen_pause_s`: what is wanted has changed, and may change again at
    once."""
    if link.is_stateless and link.upstream.state in (UpstreamSessionState.READY, UpstreamSessionState.REPLAYING):
        context.timers.set(("news", link.id), context.now + context.limits.listen_pause_s, "subscriptions")
