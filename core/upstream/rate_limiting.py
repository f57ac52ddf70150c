"""Rate limits: refuses calls of tools that come too often (`ServerPlan.rate_limits`).

A call counts where it comes from its client, before it waits for its server. What the proxy sends by itself does not
count: lists, a call once more, and what belongs to the questions of a call. A caller is who quotas are of: a principal,
or, where clients are not authenticated, an address.

The refusal is a result that reports an error, and not an error of the protocol: models are shown results, and the call
can be made again later. Only a call that asks for a task gets an error, as its result would have another form. The HTTP
status is 200 in any case. With 429, the official Python SDK 1.x ends the session with all its calls, and the TypeScript
SDKs show their callers an HTTP error in place of the message.
"""

from __future__ import annotations

from typing import Final

import msgspec

from ..base.errors import OVERLOADED, RemoteProtocolError
from ..base.plan import ServerPlan
from ..bridge.content import tool_error
from ..bridge.request_name import name_in, sole_member
from ..governance.rate_limits import RateLimits
from ..jsonrpc.envelope import encode_error, encode_result
from ..jsonrpc.splice import set_member
from ..state.context import Context
from ..state.exchange import Exchange
from ..state.interceptor import Interceptor
from ..state.link import Link
from ..state.session import Session
from .health import Health

RETRY_AFTER: Final = "dev.isthmus/retryAfterSeconds"
"""The key in the `_meta` of a refusal: whole seconds to wait."""


class RateLimiting(Interceptor):
    """Applies the rate limits of all servers.

    Args:
        health: counts the refused calls of each server.
    """

    name = "rate limits"

    def __init__(self, context: Context, health: dict[str, Health]) -> None:
        self._context = context
        self._health = health
        limits = {id: plan.rate_limits for id, plan in context.servers.items()}
        self._limits = RateLimits(limits, buckets_max=context.limits.rate_buckets_max)

    def is_for(self, plan: ServerPlan) -> bool:
        return bool(plan.rate_limits)

    def receive_request(self, link: Link, exchange: Exchange) -> bool:
        if exchange.method != "tools/call":
            return False
        try:
            tool = name_in(exchange.method, exchange.params)
        except RemoteProtocolError as error:
            link.router.finish(link, exchange, encode_error(exchange.id_raw, error.rpc_code, error.message))
            return True
        assert tool is not None
        owner = self._owner_of(link.session_of(exchange), exchange)
        refused = self._limits.take(link.plan.id, tool, owner, self._context.now)
        if refused is None:
            return False
        why = "too many callers make calls" if refused.limit is None else f"the limit is {refused.limit}"
        self._health[link.plan.id].receive_limited(tool)
        if refused.is_first:
            caller = owner or "a client that nobody recognises"
            self._context.note("warning", f"limited: {tool[:100]} for {caller}: {why}", link.plan.id, is_audit=True)
        text = f"{tool[:100]} of {link.plan.id} did not run: {why}. Try again in {refused.wait_s} s"
        self._refuse(link, exchange, text, refused.wait_s)
        return True

    def _owner_of(self, session: Session, exchange: Exchange) -> str:
        """Returns the owner of a request. Clients without sessions share one, whose owner is that of its first."""
        opening = getattr(self._context.role_of(exchange.key.channel), "opening", None)
        owner = getattr(opening, "owner", session.owner)
        assert isinstance(owner, str)
        return owner

    def _refuse(self, link: Link, exchange: Exchange, text: str, wait_s: int) -> None:
        if exchange.reply.ends_channel and exchange.reply.gathered is None:
            exchange.reply.add_headers((("Retry-After", str(wait_s)),))
        if not link.session_of(exchange).is_stateless and sole_member(exchange.params, "task") is not None:
            data = {"outcome": "not_executed", "retryAfterSeconds": wait_s}
            message = encode_error(exchange.id_raw, OVERLOADED, text, data)
        else:
            result = set_member(tool_error(text), "_meta", msgspec.json.encode({RETRY_AFTER: wait_s}))
            message = encode_result(exchange.id_raw, result)
        link.router.finish(link, exchange, message)


def wait_of(result: bytes) -> int | None:
    """Returns the whole seconds after which a call that was refused can be made again; None for any other result."""
    try:
        value = sole_member(sole_member(result, "_meta"), RETRY_AFTER)
        return None if value is None else max(0, msgspec.json.decode(value, type=int))
    except msgspec.DecodeError:
        return None
