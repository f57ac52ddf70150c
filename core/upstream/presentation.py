"""Presents what servers list: cleans its texts, and shows tools under other names and with other texts.

A request names a tool as its client knows it. The name is replaced by the server's before anything else sees it, so
every rule, pin and metric speaks of the server's name. A tool whose name was given to another one does not exist for
clients. An entry that cannot be read is left out.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Final

import msgspec

from ..base.errors import RemoteProtocolError
from ..base.governance import Cleaning
from ..base.plan import ServerPlan
from ..bridge.request_name import sole_member
from ..governance.canonical import KEYS
from ..governance.clean import clean, cut_text, without_invisible
from ..governance.pins import JUDGMENTS_KEPT, KEPT_MAX_BYTES
from ..governance.tool_names import ToolNames, override
from ..jsonrpc.envelope import text_of
from ..jsonrpc.splice import elements, members, set_member, take
from ..state.context import Context
from ..state.exchange import Exchange
from ..state.interceptor import Interceptor
from ..state.link import Link
from .definition_filter import KINDS
from .filtering import LISTS, unknown

INSTRUCTIONS_MAX_CHARS: Final = 8_000
"""The longest instructions of a server: they are read with every conversation."""
SHOWN_CODES_MAX: Final = 8
"""The most characters that are named in a note."""


class Presentation(Interceptor):
    """The presentation of all servers."""

    name = "presentation"

    def __init__(self, context: Context) -> None:
        self._context = context
        self._names = {id: ToolNames(plan.shown.overrides) for id, plan in context.servers.items()}
        self._texts = {id: {one.tool: one for one in plan.shown.overrides} for id, plan in context.servers.items()}
        # An entry is presented once, however often it is listed.
        self._kept = {
            id: lru_cache(JUDGMENTS_KEPT)(partial(self._present, plan)) for id, plan in context.servers.items()
        }
        self._noted: dict[str, set[str]] = {id: set() for id in context.servers}

    def is_for(self, plan: ServerPlan) -> bool:
        return bool(plan.shown) or plan.clean is Cleaning.CLEAN

    def has_say(self, link: Link) -> bool:
        return bool(self._names[link.plan.id])  # else lists alone are changed

    def receive_request(self, link: Link, exchange: Exchange) -> bool:
        names = self._names[link.plan.id]
        if exchange.method != "tools/call" or not names or link.session_of(exchange).sees_hidden:
            return False
        shown = text_of(sole_member(exchange.params, "name"))
        if shown is None:
            return False  # the server, or a rule, refuses it
        raw = names.raw(shown)
        if raw is None:
            link.router.finish(link, exchange, unknown(exchange, "tools", shown))
            return True
        exchange.replace_params(_with_name(exchange.params, shown, raw))
        return False

    def receive_result(self, link: Link, exchange: Exchange, result: bytes) -> bytes:
        kind = KINDS.get(exchange.method)
        if kind is None or link.session_of(exchange).sees_hidden:
            return result
        plan = link.plan
        if plan.clean is not Cleaning.CLEAN and kind != "tools":
            return result
        listing = LISTS[exchange.method]
        array = take(result, members(result).get(listing.array))
        if array is None:
            return result
        kept, old = self._kept[plan.id], [array[start:stop] for start, stop in elements(array)]
        presented = [(kept if len(one) <= KEPT_MAX_BYTES else partial(self._present, plan))(kind, one) for one in old]
        new = [entry for entry in presented if entry is not None]
        return result if new == old else set_member(result, listing.array, b"[" + b",".join(new) + b"]")

    def _present(self, plan: ServerPlan, kind: str, entry: bytes) -> bytes | None:
        """Returns an entry of a list as clients see it; None if they do not."""
        name = text_of(sole_member(entry, KEYS[kind]))
        try:
            if plan.clean is Cleaning.CLEAN:
                entry = self._clean(plan, kind, name or "", entry)
            return self._shown(plan, name, entry) if kind == "tools" and plan.shown else entry
        except RemoteProtocolError as error:
            self._note(plan, f"{kind}: {(name or '')[:100]} is left out: {error.message}")
            return None

    def adapt_handshake(self, link: Link, result: bytes) -> bytes:
        if link.plan.clean is not Cleaning.CLEAN:
            return result
        text = text_of(take(result, members(result).get("instructions")))
        if text is None:
            return result
        shown = cut_text(without_invisible(text), INSTRUCTIONS_MAX_CHARS)
        if shown == text:
            return result
        self._note(link.plan, "its instructions are cleaned: invisible characters dropped, or cut")
        return set_member(result, "instructions", msgspec.json.encode(shown))

    def _shown(self, plan: ServerPlan, name: str | None, entry: bytes) -> bytes | None:
        """Returns a tool as clients see it; None if they do not."""
        if name is None:
            return None
        shown = self._names[plan.id].shown(name)
        if shown is None:
            self._note(plan, f"tools: {name[:100]} is left out: another tool is shown under this name")
            return None
        return override(entry, self._texts[plan.id].get(name), plan.shown, None if shown == name else shown)

    def _clean(self, plan: ServerPlan, kind: str, name: str, entry: bytes) -> bytes:
        cleaned = clean(kind, entry)
        if cleaned.data is entry:
            return entry
        did = []
        if cleaned.dropped:
            codes = sorted({f"U+{ord(char):04X}" for char in cleaned.dropped})
            more = ["…"] if len(codes) > SHOWN_CODES_MAX else []
            did.append(
                f"{len(cleaned.dropped)} invisible characters dropped ({', '.join(codes[:SHOWN_CODES_MAX] + more)})"
            )
        if cleaned.cut:
            did.append(f"{cleaned.cut} texts cut")
        self._note(plan, f"{kind}: {name[:100]} is cleaned: {', '.join(did)}")
        return cleaned.data

    def _note(self, plan: ServerPlan, text: str) -> None:
        """Notes something once for each server."""
        noted = self._noted[plan.id]
        if text not in noted:
            if len(noted) < self._context.limits.tools_known_max:
                noted.add(text)
            self._context.note("warning", text, plan.id)


def raw_params(plan: ServerPlan, method: str, params: bytes | None) -> bytes | None:
    """Returns the params of a request with the server's name of the tool that it is about, for rules that are asked
    before the request is routed."""
    names = ToolNames(plan.shown.overrides) if method == "tools/call" else None
    shown = text_of(sole_member(params, "name")) if names else None
    raw = None if names is None or shown is None else names.raw(shown)
    return params if shown is None or raw is None else _with_name(params, shown, raw)


def _with_name(params: bytes | None, shown: str, raw: str) -> bytes | None:
    return params if params is None or raw == shown else set_member(params, "name", msgspec.json.encode(raw))
