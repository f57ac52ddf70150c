"""The file plane: what clients of a server with adapters are shown beyond what the server has.

The upload helper among its tools, the session's artifacts among its resources, its session's folders as roots. What
happens to tool calls on their way is in `calls`. Everything else passes untouched.
"""

from __future__ import annotations

from typing import Final, NamedTuple
from urllib.parse import quote, urlencode

import msgspec

from . import catalog, handle
from . import jsonrpc as rpc
from .artifact import tool_error
from .calls import Calls, Onward
from .desk import Desk
from .effects import Fetch, Fetched, StorageAnswer, Sweep
from .errors import INTERNAL_ERROR, INVALID_PARAMS, OVERLOADED, RESOURCE_NOT_FOUND, RemoteProtocolError
from .exchange import Exchange, ExchangeKey
from .labels import base_url, describe
from .links import Link
from .plan import ServerPlan
from .session import Session
from .shelf import Shelf
from .waiting import Waiting, reason_of


class EmptyList(NamedTuple):
    """What a server without the capability is taken to answer, so that our own entries can be added."""

    capability: str
    result: bytes


EMPTY_LISTS: Final = {
    "tools/list": EmptyList("tools", b'{"tools":[]}'),
    "resources/list": EmptyList("resources", b'{"resources":[]}'),
    "resources/templates/list": EmptyList("resources", b'{"resourceTemplates":[]}'),
}


