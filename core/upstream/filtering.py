"""Name filters: hides a server's tools, prompts and resources from clients, as if they did not exist.

A hidden entry is left out of lists. A request for it is answered as one for an unknown name and does not reach the
server, and its update notifications are dropped. These rules stand here alone, and hold for every transport and era.
Entries that the proxy itself adds come after, and are never hidden.

Filtering fails closed: a name that cannot be read, or that two readers may read differently, counts as hidden. Results
of requests that are allowed are not looked into, so a link or an embedded resource in them passes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NamedTuple
from urllib.parse import unquote

from ..base.errors import INVALID_PARAMS, RESOURCE_NOT_FOUND
from ..base.name_filter import NameFilter
from ..base.plan import ServerPlan
from ..bridge.request_name import sole_member
from ..jsonrpc.envelope import Frame, encode_error, text_of
from ..jsonrpc.splice import elements, members, set_member, take
from ..state.exchange import Exchange
from ..state.interceptor import Interceptor
from ..state.link import Link


class Listing(NamedTuple):
    """A list method: the filter it goes by (a field of `ServerPlan`), the member of its result with the entries, and
    the member by which each entry is filtered."""

    kind: str
    array: str
    key: str


# Source: 2025-11-25 schema, ListToolsResult, ListPromptsResult, ListResourcesResult, ListResourceTemplatesResult.
LISTS: Final = {
    "tools/list": Listing("tools", "tools", "name"),
    "prompts/list": Listing("prompts", "prompts", "name"),
    "resources/list": Listing("resources", "resources", "uri"),
    "resources/templates/list": Listing("resources", "resourceTemplates", "uriTemplate"),
}

USES: Final = {
    "tools/call": ("tools", "name"),
    "prompts/get": ("prompts", "name"),
    "resources/read": ("resources", "uri"),
    "resources/subscribe": ("resources", "uri"),
    "resources/unsubscribe": ("resources", "uri"),
}
"""Requests that name one entry: the filter they go by, and the member of the params with the name."""

REFERENCES: Final = {"ref/prompt": ("prompts", "name"), "ref/resource": ("resources", "uri")}
"""The filter and the member with the name, by the type of the `ref` of `completion/complete`."""

_CLIMBS: Final = re.compile(r"(?:^|[/\\:])\.\.(?:[/\\?#]|$)")
"""A step to the parent folder, by which a pattern for one folder would admit what lies in another."""


class NameFiltering(Interceptor):
    """Refuses requests for hidden entries, and leaves these out of lists."""

    name = "name filter"

    def is_for(self, plan: ServerPlan) -> bool:
        return bool(plan.tools or plan.prompts or plan.resources)

    def receive_request(self, link: Link, exchange: Exchange) -> bool:
        refused = refusal(link, exchange)
        if refused is not None:
            link.router.finish(link, exchange, refused)
        return refused is not None

    def receive_result(self, link: Link, exchange: Exchange, result: bytes) -> bytes:
        return shown(link, exchange, result)


def refusal(link: Link, exchange: Exchange) -> bytes | None:
    """Returns the response to a request for a hidden entry; None if the request may be sent to the server."""
    if link.session_of(exchange).sees_hidden:
        return None
    if exchange.method == "completion/complete":
        return _completion_refusal(link.plan, exchange)
    kind, key = USES.get(exchange.method, ("", ""))
    if not kind or not _filter_of(link.plan, kind):
        return None
    name = text_of(sole_member(exchange.params, key))
    if name is not None and _admits(link.plan, kind, name):
        return None
    if name is None:
        text = f"got {exchange.method} without a {key} that can be read, expected exactly one"
        return encode_error(exchange.id_raw, INVALID_PARAMS, text)
    return unknown(exchange, kind, name)


def shown(link: Link, exchange: Exchange, result: bytes) -> bytes:
    """Returns the result of a request as clients may see it: a list without its hidden entries. Kept entries keep their
    bytes.

    Raises:
        RemoteProtocolError: the list cannot be read.
    """
    listing = LISTS.get(exchange.method)
    if listing is None or not _filter_of(link.plan, listing.kind) or link.session_of(exchange).sees_hidden:
        return result
    return with_entries(result, listing, lambda name: _admits(link.plan, listing.kind, name))


def with_entries(result: bytes, listing: Listing, admits: Callable[[str], bool]) -> bytes:
    """Returns a list with those of its entries whose names can be read and are admitted. Kept entries keep their bytes.

    Raises:
        RemoteProtocolError: the list cannot be read.
    """
    array = take(result, members(result).get(listing.array))
    if array is None:
        return result
    entries = [array[start:stop] for start, stop in elements(array)] if array.startswith(b"[") else []
    names = [text_of(sole_member(entry, listing.key)) for entry in entries]
    kept = [entry for entry, name in zip(entries, names, strict=True) if name is not None and admits(name)]
    if kept == entries and array.startswith(b"["):
        return result
    return set_member(result, listing.array, b"[" + b",".join(kept) + b"]")


def hides(link: Link, notification: Frame) -> bool:
    """True if a notification of the server is about a hidden resource."""
    if notification.method != "notifications/resources/updated" or not link.plan.resources:
        return False
    if all(session.sees_hidden for session in link.sessions.values()):
        return False
    uri = text_of(sole_member(notification.params, "uri"))
    return uri is None or not _admits(link.plan, "resources", uri)


def _completion_refusal(plan: ServerPlan, exchange: Exchange) -> bytes | None:
    """Refuses a completion for a hidden prompt or resource.

    Source: 2025-11-25 server/utilities/completion, "Error Handling": an invalid name is answered -32602.
    """
    if not plan.prompts and not plan.resources:
        return None
    reference = sole_member(exchange.params, "ref")
    kind, key = REFERENCES.get(text_of(sole_member(reference, "type")) or "", (None, None))
    if kind is not None and not _filter_of(plan, kind):
        return None
    name = None if key is None else text_of(sole_member(reference, key))
    if kind is None or name is None:
        text = "got a ref that cannot be read, expected a prompt's name or a resource's URI"
        return encode_error(exchange.id_raw, INVALID_PARAMS, text)
    return None if _admits(plan, kind, name) else _unknown(exchange, kind, name)


def unknown(exchange: Exchange, kind: str, name: str) -> bytes:
    """Returns the response to a request for something that does not exist."""
    if kind == "resources" and exchange.method != "completion/complete":
        return encode_error(exchange.id_raw, RESOURCE_NOT_FOUND, f"Resource not found: {name}", {"uri": name})
    return _unknown(exchange, kind, name)


def climbs(uri: str) -> bool:
    """True if a URI has a step to the parent folder, by which it may be another resource than its text says."""
    return _CLIMBS.search(unquote(uri)) is not None


def _unknown(exchange: Exchange, kind: str, name: str) -> bytes:
    return encode_error(exchange.id_raw, INVALID_PARAMS, f"Unknown {kind[:-1]}: {name}")


def _filter_of(plan: ServerPlan, kind: str) -> NameFilter:
    name_filter: NameFilter = getattr(plan, kind)
    return name_filter


def _admits(plan: ServerPlan, kind: str, name: str) -> bool:
    name_filter = _filter_of(plan, kind)
    if kind == "resources" and name not in name_filter.include and climbs(name):
        return False
    return name_filter.admits(name)
