"""Judges what servers list (`ServerPlan.pins`, `ServerPlan.clean`): leaves definitions out of lists, and refuses their
use.

A definition is judged in the server's words, before anything is translated. A use of one that the server has not listed
yet on this link waits until the proxy has read the list itself. It is read again once the server has said that it has
changed. A server without sessions need not say so, so its lists are read again after `Limits.definitions_ttl_s`. Where
the plan refuses nothing, no use waits, and what differs is noted.

Replicas may share the lock as a record. When that changes, everything is judged anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from ..base.errors import DENIED, METHOD_NOT_FOUND, RemoteProtocolError
from ..base.plan import ServerPlan
from ..bridge.request_meta import add
from ..bridge.request_name import name_in, sole_member
from ..downstream.responder import Responder
from ..governance.lock import RECORD_KEY, LockError, parse_lock
from ..governance.pins import FINE, DefinitionRules, Fault, Finding, matches_template
from ..jsonrpc import envelope
from ..jsonrpc.envelope import Frame, encode_error, text_of
from ..jsonrpc.splice import elements, members, set_member, take
from ..state.context import Context
from ..state.exchange import Exchange
from ..state.interceptor import Interceptor
from ..state.known_definitions import KnownDefinitions, Reading
from ..state.link import Link, OwnRequest
from .filtering import LISTS, unknown
from .health import Health
from .writer import UpstreamWriter

PURPOSE: Final = "definitions"
KINDS: Final = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "templates",
}
"""The kind of the definitions of each list."""
_METHODS: Final = {kind: method for method, kind in KINDS.items()}
_USES: Final = {
    "tools/call": "tools",
    "prompts/get": "prompts",
    "resources/read": "resources",
    "resources/subscribe": "resources",
}
"""The kind of what a request uses."""
_READ_FOR: Final = {"tools": ("tools",), "prompts": ("prompts",), "resources": ("resources", "templates")}
_CHANGES: Final = {
    "notifications/tools/list_changed": ("tools",),
    "notifications/prompts/list_changed": ("prompts",),
    "notifications/resources/list_changed": ("resources", "templates"),
}
RESTARTS_MAX: Final = 2
"""Times that a list is begun anew because it changed while it was read. Some servers say so with each list."""


class DefinitionFilter(Interceptor):
    """The judge of all definitions.

    Args:
        health: of each server, by its id; it records what differs.
        responder: tells clients of lists that the lock has changed.
    """

    name = "definitions"
    purposes = frozenset({PURPOSE})

    def __init__(
        self, context: Context, writer: UpstreamWriter, health: Mapping[str, Health], responder: Responder
    ) -> None:
        self._context = context
        self._responder = responder
        self._writer = writer
        self._health = health
        self._rules = {
            id: DefinitionRules(plan.pins, plan.clean)
            for id, plan in context.servers.items()
            if plan.judges_definitions
        }

    def receive_record(self, key: str, value: bytes | None, links: Iterable[Link]) -> None:
        """Handles a record that another process has written. If it is the lock, what servers list is judged by it from
        now on, and clients are told to read the lists again. One that cannot be read, or was removed, changes nothing.

        Args:
            links: all links.
        """
        if key != RECORD_KEY or value is None:
            return
        try:
            lock = parse_lock(value.decode())
        except (UnicodeDecodeError, LockError) as error:
            self._context.note("error", f"the lock of the pins stays as it was: the new one cannot be used: {error}")
            return
        changed = {id for id, rules in self._rules.items() if rules.receive_approved(lock.get(id, ()))}
        for id in changed:
            self._context.note("info", "its definitions are judged by a new lock", id)
        for link in links:
            if link.plan.id in changed:
                self._forget(link)

    def _forget(self, link: Link) -> None:
        """Forgets all judgments of a link, and tells its clients."""
        for method, kinds in _CHANGES.items():
            for kind in kinds:
                _known_of(link).receive_change(kind, link.last_id)
            for session in list(link.sessions.values()):
                self._responder.announce(session, method)

    def is_for(self, plan: ServerPlan) -> bool:
        return plan.judges_definitions

    # --- Uses -------------------------------------------------------------------------------------------------------

    def prepare(self, link: Link, exchange: Exchange) -> bool:
        session, rules = link.session_of(exchange), self._rules[link.plan.id]
        use = _use_of(exchange)
        if use is None or session.sees_hidden:
            return False
        try:
            name = name_in(exchange.method, exchange.params)
        except RemoteProtocolError as error:
            if rules.may_block:
                self._refuse(link, exchange, encode_error(exchange.id_raw, error.rpc_code, error.message))
            return rules.may_block
        assert name is not None
        known = _known_of(link)
        finding = self._find(link, rules, use, name)
        if finding is None:
            reading = known.readings.get(use)
            if reading is None:
                reading = known.begin(use, _READ_FOR[use])
                self._ask(link, use, reading, None)
            if rules.may_block:
                reading.wait(exchange)
            return rules.may_block
        if not rules.blocks(finding):
            return False
        if finding.fault is Fault.NEW:
            self._refuse(link, exchange, unknown(exchange, use, name))
        else:
            text = f"{name[:100]} is not used: {finding.text}. An operator has to approve it"
            data = {"outcome": "not_executed", "reason": f"definition_{finding.fault.value}"}
            self._refuse(link, exchange, encode_error(exchange.id_raw, DENIED, text, data))
        return True

    def _find(self, link: Link, rules: DefinitionRules, use: str, name: str) -> Finding | None:
        """Returns the judgment of what is used; None if the lists of its server have to be read for it."""
        known, now = _known_of(link), self._context.now
        since = now - self._context.limits.definitions_ttl_s if link.is_stateless else float("-inf")
        is_whole = all(known.is_whole(kind, since) for kind in _READ_FOR[use])
        finding = known.find(use, name) or (known.find("templates", name) if use == "resources" else None)
        if finding is not None and (is_whole or not link.is_stateless):
            return finding
        if not is_whole and not known.has_failed(use, now - self._context.limits.lookup_s):
            return None
        if finding is not None:
            return finding
        if use == "resources":
            of_templates = [
                found for template, found in known.listed("templates").items() if matches_template(template, name)
            ]
            if of_templates:
                return next((found for found in of_templates if not rules.blocks(found)), of_templates[0])
        return rules.judge_unlisted(use, name, is_whole=is_whole)

    def _refuse(self, link: Link, exchange: Exchange, error: bytes) -> None:
        exchange.mark_native()  # the error needs no translation to the client's era
        link.router.finish(link, exchange, error)

    # --- Lists ------------------------------------------------------------------------------------------------------

    def receive_result(self, link: Link, exchange: Exchange, result: bytes) -> bytes:
        kind = KINDS.get(exchange.method)
        if kind is None or link.session_of(exchange).sees_hidden:
            return result
        rules = self._rules[link.plan.id]
        try:
            judged = self._judge(rules, exchange.method, result)
        except RemoteProtocolError:
            if rules.may_block:
                raise
            return result
        self._learn(
            link,
            kind,
            _by_name(rules, judged),
            is_whole=_is_first(exchange.params) and _next(result) is None,
            number=exchange.upstream_id or 0,
        )
        kept = [entry for entry, _, finding in judged if not rules.blocks(finding)]
        return result if len(kept) == len(judged) else _with_entries(result, exchange.method, kept)

    def _judge(self, rules: DefinitionRules, method: str, result: bytes) -> list[tuple[bytes, str, Finding]]:
        """Returns the entries of a page, with their names and judgments.

        Raises:
            RemoteProtocolError: the page cannot be read.
        """
        kind, listing = KINDS[method], LISTS[method]
        array = take(result, members(result).get(listing.array))
        if array is None:
            return []
        found = []
        for start, stop in elements(array):
            entry = array[start:stop]
            found.append((entry, *rules.judge(kind, entry)))
        return found

    def _learn(self, link: Link, kind: str, found: Mapping[str, Finding], *, is_whole: bool, number: int) -> None:
        for name, finding in found.items():
            self._note(link, kind, name, finding)
        if is_whole:
            self._health[link.plan.id].receive_definitions(kind, found)
        _known_of(link).learn(
            kind,
            found,
            is_whole=is_whole,
            number=number,
            now=self._context.now,
            count_max=self._context.limits.tools_known_max,
        )

    def _note(self, link: Link, kind: str, name: str, finding: Finding) -> None:
        """Notes what is wrong with a definition, once."""
        if not self._health[link.plan.id].receive_definition(kind, name[:200], finding.text):
            return
        does = "is left out" if self._rules[link.plan.id].blocks(finding) else "is shown all the same"
        level = "info" if finding.fault is Fault.NEW else "warning"
        self._context.note(level, f"{kind}: {name[:100]} {does}: {finding.text}", link.plan.id)

    # --- Lists of our own -------------------------------------------------------------------------------------------

    def _ask(self, link: Link, use: str, reading: Reading, cursor: bytes | None) -> None:
        params = b"{}" if cursor is None else set_member(b"{}", "cursor", cursor)
        session = next(iter(link.sessions.values()), None)
        if session is None:
            self._end(link, use)  # nobody uses the server any more
            return
        if link.is_stateless:
            revision = link.upstream.revision
            assert revision is not None, "found by asking for it"
            params = add(params, msgspec.structs.replace(session.client, revision=revision))
        number = self._writer.run(link, PURPOSE, _METHODS[reading.kinds[0]], params, about=use)
        reading.request(cursor, number)
        at = self._context.now + self._context.limits.lookup_s
        self._context.timers.set((PURPOSE, (link.id, use)), at, "list of definitions")

    def receive_own_response(self, link: Link, own_request: OwnRequest, frame: Frame) -> None:
        use = own_request.about
        reading = _known_of(link).readings.get(use)
        if reading is None:
            return
        kind = reading.kinds[0]
        cursor, is_read = None, frame.error is not None and envelope.error_code(frame.error) == METHOD_NOT_FOUND
        if frame.result is not None:
            try:
                rules = self._rules[link.plan.id]
                reading.receive_page(_by_name(rules, self._judge(rules, _METHODS[kind], frame.result)))
                cursor, is_read = _next(frame.result), True
            except RemoteProtocolError as error:
                self._context.note("warning", f"its list of {kind} cannot be read: {error.message}", link.plan.id)
        limits = self._context.limits
        if is_read and _known_of(link).is_stale(kind, reading.number) and reading.restarts < RESTARTS_MAX:
            reading.restart()
            self._ask(link, use, reading, None)
        elif is_read and cursor is None:
            # One that changes whenever it is read is taken as it is.
            number = link.last_id + 1 if reading.restarts == RESTARTS_MAX else reading.number
            self._learn(link, kind, reading.finish_kind(), is_whole=True, number=number)
            if reading.kinds:
                self._ask(link, use, reading, None)
            else:
                self._end(link, use)
        elif is_read and cursor != reading.cursor and reading.pages < limits.schema_pages_max:
            self._ask(link, use, reading, cursor)
        else:
            self._learn(link, kind, reading.finish_kind(), is_whole=False, number=reading.number)
            self._end(link, use)

    def handle_timeout(self, link: Link, use: str) -> None:
        """Gives up reading after `Limits.lookup_s`."""
        numbers = [
            number
            for number, entry in link.pending.items()
            if isinstance(entry, OwnRequest) and entry.purpose == PURPOSE and entry.about == use
        ]
        self._writer.give_up_numbers(link, numbers)
        if use in _known_of(link).readings:
            self._end(link, use)

    def _end(self, link: Link, use: str) -> None:
        """Ends a reading, and sends the requests that waited for it."""
        self._context.timers.cancel((PURPOSE, (link.id, use)))
        known = _known_of(link)
        is_read = all(known.is_whole(kind, float("-inf")) for kind in _READ_FOR[use])
        waiting = known.end(use, failed_at=None if is_read else self._context.now)
        for exchange in waiting:
            if not exchange.is_over:
                link.router.send(link, exchange)

    # --- The server -------------------------------------------------------------------------------------------------

    def receive_notification(self, link: Link, frame: Frame, related: Exchange | None) -> bool:
        for kind in _CHANGES.get(frame.method or "", ()):
            _known_of(link).receive_change(kind, link.last_id)
        return False

    def receive_lost(self, link: Link, reason: str) -> None:
        for use in _READ_FOR:
            self._context.timers.cancel((PURPOSE, (link.id, use)))
        for exchange in _known_of(link).receive_lost():
            if not exchange.is_over:
                link.enqueue(exchange)


def _known_of(link: Link) -> KnownDefinitions:
    assert link.definitions is not None
    return link.definitions


def _use_of(exchange: Exchange) -> str | None:
    """Returns the kind of what a request uses; None if it uses no definition."""
    if exchange.method == "completion/complete":
        reference = text_of(sole_member(sole_member(exchange.params, "ref"), "type"))
        return "resources" if reference == "ref/resource" else "prompts"
    return _USES.get(exchange.method)


def _by_name(rules: DefinitionRules, judged: Sequence[tuple[bytes, str, Finding]]) -> dict[str, Finding]:
    """Returns the judgments by name. Of two with one name, the worse holds."""
    found: dict[str, Finding] = {}
    for _, name, finding in judged:
        before = found.get(name, FINE)
        found[name] = before if before is not FINE and (rules.blocks(before) or finding is FINE) else finding
    return found


def _is_first(params: bytes | None) -> bool:
    return envelope.member_of(params, "cursor") in (None, b"null")


def _next(result: bytes) -> bytes | None:
    """Returns the cursor of the next page, as JSON; None if this is the last one."""
    cursor = envelope.member_of(result, "nextCursor")
    return None if cursor == b"null" else cursor


def _with_entries(result: bytes, method: str, kept: Sequence[bytes]) -> bytes:
    return set_member(result, LISTS[method].array, b"[" + b",".join(kept) + b"]")
