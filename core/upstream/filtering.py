"""What clients see of servers whose tools, prompts or resources are filtered: what is hidden might as well not exist.

It is left out of lists, a request for it is answered as one for something unknown and does not reach the server, and
changes of it are not told. This is decided here alone, between whatever clients are spoken to by and whatever servers
are reached by. What the proxy itself offers is added after that, and never hidden.

It fails closed: a name that cannot be read, or that two readers may read differently, counts as hidden. Results of what
may be used are not looked into, so a link or an embedded resource in them passes.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple
from urllib.parse import unquote

from ..base.errors import INVALID_PARAMS, RESOURCE_NOT_FOUND, RemoteProtocolError
from ..base.name_filter import Selection
from ..base.plan import ServerPlan
from ..jsonrpc.envelope import Frame, encode_error, text_of
from ..jsonrpc.splice import elements, members, set_member, take
from ..state.exchange import Exchange
from ..state.link import Link


class Listing(NamedTuple):
    """Whose selection a list goes by (a field of `ServerPlan`), where its result holds the entries, and the member that
    each is selected by."""

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
"""Requests that name one thing: the selection it goes by, and the member of the params with the name."""

REFERENCES: Final = {"ref/prompt": ("prompts", "name"), "ref/resource": ("resources", "uri")}
"""The same for the `ref` of `completion/complete`, by its type."""

_CLIMBS: Final = re.compile(r"(?:^|[/\\:])\.\.(?:[/\\?#]|$)")
"""A step to the folder above, by which a pattern for one folder would admit what lies in another."""


def refusal(link: Link, exchange: Exchange) -> bytes | None:
    """The answer to a request for what is hidden; None if the request may go up."""
    if link.session_of(exchange).sees_hidden:
        return None
    if exchange.method == "completion/complete":
        return _completion_refusal(link.plan, exchange)
    kind, key = USES.get(exchange.method, ("", ""))
    if not kind or not _selection(link.plan, kind):
        return None
    name = text_of(_member(exchange.params, key))
    if name is not None and _admits(link.plan, kind, name):
        return None
    if name is None:
        text = f"got {exchange.method} without a {key} that can be read, expected exactly one"
        return encode_error(exchange.id_raw, INVALID_PARAMS, text)
    if kind == "resources":
        return encode_error(exchange.id_raw, RESOURCE_NOT_FOUND, f"Resource not found: {name}", {"uri": name})
    return _unknown(exchange, kind, name)


def shown(link: Link, exchange: Exchange, result: bytes) -> bytes:
    """The result of a request as clients may see it: of a list, what is not hidden. Kept entries keep their bytes.

    Raises:
        RemoteProtocolError: a list of which that cannot be told.
    """
    listing = LISTS.get(exchange.method)
    if listing is None or not _selection(link.plan, listing.kind) or link.session_of(exchange).sees_hidden:
        return result
    array = take(result, members(result).get(listing.array))
    if array is None:
        return result
    entries = [array[start:stop] for start, stop in elements(array)] if array.startswith(b"[") else []
    names = [text_of(_member(entry, listing.key)) for entry in entries]
    kept = [
        entry
        for entry, name in zip(entries, names, strict=True)
        if name is not None and _admits(link.plan, listing.kind, name)
    ]
    if kept == entries and array.startswith(b"["):
        return result
    return set_member(result, listing.array, b"[" + b",".join(kept) + b"]")


def hides(link: Link, notification: Frame) -> bool:
    """Whether a notification of the server is about something hidden."""
    if notification.method != "notifications/resources/updated" or not link.plan.resources:
        return False
    if all(session.sees_hidden for session in link.sessions.values()):
        return False
    uri = text_of(_member(notification.params, "uri"))
    return uri is None or not _admits(link.plan, "resources", uri)


def _completion_refusal(plan: ServerPlan, exchange: Exchange) -> bytes | None:
    """Source: 2025-11-25 server/utilities/completion, "Error Handling": an invalid name is answered -32602."""
    if not plan.prompts and not plan.resources:
        return None
    reference = _member(exchange.params, "ref")
    kind, key = REFERENCES.get(text_of(_member(reference, "type")) or "", (None, None))
    if kind is not None and not _selection(plan, kind):
        return None
    name = None if key is None else text_of(_member(reference, key))
    if kind is None or name is None:
        text = "got a ref that cannot be read, expected a prompt's name or a resource's URI"
        return encode_error(exchange.id_raw, INVALID_PARAMS, text)
    return None if _admits(plan, kind, name) else _unknown(exchange, kind, name)


def _unknown(exchange: Exchange, kind: str, name: str) -> bytes:
    return encode_error(exchange.id_raw, INVALID_PARAMS, f"Unknown {kind[:-1]}: {name}")


def _selection(plan: ServerPlan, kind: str) -> Selection:
    selection: Selection = getattr(plan, kind)
    return selection


def _admits(plan: ServerPlan, kind: str, name: str) -> bool:
    selection = _selection(plan, kind)
    if kind == "resources" and name not in selection.include and _CLIMBS.search(unquote(name)):
        return False
    return selection.admits(name)


def _member(data: bytes | None, key: str) -> bytes | None:
    """The JSON of an object's member. None if it is missing, or there twice: also in another case, for some servers
    read members without regard to it."""
    if data is None or not data.startswith(b"{"):
        return None
    try:
        spans = members(data)
    except RemoteProtocolError:
        return None
    if any(other != key and other.casefold() == key.casefold() for other in spans):
        return None
    return take(data, spans.get(key))
