"""Errors for requests that a server refuses over credentials (HTTP 401 and 403).

As a rule the credentials are the proxy's own, from its configuration. A client can do nothing about those: it gets an
error that says so, and never sees the server's challenge. Where the plan passes on the client's `Authorization`, the
client is the one to authenticate: it gets the server's status and challenge, as it would without a proxy. Where the
proxy logs in, and a login is wanted, the error says how.

Source: RFC 9110, 11.6.1 and 15.5.2; 2025-06-18 basic/authorization, "Access Token Usage".
"""

from __future__ import annotations

from typing import Final, TypeGuard

import msgspec

from ..base.errors import UPSTREAM_UNAVAILABLE
from ..base.events import Cause, End
from ..base.plan import ServerPlan
from ..jsonrpc import envelope
from ..state.exchange import Exchange
from ..state.link import Link
from ..wire.http.failure import UNAUTHORIZED, error_in, login_error_in

FORBIDDEN: Final = 403


def is_denied(cause: Cause | None) -> TypeGuard[Cause]:
    """True if the server refused because credentials were missing or insufficient."""
    return cause is not None and cause.end is End.REFUSED and cause.status in (UNAUTHORIZED, FORBIDDEN)


def error_of(link: Link, exchange: Exchange | None, cause: Cause) -> bytes | None:
    """Returns the JSON of the error that a refused POST means for `exchange`; None if it holds none.

    Where the client is the one to authenticate, the status and the challenge are copied to its reply, too.
    """
    if not is_denied(cause):
        return error_in(cause)
    if cause.login:
        return login_error_in(cause)
    if not link.plan.passes_authorization:
        return _own_error(link.plan, cause)
    # The reply to a batch answers several requests, and a pipe has no HTTP status.
    if exchange is not None and exchange.reply.ends_channel and exchange.reply.gathered is None:
        exchange.reply.refuse(cause.status, cause.challenge)
    return error_in(cause) or _own_error(link.plan, cause, is_clients=True)


def handshake_error_of(link: Link, cause: Cause) -> bytes | None:
    """Returns the error for a refused handshake, as `error_of`, and records the denial on the link.

    Requests that wait for the handshake are refused with that denial, until a client sends other credentials.
    """
    link.handshake.receive_denial(cause if is_denied(cause) else None)
    return error_of(link, None if link.is_shared else link.session.opener, cause)


def login_page_of(cause: Cause) -> bytes | None:
    """Returns the params of an `elicitation/create` in URL mode, for a refusal that a login at a page would end; None
    for any other. Source: 2025-11-25 client/elicitation, "URL Mode Elicitation Requests"."""
    url = envelope.text_of(envelope.member_of(cause.login, "url")) if cause.login else None
    if url is None:
        return None
    id = envelope.text_of(envelope.member_of(cause.login, "elicitationId"))
    return msgspec.json.encode({"mode": "url", "elicitationId": id or url, "url": url, "message": cause.detail})


def _own_error(plan: ServerPlan, cause: Cause, *, is_clients: bool = False) -> bytes:
    fault = "wants credentials" if cause.status == UNAUTHORIZED else "refuses this, perhaps over the credentials it got"
    remedy = f"they are set with {plan.names.headers}"
    if is_clients:
        remedy = "it gets the Authorization that the client sends"
    text = f"the server {plan.id} {fault} (HTTP status {cause.status}): {remedy}"
    return msgspec.json.encode({"code": UPSTREAM_UNAVAILABLE, "message": text, "data": {"httpStatus": cause.status}})