class FilePlane:
    """Decides for servers with adapters; see `servers.FileRules` for what is asked of it."""

    def __init__(self, desk: Desk, shelf: Shelf, nonces: handle.Nonces, waiting: Waiting, calls: Calls) -> None:
        self.onward: Onward
        self._desk = desk
        self._shelf = shelf
        self._nonces = nonces
        self._waiting = waiting
        self._calls = calls
        self._reads: set[ExchangeKey] = set()

    def offers_uploads(self, server: ServerPlan) -> bool:
        return bool(server.consumers) and self._desk.plan.uploads_enabled

    def offers_resources(self, server: ServerPlan) -> bool:
        plan = self._desk.plan
        return (
            plan.artifacts_enabled and plan.expose_as_resources and any(p.expose_as_resource for p in server.producers)
        )

    # --- Handshake and roots ----------------------------------------------------------------------------------------

    def adapt_handshake(self, link: Link, result: bytes) -> bytes:
        server = link.plan
        uploads = self.offers_uploads(server)
        return catalog.extend_capabilities(
            result, server, offers_uploads=uploads, offers_resources=self.offers_resources(server) or uploads
        )

    def roots_of(self, session: Session) -> bytes:
        """The session's own folders, the working one first: some servers take the first root as theirs."""
        base = f"{self._desk.plan.workspaces_path}/{session.workspace}"
        roots = [{"uri": "file://" + quote(f"{base}/{name}"), "name": name} for name in ("ws", "in", "out")]
        return msgspec.json.encode({"roots": roots})

    # --- Requests ---------------------------------------------------------------------------------------------------

    def receive_call(self, link: Link, exchange: Exchange) -> bool:
        try:
            if exchange.method == "tools/call":
                return self._receive_tool_call(link, exchange)
            if exchange.method == "resources/read":
                return self._receive_read(link, exchange)
            rpc.member_of(exchange.params, "cursor")  # which the answer depends on: a faulty request is refused now
            empty = EMPTY_LISTS.get(exchange.method)
            if empty is None or self._has(link, empty.capability):
                return False
            result = self._extended(link, exchange, empty.result) or empty.result
        except RemoteProtocolError as error:
            self._fail(link, exchange, INVALID_PARAMS, error.message)
            return True
        self._finish(link, exchange, result)
        return True

    def _has(self, link: Link, capability: str) -> bool:
        """Whether the server has it, as far as is known: before the handshake it may."""
        return link.upstream.capabilities is None or capability in link.upstream.capabilities

    def receive_result(self, link: Link, exchange: Exchange, result: bytes) -> bool:
        extended = self._extended(link, exchange, result)
        if extended is not None:
            self._finish(link, exchange, extended)
            return True
        return self._calls.receive_result(exchange, result)

    def _extended(self, link: Link, exchange: Exchange, result: bytes) -> bytes | None:
        """A list with our own entries in it; None where there is nothing to add."""
        server = link.plan
        if exchange.method == "tools/list" and server.consumers:
            is_first = rpc.member_of(exchange.params, "cursor") is None
            uploads = self.offers_uploads(server)
            return catalog.extend_tools(result, server, is_first_page=is_first, offers_uploads=uploads)
        if exchange.method == "resources/list" and rpc.member_of(result, "nextCursor") is None:
            entries = [catalog.workflow_entry()] if self.offers_uploads(server) else []
            if self.offers_resources(server):
                shown = [record for record in self._shelf.artifacts_of(link.session.sid) if record.is_exposed]
                entries += [
                    catalog.resource_entry(describe(self._desk, link.session, record), record.tool) for record in shown
                ]
            return catalog.extend_resources(result, entries)
        return None

    def _receive_read(self, link: Link, exchange: Exchange) -> bool:
        uri = rpc.text_of(rpc.member_of(exchange.params, "uri")) or ""
        if uri == catalog.WORKFLOW_URI and self.offers_uploads(link.plan):
            text = catalog.workflow_text(catalog.helper_name(link.plan.id))
            self._finish(link, exchange, catalog.resource_contents(uri, "text/markdown", text.encode()))
            return True
        if not uri.startswith(handle.ARTIFACT_SCHEME):
            if not self._has(link, "resources"):
                self._miss(link, exchange, uri)
                return True
            return False
        try:
            sid, aid = handle.parse_artifact(uri)
        except handle.HandleError:
            sid = aid = ""
        record = self._shelf.find_artifact(sid, aid)
        session = link.session
        if record is None or sid != session.sid or record.server != session.server or not record.is_exposed:
            self._miss(link, exchange, uri)
            return True
        limit = self._desk.limits.inline_size_max_bytes
        if record.size_bytes > limit:
            url = describe(self._desk, link.session, record).download_url
            text = f"{uri} has {record.size_bytes} bytes, more than the {limit} that are put into a message"
            self._fail(link, exchange, OVERLOADED, text + (f": download it from {url}" if url else ""))
            return True

        self._reads.add(exchange.key)

        def contents(answer: StorageAnswer) -> None:
            if exchange.key not in self._reads:
                return  # cancelled
            if isinstance(answer, Fetched):
                self._finish(link, exchange, catalog.resource_contents(uri, record.mime_type, answer.data))
            else:
                self._fail(link, exchange, INTERNAL_ERROR, f"{uri} could not be read: {reason_of(answer)}")

        self._waiting.order(lambda ticket: Fetch(ticket=ticket, blob=record.blob, size_max_bytes=limit), contents)
        return True

    def _miss(self, link: Link, exchange: Exchange, uri: str) -> None:
        data = {"uri": uri}
        message = rpc.encode_error(exchange.id_raw, RESOURCE_NOT_FOUND, f"Resource not found: {uri}", data)
        self.onward.finish(link, exchange, message)

    # --- Tools ------------------------------------------------------------------------------------------------------

    def _receive_tool_call(self, link: Link, exchange: Exchange) -> bool:
        tool = rpc.text_of(rpc.member_of(exchange.params, "name"))
        if tool == catalog.helper_name(link.plan.id) and self.offers_uploads(link.plan):
            self._offer_upload(link, exchange)
            return True
        return self._calls.receive_call(link, exchange)

    # --- Uploads are offered ----------------------------------------------------------------------------------------

    def _offer_upload(self, link: Link, exchange: Exchange) -> None:
        session, limits = link.session, self._desk.limits
        base = base_url(self._desk, session)
        if not base:
            self._finish(link, exchange, tool_error("Uploads need an HTTP listener, and this proxy has none."))
            return
        announced = rpc.member_of(exchange.params, "arguments")
        problem = catalog.announced_problem(announced, limits.upload_size_max_bytes)
        if problem is not None:
            self._finish(link, exchange, tool_error(problem))
            return
        self._nonces.drop_expired(self._desk.now)
        ttl = limits.upload_link_ttl_s
        nonce = self._nonces.mint(
            self._desk.entropy, server=session.server, sid=session.sid, expires_at=self._desk.now + ttl
        )
        query = handle.sign_upload(
            self._desk.plan.link_key,
            server=session.server,
            sid=session.sid,
            nonce=nonce,
            expires_at_unix=int(self._desk.now_unix + ttl),
        )
        offer = catalog.upload_offer(
            server_id=session.server,
            upload_url=f"{base}/upload/{session.server}?{urlencode(query)}",
            sid=session.sid,
            ttl_seconds=int(ttl),
            max_file_bytes=limits.upload_size_max_bytes,
            sha256_required=self._desk.plan.require_sha256,
            max_files=limits.upload_files_max,
        )
        self._finish(link, exchange, offer)

    # --- Ends -------------------------------------------------------------------------------------------------------

    def forget(self, exchange: Exchange) -> None:
        self._reads.discard(exchange.key)
        self._calls.forget(exchange)

    def close_session(self, session: Session) -> None:
        if self._desk.servers[session.server].has_files:
            self._shelf.close_session(session.sid)

    def sweep(self, session: Session) -> None:
        """Nothing works in the session's folders any more: they go."""
        if self._desk.servers[session.server].has_files:
            self._desk.order(Sweep(workspace=session.workspace))

    def _finish(self, link: Link, exchange: Exchange, result: bytes) -> None:
        self.onward.finish(link, exchange, rpc.encode_result(exchange.id_raw, result))

    def _fail(self, link: Link, exchange: Exchange, code: int, text: str) -> None:
        self.onward.finish(link, exchange, rpc.encode_error(exchange.id_raw, code, text))
