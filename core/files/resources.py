"""The artifacts of a session as resources: listed page by page, read, subscribed to, and announced when they come or
go.

They are listed after the server's own resources. An artifact never changes; its subscribers are notified when it is
gone.

Source: 2025-11-25 server/resources, server/utilities/pagination.
"""

from __future__ import annotations

from typing import Final

import msgspec

from ..base.errors import INTERNAL_ERROR, INVALID_PARAMS, OVERLOADED, RESOURCE_NOT_FOUND, RemoteProtocolError
from ..base.plan import ServerPlan
from ..base.storage import Fetch, Fetched, StorageAnswer
from ..downstream.downstream import Downstream
from ..jsonrpc import envelope as rpc
from ..jsonrpc.splice import set_member
from ..state.context import Context
from ..state.exchange import Exchange, ExchangeKey
from ..state.link import Link
from ..state.listen_filter import ListenFilter
from ..state.session import Session
from ..state.storage_orders import StorageOrders, reason_of
from .calls import offers
from .calls.uris import describe
from .store import handles
from .store.owners import user_of
from .store.store import FileStore, StoredArtifact

CURSOR: Final = "isthmus-artifact:"
"""Prefix of the cursors that the proxy gives out. Any other cursor goes to the server."""
LIST_CHANGED: Final = "notifications/resources/list_changed"
UPDATED: Final = "notifications/resources/updated"


