"""Names and URIs in the messages of one server, rewritten where the schema of the message has one, and nowhere else.

`LISTINGS`, `RESULTS` and `MESSAGES` say where: a path of members, and what is at its end. The places of all revisions
are in one table, as no place of one means something else in another. Text, arguments, structured content and `_meta`
are not looked into, but for the URI of a tool's user interface. What is not rewritten keeps its bytes.

What cannot be read keeps its bytes, too: a good result is never lost over a rewriting. An entry of a list is left out
instead, as it would show a raw name, or could say that it is of another server; so is the second of two with one name.
A request is refused.

The headers that mirror a request are derived from its params when it is written (`wire/http/mcp_headers`), and are
right once these are. Roots are the client's own, and are in no table.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from typing import Final, Literal, NamedTuple

import msgspec

from ..base.errors import INVALID_PARAMS, RemoteProtocolError
from ..bridge.request_name import NAMED_BY, REFERENCED_BY, name_in, sole_member
from ..jsonrpc.append import readable_members
from ..jsonrpc.envelope import number_of, text_of
from ..jsonrpc.splice import Edit, Span, elements, members, set_member, splice, take
from .names import Kind, Names, Route, Shortened, Unknown
from .uris import Uris

SERVER: Final = "dev.isthmus/server"
"""The member of the `_meta` of an entry of a list that has the id of its server."""

CHAIN: Final = "dev.isthmus/chain"
"""The member that tells how many profiles an entry has come through before, if it has come through any."""

CHAIN_MAX: Final = 3
"""Profiles one behind another: those of a person, a team and a vendor, and one more. At it: entries are left out. So
the list of a profile that contains itself ends."""

CANDIDATES_MAX: Final = 8
"""Candidates in the error for an unknown name. At it: the others are left out."""

_NAME_SHOWN_CHARS: Final = 100

Path = tuple[str, ...]
What = Literal["tools", "prompts", "uri", "template", "asked", "blocks", "sampled", "questions"]
"""The kinds of places: names, URIs, texts for the user, and the `UNIONS` of objects that may have any, alone or in an
array."""


class Place(NamedTuple):
    """A place in JSON, and what is there. `*` in the path is each member or element."""

    path: Path
    kind: What


class Variants(NamedTuple):
    """Objects of several types: the member that tells which, and the places in those that have any."""

    key: str
    places: Mapping[str, Place]


class Listing(NamedTuple):
    """The result of a list: the array of its entries, the member with the name of each, and places in its `_meta`."""

    array: str
    name: Place
    in_meta: tuple[Place, ...] = ()


class Holder(NamedTuple):
    """A message that may have something to rewrite: words of which it then has one, and the places."""

    words: tuple[bytes, ...]
    places: tuple[Place, ...]


# Source: 2026-07-28 schema, ContentBlock, SamplingMessageContentBlock, InputRequest.
UNIONS: Final[Mapping[str, Variants]] = {
    "blocks": Variants(
        "type", {"resource_link": Place(("uri",), "uri"), "resource": Place(("resource", "uri"), "uri")}
    ),
    "sampled": Variants("type", {"tool_result": Place(("content",), "blocks")}),
    "questions": Variants(
        "method",
        {
            "sampling/createMessage": Place(("params", "messages", "*", "content"), "sampled"),
            "elicitation/create": Place(("params", "message"), "asked"),
        },
    ),
}

# Source: MCP Apps 2026-01-26, "Resource Discovery"; the second form is deprecated there.
_UI: Final = (Place(("ui", "resourceUri"), "uri"), Place(("ui/resourceUri",), "uri"))

LISTINGS: Final = {
    "tools/list": Listing("tools", Place(("name",), "tools"), _UI),
    "prompts/list": Listing("prompts", Place(("name",), "prompts")),
    "resources/list": Listing("resources", Place(("uri",), "uri")),
    "resources/templates/list": Listing("resourceTemplates", Place(("uriTemplate",), "template")),
}

_URI: Final = (b'"uri"',)
_URI_OR_QUESTION: Final = (b'"uri"', b'"inputRequests"')
_QUESTIONS: Final = Place(("inputRequests", "*"), "questions")

RESULTS: Final = {
    "tools/call": Holder(_URI_OR_QUESTION, (Place(("content",), "blocks"), _QUESTIONS)),
    "prompts/get": Holder(_URI_OR_QUESTION, (Place(("messages", "*", "content"), "blocks"), _QUESTIONS)),
    "resources/read": Holder(_URI_OR_QUESTION, (Place(("contents", "*", "uri"), "uri"), _QUESTIONS)),
    "tasks/result": Holder(_URI, (Place(("content",), "blocks"),)),
    "tasks/get": Holder(_URI_OR_QUESTION, (Place(("result", "content"), "blocks"), _QUESTIONS)),
}
"""The results of requests other than lists, by method. The last one is of the tasks extension."""

MESSAGES: Final = {
    "notifications/resources/updated": Holder(_URI, (Place(("uri",), "uri"),)),
    "notifications/subscriptions/acknowledged": Holder(
        (b'"resourceSubscriptions"',), (Place(("notifications", "resourceSubscriptions", "*"), "uri"),)
    ),
    "notifications/tasks": RESULTS["tasks/get"],
    "sampling/createMessage": Holder(_URI, (Place(("messages", "*", "content"), "sampled"),)),
    "elicitation/create": Holder((b'"message"',), (Place(("message",), "asked"),)),
}
"""The params of requests and notifications of servers, by method."""

KINDS: Final[Mapping[str, Kind]] = {"tools/call": "tools", "prompts/get": "prompts", "ref/prompt": "prompts"}
"""The kind of name in a request of a client, by its method or the type of its `ref`. Other names are URIs."""
NAMING: Final = frozenset(
    {
        "tools/call",
        "prompts/get",
        "resources/read",
        "resources/subscribe",
        "resources/unsubscribe",
        "completion/complete",
    }
)
"""Requests that name something of one server. The id of a task is not a name."""


class Snapshot(NamedTuple):
    """The names that one server has listed.

    Attributes:
        tools, prompts: each a `Names.catalogue`.
        uris: the raw URIs of its resources.
    """

    tools: Mapping[str, str] = {}
    prompts: Mapping[str, str] = {}
    uris: Container[str] = ()


class Addressed(NamedTuple):
    """A request of a client in the words of its server: the raw name or URI in it, and the params with that."""

    server: str
    raw: str
    params: bytes


class Rewriter:
    """Rewrites the messages of the servers of one profile."""

    def __init__(self, names: Names, uris: Uris) -> None:
        self._names = names
        self._uris = uris

    # --- From a server to its clients -------------------------------------------------------------------------------

    def result(self, server: str, method: str, result: bytes) -> bytes:
        """Returns the result of a request as clients see it; the same object if nothing in it is to be rewritten.

        Raises:
            RemoteProtocolError: it is a list that cannot be read.
        """
        listing = LISTINGS.get(method)
        if listing is not None:
            return self._list(server, listing, result)
        return self._held(server, RESULTS.get(method), result)

    def message(self, server: str, method: str, params: bytes) -> bytes:
        """Returns the params of a request or notification of a server as clients see them; the same object if nothing
        in them is to be rewritten."""
        return self._held(server, MESSAGES.get(method), params)

    def _held(self, server: str, holder: Holder | None, data: bytes) -> bytes:
        # A member's name may be spelled with escapes.
        if holder is None or not (any(word in data for word in holder.words) or b"\\u" in data):
            return data
        edits = self._edits(server, data, holder.places)
        return splice(data, edits) if edits else data

    def _edits(self, server: str, data: bytes, places: tuple[Place, ...]) -> list[Edit]:
        edits = []
        for place in places:
            for kind, span in _leaves(data, place, Span(0, len(data))):
                text = text_of(take(data, span))
                exposed = None if text is None else self._exposed(server, kind, text)
                if exposed != text:
                    edits.append(Edit(*span, msgspec.json.encode(exposed)))
        return edits

    def _exposed(self, server: str, kind: What, raw: str) -> str:
        if kind == "tools" or kind == "prompts":
            return self._names.expose(server, kind, raw)
        if kind == "asked":
            return f"[{self._names.aliases.of(server) or server}] {raw}"
        return self._uris.expose(server, raw) if kind == "uri" else self._uris.expose_template(server, raw)

    def _list(self, server: str, listing: Listing, result: bytes) -> bytes:
        whole = members(result).get(listing.array)
        array = take(result, whole)
        if whole is None or array is None or not array.startswith(b"["):
            return result
        spans = elements(array)
        entries: dict[str, bytes] = {}
        edits = []
        for span in spans:
            shown = self._entry(server, listing, array[span.start : span.stop])
            if shown is not None and shown[0] not in entries:
                entries[shown[0]] = shown[1]
                edits.append(Edit(*span, shown[1]))
        if len(entries) == len(spans):
            array = splice(array, edits)
        else:
            array = b"[" + b",".join(entries.values()) + b"]"
        return splice(result, [Edit(*whole, array)])

    def _entry(self, server: str, listing: Listing, entry: bytes) -> tuple[str, bytes] | None:
        """Returns the name of an entry and the entry, as clients see them. None if the name or the `_meta` cannot be
        read in one way only, or if the entry has come through too many profiles."""
        spans = readable_members(entry)
        key = listing.name.path[0]
        span, at = spans.get(key), spans.get("_meta")
        raw = text_of(take(entry, span))
        folded = [one.casefold() for one in spans]
        if span is None or raw is None or folded.count(key.casefold()) > 1 or folded.count("_meta") > (at is not None):
            return None
        exposed = self._exposed(server, listing.name.kind, raw)
        meta = take(entry, at) or b"null"
        try:
            meta = splice(meta, self._edits(server, meta, listing.in_meta))
            meta = b"{}" if meta == b"null" else meta
            if SERVER in members(meta):
                passed = 1 + (number_of(take(meta, members(meta).get(CHAIN)) or b"") or 0)
                if passed > CHAIN_MAX:
                    return None
                meta = set_member(meta, CHAIN, b"%d" % passed)
            meta = set_member(meta, SERVER, msgspec.json.encode(server))
        except RemoteProtocolError:
            return None
        edits = [] if exposed == raw else [Edit(*span, msgspec.json.encode(exposed))]
        if at is None:
            end = next(reversed(spans.values())).stop
            edits.append(Edit(end, end, b',"_meta":' + meta))
        else:
            edits.append(Edit(*at, meta))
        return exposed, splice(entry, edits)

    # --- From a client to a server ----------------------------------------------------------------------------------

    def address(self, method: str, params: bytes | None, snapshots: Mapping[str, Snapshot]) -> Addressed | None:
        """Returns the server that a request is for, and its params for that server. None for a request that names
        nothing, or something of the profile itself.

        Args:
            snapshots: what is known of the lists of servers.

        Raises:
            RemoteProtocolError: the name cannot be read, or is of no server, or a URI without an alias is of several
                (INVALID_PARAMS). The error names candidates.
        """
        name = name_in(method, params) if method in NAMING else None
        if name is None or params is None:
            return None
        path: Path
        if method == "completion/complete":
            type_ = text_of(sole_member(sole_member(params, "ref"), "type")) or ""
            kind, path = KINDS.get(type_), ("ref", REFERENCED_BY[type_])
        else:
            kind, path = KINDS.get(method), (NAMED_BY[method],)
        if kind is None and self._uris.is_own(name):
            return None
        found = self._routed_uri(name, snapshots) if kind is None else self._routed_name(kind, name, snapshots)
        if isinstance(found, Unknown):
            raise _unknown(kind, name, found)
        (span,) = _values(params, path, Span(0, len(params)))
        return Addressed(found.server, found.raw, splice(params, [Edit(*span, msgspec.json.encode(found.raw))]))

    def fixed_route(self, method: str, name: str) -> Route | None:
        """Returns the server of the name or URI of a request, and the name there, if the configuration alone decides
        about them; None if they depend on what servers have listed, or there is none."""
        kind = KINDS.get(method)
        found = self._uris.route(name) if kind is None else self._names.route(kind, name)
        return found if isinstance(found, Route) else None

    def may_change(self, method: str, message: bytes) -> bool:
        """True if a response may have something to rewrite, or may be a list."""
        holder = RESULTS.get(method)
        if holder is None:
            return True
        find = message.find  # `in` takes twice as long: it tries to read the word as a number first
        return find(b"\\u") >= 0 or max(map(find, holder.words)) >= 0

    def route_uri(self, uri: str, snapshots: Mapping[str, Snapshot]) -> Route | None:
        """Returns the server of a URI that a client names, and the URI there. None if it is of no server, or of
        several."""
        found = None if self._uris.is_own(uri) else self._routed_uri(uri, snapshots)
        return found if isinstance(found, Route) else None

    def _routed_name(self, kind: Kind, name: str, snapshots: Mapping[str, Snapshot]) -> Route | Unknown:
        found = self._names.route(kind, name)
        if isinstance(found, Route):
            return found
        if isinstance(found, Shortened):
            raw = _catalogue(snapshots, found.server, kind).get(found.exposed)
            return Unknown(()) if raw is None else Route(found.server, raw)
        return Unknown(tuple(one for one in found.candidates if one.exposed in _catalogue(snapshots, one.server, kind)))

    def _routed_uri(self, uri: str, snapshots: Mapping[str, Snapshot]) -> Route | Unknown:
        found = self._uris.route(uri)
        if found is not None:
            return found
        holders = [server for server, snapshot in snapshots.items() if uri in snapshot.uris]
        if len(holders) == 1:
            return Route(holders[0], uri)
        return Unknown(tuple(Shortened(server, self._uris.expose(server, uri)) for server in holders))


def _catalogue(snapshots: Mapping[str, Snapshot], server: str, kind: Kind) -> Mapping[str, str]:
    snapshot = snapshots.get(server, Snapshot())
    return snapshot.tools if kind == "tools" else snapshot.prompts


def unknown_name(method: str, params: bytes | None) -> RemoteProtocolError:
    """Returns the error for a request that names something of no server that there is for its client: the same whether
    or not there is such a server for others."""
    type_ = text_of(sole_member(sole_member(params, "ref"), "type")) if method == "completion/complete" else method
    return _unknown(KINDS.get(type_ or ""), name_in(method, params) or "", Unknown(()))


def _unknown(kind: Kind | None, name: str, found: Unknown) -> RemoteProtocolError:
    candidates = [one.exposed for one in found.candidates[:CANDIDATES_MAX]]
    what = {"tools": "tool", "prompts": "prompt", None: "resource"}[kind]
    expected = f"one of {', '.join(candidates)}" if candidates else "a name from the list"
    return RemoteProtocolError(
        f"Unknown {what}: {name[:_NAME_SHOWN_CHARS]}; expected {expected}",
        rpc_code=INVALID_PARAMS,
        data={"candidates": candidates},
    )


# --- Places ---------------------------------------------------------------------------------------------------------


def _leaves(data: bytes, place: Place, within: Span) -> Iterator[tuple[What, Span]]:
    """Yields the names and URIs at a place below a value of `data`: what each is, and where."""
    union = UNIONS.get(place.kind)
    for span in _values(data, place.path, within):
        if union is None:
            yield place.kind, span
            continue
        for one in _items(data, span) if data.startswith(b"[", span.start) else (span,):
            item = data[one.start : one.stop]
            type_ = text_of(take(item, readable_members(item).get(union.key)))
            below = union.places.get(type_ or "")
            if below is not None:
                yield from _leaves(data, below, one)


def _values(data: bytes, path: Path, within: Span) -> Iterator[Span]:
    """Yields the values at a path below a value of `data`. What cannot be read has none."""
    if not path:
        yield within
        return
    if path[0] == "*":
        found = _items(data, within)
    else:
        span = readable_members(_value(data, within)).get(path[0])
        found = [] if span is None else [_shifted(span, within)]
    for one in found:
        yield from _values(data, path[1:], one)


def _items(data: bytes, within: Span) -> list[Span]:
    """Returns each element of an array, or the value of each member of an object."""
    value = _value(data, within)
    try:
        spans = elements(value) if value.startswith(b"[") else list(readable_members(value).values())
    except RemoteProtocolError:
        return []
    return [_shifted(span, within) for span in spans]


def _value(data: bytes, span: Span) -> bytes:
    return data if span == (0, len(data)) else data[span.start : span.stop]


def _shifted(span: Span, within: Span) -> Span:
    return Span(within.start + span.start, within.start + span.stop)
