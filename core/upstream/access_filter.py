"""Access rules: refuses requests that their caller may not make, and leaves out of lists what it must not see.

The rules are those of the plan (`ServerPlan.access`), and the grants those in the opening of the channel on which a
request came: another token of the same caller may have others. A name that cannot be read is refused.

A task is a use of its tool: requests about it are judged by the rules for the tool, where the tasks are known
(`scopes_wanted`).

A client is notified that a list has changed once its grants show it another one. In the stateless era one session may
serve clients of one principal with tokens of different age, and each of them lists again when it is notified: only a
token that was issued later than the one before changes anything there, or they would notify each other for ever.
"""

from __future__ import annotations

from typing import Final

from ..access.challenges import bearer_challenge
from ..access.metadata import metadata_url
from ..access.policy import Verdict, changed_kinds, hiding_kinds, may_see, verdict
from ..base.errors import DENIED, INVALID_PARAMS, RemoteProtocolError
from ..base.grants import NO_GRANTS, Grants
from ..base.plan import ServerPlan
from ..bridge.request_name import name_in, sole_member
from ..downstream.responder import Responder
from ..jsonrpc.append import add_members, readable_members
from ..jsonrpc.envelope import encode_error, text_of
from ..jsonrpc.splice import elements, members, set_member, take
from ..state.context import Context
from ..state.exchange import Exchange, ExchangeKey
from ..state.interceptor import Interceptor
from ..state.link import Link
from ..state.listen_filter import ListenFilter
from ..state.session import Session
from .filtering import LISTS, REFERENCES, USES, climbs, unknown, with_entries

FORBIDDEN: Final = 403


class AccessFiltering(Interceptor):
    """Applies the access rules of a server."""

    name = "access"

    def __init__(self, context: Context, responder: Responder) -> None:
        self._context = context
        self._responder = responder
        self._lists: dict[tuple[str, ExchangeKey], Grants] = {}  # the grants of callers who wait for a list

    def is_for(self, plan: ServerPlan) -> bool:
        return plan.access is not None

    def receive_request(self, link: Link, exchange: Exchange) -> bool:
        session = link.session_of(exchange)
        if session.sees_hidden:
            return False
        grants = grants_of(self._context, exchange)
        self._receive_grants(link, session, grants)
        if exchange.method in LISTS:
            self._lists[session.sid, exchange.key] = grants
            return False
        try:
            found = judge(link.plan, exchange.method, exchange.params, grants)
        except RemoteProtocolError as error:
            link.router.finish(link, exchange, encode_error(exchange.id_raw, error.rpc_code, error.message))
            return True
        if found is None:
            return False
        kind, name, decision, scopes = found
        if decision is Verdict.HIDDEN:
            link.router.finish(link, exchange, unknown(exchange, kind, name))
            return True
        refuse_scopes(self._context, link, exchange, name, scopes)
        return True

    def receive_result(self, link: Link, exchange: Exchange, result: bytes) -> bytes:
        grants = self._lists.get((exchange.sid, exchange.key))
        listing = LISTS.get(exchange.method)
        if listing is None or grants is None:
            return result
        rules = link.plan.access
        assert rules is not None

        def is_shown(name: str) -> bool:
            return verdict(rules, listing.kind, name, grants)[0] is not Verdict.HIDDEN

        result = with_entries(result, listing, is_shown)
        if "cacheScope" in members(result):
            # 2026-07-28 server/utilities/caching: what differs between callers is not for others.
            result = set_member(result, "cacheScope", b'"private"')
        return result

    def adapt_handshake(self, link: Link, result: bytes) -> bytes:
        """Returns the handshake result that declares notifications of those lists that a change of grants changes."""
        rules = link.plan.access
        assert rules is not None
        declared = take(result, readable_members(result).get("capabilities"))
        kinds = [kind for kind in hiding_kinds(rules) if kind in readable_members(declared)]
        if declared is None or not kinds:
            return result
        for kind in kinds:
            declared = add_members(declared, kind, {"listChanged": b"true"})
        return set_member(result, "capabilities", declared)

    def grant(self, link: Link, session: Session, wanted: ListenFilter) -> ListenFilter:
        assert link.plan.access is not None
        kinds = hiding_kinds(link.plan.access)
        return wanted & ListenFilter("tools" in kinds, "prompts" in kinds, "resources" in kinds)

    def _receive_grants(self, link: Link, session: Session, grants: Grants) -> None:
        """Takes the grants of a request: notifies the client of the lists in which it sees other entries now."""
        before = session.grants
        if before == grants or (before is not None and session.is_stateless and not _is_later(grants, before)):
            return
        session.receive_grants(grants)
        rules = link.plan.access
        assert rules is not None
        for kind in [] if before is None else changed_kinds(rules, before, grants):
            self._responder.announce(session, f"notifications/{kind}/list_changed")

    def forget(self, link: Link | None, session: Session, exchange: Exchange) -> None:
        self._lists.pop((session.sid, exchange.key), None)


def grants_of(context: Context, exchange: Exchange) -> Grants:
    """Returns the grants with which a request came."""
    opening = getattr(context.role_of(exchange.key.channel), "opening", None)
    grants = getattr(opening, "grants", NO_GRANTS)
    assert isinstance(grants, Grants)
    return grants