class ArtifactResources:
    """Answers requests for artifacts, and announces their changes."""

    def __init__(
        self, context: Context, downstream: Downstream, file_store: FileStore, storage_orders: StorageOrders
    ) -> None:
        self._context = context
        self._responder = downstream.responder
        self._sessions = downstream.sessions
        self._file_store = file_store
        self._storage_orders = storage_orders
        self._offering = frozenset(server.id for server in context.plan.servers if self.are_offered(server))
        self._reads: set[ExchangeKey] = set()
        self._subscribers = file_store.subscribers

    def are_offered(self, server: ServerPlan) -> bool:
        """True if any artifact of the server's tools may be listed as a resource."""
        plan = self._context.plan
        is_any = server.auto_files is not None and server.auto_files.expose_as_resource
        is_any = is_any or any(producer.expose_as_resource for producer in server.producers)
        return plan.artifacts_enabled and plan.expose_as_resources and is_any

    # --- Lists ------------------------------------------------------------------------------------------------------

    def receive_list(self, link: Link, exchange: Exchange) -> bool:
        """True if the requested page is one of the proxy's own, and was answered."""
        cursor = rpc.text_of(rpc.member_of(exchange.params, "cursor"))
        if cursor is None or not cursor.startswith(CURSOR) or not self.are_offered(link.plan):
            return False
        after = _read_cursor(cursor)
        if after is None:
            self._fail(link, exchange, INVALID_PARAMS, f"got the cursor {cursor[:80]!r}, expected one that was given")
            return True
        self._finish(link, exchange, self._page(link.session_of(exchange), b'{"resources":[]}', after))
        return True

    def extend(self, link: Link, exchange: Exchange, result: bytes, entries: list[bytes]) -> bytes | None:
        """Returns the last page of the server's own resources with `entries` and the first artifacts added. A profile
        adds the artifacts itself (`entries_of`): what its servers list is kept for other sessions, too."""
        session, result = link.session_of(exchange), offers.extend_resources(result, entries)
        return self._page(session, result, None) if self.are_offered(link.plan) and session.leg is None else result

    def _page(self, session: Session, result: bytes, after: tuple[float, str] | None) -> bytes:
        records = self._records_of(session)
        shown = [record for record in records if after is None or _order(record) > after]
        page = shown[: self._context.limits.artifact_page_max]
        entries = [offers.resource_entry(describe(self._context, session, record), record.tool) for record in page]
        result = offers.extend_resources(result, entries)
        if len(shown) > len(page):
            result = set_member(result, "nextCursor", msgspec.json.encode(_cursor(page[-1])))
        return result

    def _records_of(self, session: Session) -> list[StoredArtifact]:
        account = self._file_store.account(session.principal, session.files_sid)
        records = self._file_store.artifacts_of(account, session.files_sid)
        return sorted((record for record in records if record.is_exposed), key=_order)

    # --- Profiles ---------------------------------------------------------------------------------------------------

    def entries_of(self, session: Session) -> dict[str, bytes] | None:
        """See `FileDirectory`."""
        if not self._has_any(session):
            return None
        shown = [(describe(self._context, session, record), record.tool) for record in self._records_of(session)]
        return {artifact.artifact_uri: offers.resource_entry(artifact, tool) for artifact, tool in shown}

    def server_of(self, session: Session, uri: str) -> str:
        """See `FileDirectory`."""
        record = self._find(session, uri)
        if record is None:
            text = _not_found(uri, self._why_gone(session, uri))
            code = INVALID_PARAMS if session.is_stateless else RESOURCE_NOT_FOUND
            raise RemoteProtocolError(text, rpc_code=code, data={"uri": uri})
        return record.server

    def granted_at_profile(self, session: Session, wanted: ListenFilter) -> ListenFilter:
        """See `FileDirectory.granted`."""
        return _own_part(wanted) if self._has_any(session) else ListenFilter()

    def _has_any(self, session: Session) -> bool:
        """True if a server of the profile may have artifacts that are listed."""
        return not self._offering.isdisjoint(self._context.endpoints[session.server])

    # --- Reading ----------------------------------------------------------------------------------------------------

    def receive_read(self, link: Link, exchange: Exchange, uri: str) -> None:
        """Answers a read of an `artifact://` URI. One of another owner, or one that is not exposed, counts as not
        found."""
        session = link.session_of(exchange)
        record = self._find(session, uri)
        if record is None:
            self.miss(link, exchange, uri, self._why_gone(session, uri))
            return
        limit = self._context.limits.inline_size_max_bytes
        if record.size_bytes > limit:
            url = describe(self._context, session, record).download_url
            text = f"{uri} has {record.size_bytes} bytes, more than the {limit} that are put into a message"
            self._fail(link, exchange, OVERLOADED, text + (f": download it from {url}" if url else ""))
            return
        self._reads.add(exchange.key)

        def contents(answer: StorageAnswer) -> None:
            if exchange.key not in self._reads:
                return  # cancelled
            if isinstance(answer, Fetched):
                self._finish(link, exchange, offers.resource_contents(uri, record.mime_type, answer.data))
            else:
                self._fail(link, exchange, INTERNAL_ERROR, f"{uri} could not be read: {reason_of(answer)}")

        self._storage_orders.order(
            lambda ticket: Fetch(ticket=ticket, blob=record.blob, size_max_bytes=limit), contents
        )

    def _find(self, session: Session, uri: str) -> StoredArtifact | None:
        try:
            sid, aid = handles.parse_artifact(uri)
        except handles.HandleError:
            return None
        found = self._file_store.find(user_of(self._context, session), of_sid=sid, id=aid, kind="artifact")
        return found.record if found is not None and found.record.is_exposed else None

    def _why_gone(self, session: Session, uri: str) -> str:
        try:
            sid, aid = handles.parse_artifact(uri)
        except handles.HandleError:
            return ""
        return self._file_store.gone(user_of(self._context, session), of_sid=sid, id=aid, kind="artifact") or ""

    def miss(self, link: Link, exchange: Exchange, uri: str, why: str = "") -> None:
        """Answers that a resource was not found. `why` says what became of it."""
        error = rpc.encode_error(exchange.id_raw, RESOURCE_NOT_FOUND, _not_found(uri, why), {"uri": uri})
        link.router.finish(link, exchange, error)

    # --- Subscriptions ----------------------------------------------------------------------------------------------

    def receive_subscription(self, link: Link, exchange: Exchange, uri: str) -> None:
        """Answers `resources/subscribe` or `resources/unsubscribe` for an artifact, of a client with a session."""
        session = link.session_of(exchange)
        sid, limit = session.files_sid, self._context.limits.subscriptions_per_session_max
        if exchange.method == "resources/unsubscribe":
            self._subscribers.discard(sid, uri)
        elif self._find(session, uri) is None:
            self.miss(link, exchange, uri, self._why_gone(session, uri))
            return
        elif self._subscribers.count(sid) >= limit:
            self._fail(link, exchange, OVERLOADED, f"{limit} resources are subscribed to, the most a session may have")
            return
        else:
            self._subscribers.add(sid, uri)
        self._finish(link, exchange, b"{}")

    def granted(self, link: Link, session: Session, wanted: ListenFilter) -> ListenFilter:
        """Returns the part of a subscription of a client without sessions that the proxy itself serves, whatever the
        server does."""
        return _own_part(wanted) if self.are_offered(link.plan) and session.leg is None else ListenFilter()

    # --- Changes ----------------------------------------------------------------------------------------------------

    def handle_change(self, sid: str) -> None:
        """Notifies a session of its artifacts that came and went, and of those it has subscribed to. All changes of one
        moment are announced together."""
        session = self._sessions.by_sid(sid)
        gone, has_changed = self._file_store.take_changes(sid)
        if session is None:
            return
        for record in gone:
            uri = handles.format_artifact(record.sid, record.aid, record.filename)
            message = rpc.encode_notification(UPDATED, msgspec.json.encode({"uri": uri}))
            if session.is_stateless or self._subscribers.has(sid, uri):
                self._responder.deliver(session, UPDATED, message, None)
        if has_changed:
            self._responder.announce(session, LIST_CHANGED)

    # --- Ends -------------------------------------------------------------------------------------------------------

    def forget(self, exchange: Exchange) -> None:
        self._reads.discard(exchange.key)

    def close_session(self, session: Session) -> None:
        self._subscribers.close_session(session.sid)
        self._file_store.take_changes(session.sid)
        self._context.timers.cancel(("resources", session.sid))

    def _finish(self, link: Link, exchange: Exchange, result: bytes) -> None:
        link.router.finish(link, exchange, rpc.encode_result(exchange.id_raw, result))

    def _fail(self, link: Link, exchange: Exchange, code: int, text: str) -> None:
        link.router.finish(link, exchange, rpc.encode_error(exchange.id_raw, code, text))


def _not_found(uri: str, why: str) -> str:
    return f"Resource not found: {uri}" + (f": {why}" if why else "")


def _own_part(wanted: ListenFilter) -> ListenFilter:
    return ListenFilter(resources=wanted.resources, uris=frozenset(uri for uri in wanted.uris if is_own(uri)))


def is_own(uri: str) -> bool:
    return uri.startswith(handles.ARTIFACT_SCHEME)


def _order(record: StoredArtifact) -> tuple[float, str]:
    """Returns the sort key: oldest first, since all live equally long. A position stays valid when other artifacts
    go."""
    return record.expires_at_unix, record.aid


def _cursor(record: StoredArtifact) -> str:
    return f"{CURSOR}{record.expires_at_unix!r}:{record.aid}"


def _read_cursor(cursor: str) -> tuple[float, str] | None:
    at, colon, aid = cursor.removeprefix(CURSOR).partition(":")
    try:
        return (float(at), aid) if colon and len(at) <= 40 else None
    except ValueError:
        return None
