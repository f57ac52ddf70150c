"""The self-descriptions of servers that clients get: `initialize` results and `DiscoverResult`s."""

from __future__ import annotations

from typing import Final

import msgspec

from ..base.revisions import LATEST_LEGACY, features_of, is_known_legacy
from ..bridge import task_support
from ..bridge.discovery import to_discover_result, to_initialize_result
from ..jsonrpc import envelope
from ..jsonrpc.splice import set_member
from ..state.link import Link
from ..state.session import Session
from .task_offers import shown_capabilities


def discovery_of(link: Link, session: Session) -> bytes:
    """Returns the `DiscoverResult` for a client without sessions.

    Raises:
        RemoteProtocolError: the server's description cannot be translated for such a client.
    """
    assert link.handshake.result is not None
    shown = link.handshake.result
    if not link.is_stateless:
        # A server with sessions can push messages, except over HTTP without a session: there it has no stream.
        has_push = link.is_pipe or link.upstream.session is not None
        shown = to_discover_result(link.handshake.result, has_push=has_push)
    return shown if session.is_own else shown_capabilities(link, shown, is_legacy=False)


NOTHING_KNOWN: Final = to_discover_result(b'{"capabilities":{}}', has_push=False)
"""The `DiscoverResult` for a server whose description cannot be translated."""


def handshake_for(link: Link, session: Session) -> tuple[bytes, str | None]:
    """Returns the `initialize` result for a session, and its revision: the client's own, if that is known here. The
    result of a newer server is translated for it. A session of the driver's own is shown `tasks` if such a server has
    the extension."""
    shown, revision = _handshake_for(link, session)
    if session.is_own:
        is_left_out = link.is_stateless and link.abilities.calls
        return _with_tasks(shown) if is_left_out else shown, revision
    return shown_capabilities(link, shown, is_legacy=True, knows_tasks=features_of(revision).tasks), revision


def _with_tasks(handshake: bytes) -> bytes:
    declared = envelope.member_of(handshake, "capabilities")
    assert declared is not None, "a translated result has them"
    return set_member(handshake, "capabilities", task_support.declare_legacy(declared))


def _handshake_for(link: Link, session: Session) -> tuple[bytes, str | None]:
    assert link.handshake.result is not None
    wanted, offered = session.client.revision, link.upstream.revision
    if link.is_stateless:
        client = features_of(wanted if is_known_legacy(wanted) else LATEST_LEGACY)
        return to_initialize_result(link.handshake.result, client=client, name=link.plan.id), client.revision
    if wanted == offered or offered is None or not is_known_legacy(wanted):
        return link.handshake.result, offered
    return set_member(link.handshake.result, "protocolVersion", msgspec.json.encode(wanted)), wanted