def scopes_wanted(
    context: Context, plan: ServerPlan, session: Session, exchange: Exchange, tool: str
) -> frozenset[str] | None:
    """Returns all scopes that the use of a tool needs, if the caller of a request lacks one of them; none if it may use
    the tool; None if the tool is hidden from it."""
    rules = plan.access
    if rules is None or session.sees_hidden:
        return frozenset()
    decision, scopes = verdict(rules, "tools", tool, grants_of(context, exchange))
    if decision is Verdict.HIDDEN:
        return None
    return scopes if decision is Verdict.NEEDS_SCOPES else frozenset()


def refuse_scopes(context: Context, link: Link, exchange: Exchange, name: str, scopes: frozenset[str]) -> None:
    """Answers a request with all scopes that it needs: its caller lacks one of them."""
    session, plan, url = link.session_of(exchange), context.plan, ""
    text = scope_text(name, scopes, grants_of(context, exchange))
    if plan.publishes_metadata:
        url = metadata_url(plan.public_base_url or session.base_url, f"/mcp/{link.plan.id}")
    if exchange.reply.ends_channel and exchange.reply.gathered is None:
        challenge = bearer_challenge(error="insufficient_scope", description=text, scopes=scopes, metadata_url=url)
        exchange.reply.refuse(FORBIDDEN, challenge.decode())
    data = scope_data(scopes) | ({"resource_metadata": url} if url else {})
    exchange.mark_native()  # the error needs no translation to the client's era
    link.router.finish(link, exchange, encode_error(exchange.id_raw, DENIED, text, data))


def judge(
    plan: ServerPlan, method: str, params: bytes | None, grants: Grants
) -> tuple[str, str, Verdict, frozenset[str]] | None:
    """Returns what a request is about, its kind and name, whether its caller may make it, and the scopes that it needs;
    None for a request that is allowed.

    Raises:
        RemoteProtocolError: what it is about cannot be read (INVALID_PARAMS).
    """
    rules = plan.access
    if rules is None:
        return None
    if method == "subscriptions/listen":
        uris = _listened(params)
    else:
        kind = (
            USES[method][0] if method in USES else _kind_of_reference(params) if method == "completion/complete" else ""
        )
        name = name_in(method, params) if kind else None
        if name is None:
            return None
        uris = [(kind, name)]
    for kind, name in uris:
        decision, scopes = verdict(rules, kind, name, grants)
        if kind == "resources" and rules.resources and climbs(name):
            decision = Verdict.HIDDEN
        if decision is not Verdict.ALLOWED:
            return kind, name, decision, scopes
    return None


def refuse_forbidden(plan: ServerPlan, method: str, params: bytes | None, grants: Grants) -> None:
    """Refuses a request that continues an earlier one, if its caller may not make it (any more).

    Raises:
        RemoteProtocolError: the caller may not make it.
    """
    is_there = plan.access is None or may_see(plan.access.server, grants)
    found = judge(plan, method, params, grants)
    if found is None and is_there:
        return
    kind, name, decision, scopes = found or ("servers", plan.id, Verdict.HIDDEN, frozenset())
    if decision is Verdict.HIDDEN or not is_there:
        raise RemoteProtocolError(f"Unknown {kind[:-1]}: {name}", rpc_code=INVALID_PARAMS)
    text = scope_text(name, scopes, grants)
    raise RemoteProtocolError(text, rpc_code=DENIED, http_status=FORBIDDEN, data=scope_data(scopes))


def scope_data(scopes: frozenset[str]) -> dict[str, object]:
    """Returns the data of an error for a caller whose scopes are not enough."""
    return {"httpStatus": FORBIDDEN, "scope": " ".join(sorted(scopes)), "outcome": "not_executed"}


def scope_text(name: str, scopes: frozenset[str], grants: Grants) -> str:
    """Returns what is wrong with the scopes of a caller, for people."""
    has = " ".join(sorted(grants.scopes & scopes)) or "none of them"
    return f"{name[:100]} wants the scope {' '.join(sorted(scopes))}; the token has {has}"


def _is_later(grants: Grants, before: Grants) -> bool:
    """True if grants are of a token that was issued later, or of one of which that is not known."""
    issued, issued_before = grants.issued_at_unix, before.issued_at_unix
    return issued is None or issued_before is None or issued > issued_before


def _kind_of_reference(params: bytes | None) -> str:
    kind, _ = REFERENCES.get(text_of(sole_member(sole_member(params, "ref"), "type")) or "", ("prompts", ""))
    return kind


def _listened(params: bytes | None) -> list[tuple[str, str]]:
    """Returns the resources that a subscription names."""
    wanted = sole_member(sole_member(params, "notifications"), "resourceSubscriptions")
    if wanted is None or not wanted.startswith(b"["):
        return []
    found = [text_of(wanted[start:stop]) for start, stop in elements(wanted)]
    if None in found:
        raise RemoteProtocolError("got a resource that is no text, expected a URI", rpc_code=INVALID_PARAMS)
    return [("resources", uri) for uri in found if uri is not None]
