"""Servers that refuse a request over its credentials, and who is told what to do about it.

As a rule the credentials are this proxy's own, from its configuration: a client can do nothing about them, is told so
in an error, and never sees the server's challenge. Where a client's own `Authorization` is handed on, the client is the
one to authenticate: it gets the server's status and challenge, as if nobody stood between them.

Source: RFC 9110, 11.6.1 and 15.5.2; 2025-06-18 basic/authorization, "Access Token Usage".
"""

from __future__ import annotations

from typing import Final, TypeGuard

import msgspec

from ..base.effects import Cause, End
from ..base.errors import UPSTREAM_UNAVAILABLE
from ..state.exchange import Exchange
from ..state.link import Link
from ..wire.http.failure import error_in

UNAUTHORIZED: Final = 401
FORBIDDEN: Final = 403


def is_denied(cause: Cause | None) -> TypeGuard[Cause]:
    """Whether the server refused over credentials that were missing, or not good enough."""
    return cause is not None and cause.end is End.REFUSED and cause.status in (UNAUTHORIZED, FORBIDDEN)


def error_of(link: Link, exchange: Exchange | None, cause: Cause) -> bytes | None:
    """The JSON of the error that a refusing response means for `exchange`; None if it holds none.

    Where the client is the one to authenticate, its reply is given the status and the challenge, too.
    """
    if not is_denied(cause):
        return error_in(cause)
    if not link.plan.passes_authorization:
        return _own_error(link.plan.id, cause)
    # The reply to a batch is not one request's, and a pipe has no statuses.
    if exchange is not None and exchange.reply.ends_channel and exchange.reply.gathered is None:
        exchange.reply.status, exchange.reply.challenge = cause.status, cause.challenge
    return error_in(cause) or _own_error(link.plan.id, cause, is_clients=True)


def handshake_error_of(link: Link, cause: Cause) -> bytes | None:
    """As `error_of`, of a handshake; what waits for it is refused likewise, until other credentials come."""
    link.denial = cause if is_denied(cause) else None
    return error_of(link, None if link.is_shared else link.session.opener, cause)


def _own_error(server: str, cause: Cause, *, is_clients: bool = False) -> bytes:
    said = "wants credentials" if cause.status == UNAUTHORIZED else "refuses this, perhaps over the credentials it got"
    remedy = "they are set with upstream.headers, or come from clients with upstream.pass_headers"
    if is_clients:
        remedy = "it gets the Authorization that the client sends"
    text = f"the server {server} {said} (HTTP status {cause.status}): {remedy}"
    return msgspec.json.encode({"code": UPSTREAM_UNAVAILABLE, "message": text, "data": {"httpStatus": cause.status}})
