"""The roots that a server with files is told: the session's own folders in place of the client's, which are paths of
another machine."""

from __future__ import annotations

from urllib.parse import quote

import msgspec

from ..base.path_mapping import to_there
from ..jsonrpc import envelope
from ..jsonrpc.splice import set_member
from ..state.context import Context
from ..state.session import Session


def roots_of(context: Context, session: Session) -> bytes:
    """Returns the result of `roots/list` for a server whose roots the proxy owns: the session's folders, the working
    one first, because some servers take the first root as theirs."""
    base = f"{context.plan.workspaces_path}/{session.workspace}"
    shared = context.servers[session.server].shared
    roots = [
        {"uri": "file://" + quote(to_there(f"{base}/{name}", shared)), "name": name} for name in ("ws", "in", "out")
    ]
    return msgspec.json.encode({"roots": roots})


def with_roots(initialize: bytes) -> bytes:
    """Returns the params of `initialize` with the capability `roots` declared, whatever the client offers.

    Raises:
        RemoteProtocolError: the params are no object, or have a member twice.
    """
    capabilities = envelope.member_of(initialize, "capabilities")
    if capabilities is None or not capabilities.startswith(b"{"):
        capabilities = b"{}"
    return set_member(initialize, "capabilities", set_member(capabilities, "roots", b"{}"))
