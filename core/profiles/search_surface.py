"""The tools of a profile whose clients search: they are listed instead of those of the servers, and never change.

`search_tools` answers from what the lists of the servers hold for the caller. `call_tool` and `call_read_only_tool`
become a call of the tool that they name, which goes the way of every other call: all rules hold there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from ..base.errors import RemoteProtocolError
from ..base.grants import Grants
from ..bridge.request_name import sole_member
from ..downstream.responder import Responder
from ..jsonrpc import envelope
from ..jsonrpc.splice import Edit, build_object, members, remove_members, splice, take
from ..search.answers import (
    CALL_READ_ONLY_TOOL,
    CALL_TOOL,
    SEARCH_TOOLS,
    SURFACE,
    answer_search,
    definitions,
    error_result,
)
from ..state.exchange import Exchange
from ..state.ports import TaskDirectory
from .catalogues import Catalogues
from .client_kind import ClientKind
from .fetches import TTL_MAX_S
from .legs import Front, LegReply
from .lists import REASONS_MAX_CHARS, Lists
from .pages import page_of
from .profile import ProfileView

SEARCHABLE: Final = frozenset({"tools/list", "tools/call"})
"""The methods that have to do with these tools."""
_CALL_MEMBERS: Final = frozenset({"name", "arguments"})


class SearchSurface:
    """The tools by which clients of a profile find and call those of the servers.

    Args:
        tasks: the tasks of all servers; None if this copy has none.
        shows: returns whether a server exists for a caller with these grants.
    """

    def __init__(
        self,
        responder: Responder,
        view: ProfileView,
        lists: Lists,
        tasks: TaskDirectory | None,
        shows: Callable[[str, Grants], bool],
    ) -> None:
        self._responder = responder
        self._view = view
        self._lists = lists
        self._tasks = tasks
        self._shows = shows
        self._catalogues = Catalogues()

    def receive(self, front: Front, exchange: Exchange) -> bytes | None:
        """Handles a request of one of the methods `SEARCHABLE`. Returns the params of the call that is to be sent on;
        None if the request is answered here."""
        if exchange.method == "tools/list":
            self._list(front, exchange)
            return None
        params = exchange.params or b"{}"
        name = envelope.text_of(sole_member(params, "name"))
        if name not in SURFACE:
            return params
        arguments = sole_member(params, "arguments") or b"{}"
        if name == SEARCH_TOOLS:
            if self._may_be_task(front, exchange):
                self._search(front, exchange, arguments)
            return None
        try:
            params, wanted = _unwrapped(params, arguments)
        except RemoteProtocolError as error:
            self._refuse(front, exchange, f"{name}: {error.message}")
            return None
        if name == CALL_READ_ONLY_TOOL and not self._is_read_only(front, exchange, wanted):
            text = f"{wanted[:100]} is not known to be read-only: search for it, or use {CALL_TOOL}"
            self._refuse(front, exchange, text)
            return None
        exchange.drop_mirrored()  # headers that mirror arguments of another tool
        return params

    def _list(self, front: Front, exchange: Exchange) -> None:
        servers = self._labels(self._lists.kind_of(front, exchange))
        has_tasks = self._view.has_tasks_everywhere and self._knows_tasks(front)
        tools = definitions(servers.values(), has_read_only=True, has_tasks=has_tasks)
        entries = dict(zip(SURFACE, tools, strict=True))
        ttl_ms = int(TTL_MAX_S * 1000) if front.session.is_stateless else None
        try:
            result = page_of("tools", entries, exchange.params, {}, ttl_ms)
        except RemoteProtocolError as error:
            self._responder.fail(front.session, exchange, error.rpc_code, error.message)
            return
        self._answer(front, exchange, result)

    def _search(self, front: Front, exchange: Exchange, arguments: bytes) -> None:
        meta = sole_member(exchange.params, "_meta")
        has_meta = meta is not None and meta.startswith(b"{")
        params = build_object({"_meta": remove_members(meta, {"progressToken"})} if meta and has_meta else {})
        listing = Exchange(
            exchange.key,
            LegReply(lambda _reply, _message: None),
            sid=exchange.sid,
            id_raw=exchange.id_raw,
            id_key=exchange.id_key,
            method="tools/list",
            params=params,
            headers=exchange.headers,
            request=exchange.request,
            trace=exchange.trace,
        )
        self._lists.request(front, listing, partial(self._receive_lists, front, exchange, arguments))

    def _receive_lists(
        self,
        front: Front,
        exchange: Exchange,
        arguments: bytes,
        kind: ClientKind,
        lists: Mapping[str, Mapping[str, bytes]],
        absent: Mapping[str, str],
    ) -> None:
        """Answers a search from the lists of servers."""
        if exchange.is_over:
            return
        labels = self._labels(kind)
        missing = {labels[server]: why for server, why in absent.items()}
        if missing and not lists:
            reasons = "; ".join(f"{label}: {why}" for label, why in missing.items())
            text = f"No server can be asked. Search again later. {reasons}"
            self._answer(front, exchange, error_result(text[:REASONS_MAX_CHARS]))
            return
        index = self._catalogues.index_of(kind, {labels[server]: entries for server, entries in lists.items()})
        purposes = dict.fromkeys(labels.values(), "")
        features = front.session.features
        self._answer(front, exchange, answer_search(index, arguments, purposes, features, missing=missing))

    def _labels(self, kind: ClientKind) -> dict[str, str]:
        """Returns what the servers that clients of a kind may see are called in searches: the alias, or the id of the
        server that has none."""
        aliases = self._view.names.aliases
        found = {}
        for server in self._view.servers:
            if self._shows(server, kind.grants):
                bare = f"_{server}" if aliases.server_of(server) else server
                found[server] = aliases.of(server) or bare
        return found

    def _is_read_only(self, front: Front, exchange: Exchange, name: str) -> bool:
        entry = self._lists.entry(self._lists.kind_of(front, exchange), "tools/list", name)
        return sole_member(sole_member(entry, "annotations"), "readOnlyHint") == b"true"

    def _knows_tasks(self, front: Front) -> bool:
        return not front.session.is_stateless and front.session.features.tasks

    def _may_be_task(self, front: Front, exchange: Exchange) -> bool:
        """Handles the wish of a client to have a task of a call that is answered here. False if it is refused."""
        if self._tasks is None or not self._view.has_tasks or not self._knows_tasks(front):
            return True
        try:
            self._tasks.receive_call(front.session, exchange)
        except RemoteProtocolError as error:
            self._responder.fail(front.session, exchange, error.rpc_code, error.message)
            return False
        return True

    def _refuse(self, front: Front, exchange: Exchange, text: str) -> None:
        if self._may_be_task(front, exchange):
            self._answer(front, exchange, error_result(text))

    def _answer(self, front: Front, exchange: Exchange, result: bytes) -> None:
        self._responder.answer(front.session, exchange, envelope.encode_result(exchange.id_raw, result))


def _unwrapped(params: bytes, arguments: bytes) -> tuple[bytes, str]:
    """Returns the params of the call that a call of `call_tool` stands for, and the name of the tool.

    Raises:
        RemoteProtocolError: they cannot be read.
    """
    if not arguments.startswith(b"{"):
        raise RemoteProtocolError("got arguments that are no object, expected name and arguments")
    spans = members(arguments)
    others = [key for key in spans if key not in _CALL_MEMBERS]
    if others:
        raise RemoteProtocolError(f"got the argument {others[0][:100]!r}, expected name and arguments only")
    name_raw = take(arguments, spans.get("name"))
    name = None if name_raw is None else envelope.text_of(name_raw)
    if name is None or name_raw is None:
        raise RemoteProtocolError("got no name that is a text, expected the name of a tool as search_tools shows it")
    inner = take(arguments, spans.get("arguments"))
    if inner is not None and inner != b"null" and not inner.startswith(b"{"):
        raise RemoteProtocolError("got arguments of the tool that are no object, expected an object")
    if inner is None or inner == b"null":
        params = remove_members(params, {"arguments"})
        return splice(params, [Edit(*members(params)["name"], name_raw)]), name
    outer = members(params)
    return splice(params, [Edit(*outer["name"], name_raw), Edit(*outer["arguments"], inner)]), name
