"""The file plane: what clients of a server with files are shown beyond what the server has.

It adds the upload tools to the tools and the session's artifacts to the resources, and answers `roots/list` with the
session's own folders. Tool calls that carry files are handled in `calls`. Everything else passes unchanged.
"""

from __future__ import annotations

from typing import Final, NamedTuple
from urllib.parse import urlencode

import msgspec

from ..base.errors import INVALID_PARAMS, RemoteProtocolError
from ..base.plan import ServerPlan
from ..bridge.content import tool_error
from ..jsonrpc import envelope as rpc
from ..jsonrpc.envelope import Frame
from ..jsonrpc.splice import set_member
from ..state.context import Context
from ..state.exchange import Exchange, ExchangeInput, ExchangeState
from ..state.interceptor import Interceptor
from ..state.link import Link, OwnRequest
from ..state.listen_filter import ListenFilter
from ..state.session import Session
from .calls import offers
from .calls.calls import Calls
from .calls.linked_resources import PURPOSE as LINKED
from .calls.linked_resources import LinkedResources
from .calls.put_file import PutCalls
from .calls.tool_hints import read_hints
from .calls.uris import base_url
from .resources import ArtifactResources, is_own
from .store.links import LinkTooLong, UploadGrant, owner_tag, sign_upload
from .store.store import FileStore

SHOWN: Final = ("tools/call", "prompts/get", "resources/read")
"""Requests whose results have no paths of the session's folders, with `files: auto`. URIs in lists of resources stay:
they are what the server answers to."""
TOLD: Final = ("notifications/progress", "notifications/message")
"""Notifications without them."""
SUBSCRIPTIONS: Final = ("resources/subscribe", "resources/unsubscribe")


class EmptyList(NamedTuple):
    """The result assumed of a server without the capability, so that entries of the proxy can be added to it."""

    capability: str
    result: bytes


EMPTY_LISTS: Final = {
    "tools/list": EmptyList("tools", b'{"tools":[]}'),
    "resources/list": EmptyList("resources", b'{"resources":[]}'),
    "resources/templates/list": EmptyList("resources", b'{"resourceTemplates":[]}'),
}


class FilePlane(Interceptor):
    """Handles requests and results of servers with files."""

    name = "files"
    purposes = frozenset({LINKED})

    def __init__(
        self,
        context: Context,
        file_store: FileStore,
        calls: Calls,
        resources: ArtifactResources,
        linked_resources: LinkedResources,
        put_calls: PutCalls,
    ) -> None:
        self._put_calls = put_calls
        self._context = context
        self._file_store = file_store
        self._calls = calls
        self._resources = resources
        self._linked_resources = linked_resources

    def is_for(self, plan: ServerPlan) -> bool:
        return plan.has_files

    def offers_uploads(self, server: ServerPlan) -> bool:
        """True if clients of the server are offered uploads."""
        return server.takes_uploads and self._context.plan.uploads_enabled

    # --- Handshake --------------------------------------------------------------------------------------------------

    def adapt_handshake(self, link: Link, result: bytes) -> bytes:
        """Returns the initialize result with the capabilities that the file plane adds."""
        server = link.plan
        uploads, artifacts = self.offers_uploads(server), self._resources.are_offered(server)
        return offers.extend_capabilities(result, server, offers_uploads=uploads, offers_artifacts=artifacts)

    # --- Requests ---------------------------------------------------------------------------------------------------

    def receive_request(self, link: Link, exchange: Exchange) -> bool:
        try:
            if exchange.method == "tools/call":
                return self._receive_tool_call(link, exchange)
            if exchange.method == "resources/read":
                return self._receive_read(link, exchange)
            if exchange.method in SUBSCRIPTIONS:
                return self._receive_subscription(link, exchange)
            # Read first: the answer depends on it, so params that cannot be read are refused now.
            cursor = rpc.member_of(exchange.params, "cursor")
            if exchange.method == "resources/list" and cursor and self._resources.receive_list(link, exchange):
                return True
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
        """True if the server has the capability, or may have it: before the handshake that is not known."""
        return link.upstream.capabilities is None or capability in link.upstream.capabilities

    def prepare(self, link: Link, exchange: Exchange) -> bool:
        """True if a request waits, or is answered. Called when it is about to be written to a server that is ready."""
        return exchange.method == "tools/call" and self._calls.prepare(link, exchange)

    def receive_response(self, link: Link, exchange: Exchange, frame: Frame) -> bool:
        """Sends a call once more if its tool wants its files in another form (`Calls.wants_again`)."""
        refusal = frame.result or frame.error
        if refusal is None or exchange.method != "tools/call" or exchange.state is not ExchangeState.SENT:
            return False
        if not self._calls.wants_again(link, exchange, refusal):
            return False
        exchange.step(ExchangeInput.REQUEUE)
        link.router.resend(link, exchange)
        return True

    def receive_result(self, link: Link, exchange: Exchange, result: bytes) -> bytes | None:
        extended = self._extended(link, exchange, result)
        if extended is not None:
            return extended
        if self._calls.receive_result(exchange, result):
            return None
        return self._calls.without_paths(link, result) if exchange.method in SHOWN else result

    def receive_error(self, link: Link, exchange: Exchange, error: bytes) -> bytes:
        return self._calls.without_paths(link, error)

    def adapt_notification(self, link: Link, frame: Frame) -> Frame:
        """Removes the paths of the session's folders from what a server tells during a call."""
        if frame.method not in TOLD or frame.params is None:
            return frame
        params = self._calls.without_paths(link, frame.params)
        return frame if params is frame.params else msgspec.structs.replace(frame, params=params)

    def _extended(self, link: Link, exchange: Exchange, result: bytes) -> bytes | None:
        """Returns a list result with the entries of the proxy added; None if there is nothing to add."""
        server = link.plan
        if exchange.method == "tools/list":
            is_first = rpc.member_of(exchange.params, "cursor") in (None, b"null")
            self.read_tools(link, result, is_first=is_first)
            if not server.takes_uploads:
                return None
            return self._with_upload_tools(link, link.session_of(exchange), result, is_first=is_first)
        if exchange.method == "resources/list" and rpc.member_of(result, "nextCursor") in (None, b"null"):
            entries = [offers.workflow_entry()] if self.offers_uploads(server) else []
            return self._resources.extend(link, exchange, result, entries)
        return None

    def _with_upload_tools(self, link: Link, session: Session, result: bytes, *, is_first: bool) -> bytes:
        """Returns a page of the list of tools with those for uploads, and notes on the others."""
        server, uploads = link.plan, self.offers_uploads(link.plan)
        named = offers.upload_tools(self._context, session, server.id)
        result = offers.extend_tools(
            result,
            server,
            session.tool_shown,
            is_first_page=is_first,
            offers_uploads=uploads,
            has_links=bool(named.link),
            takes_in=self._context.plan.artifacts_enabled,
        )
        return self._put_calls.add_tool(result, server, named, is_first=is_first) if uploads else result

    def read_tools(self, link: Link, result: bytes, *, is_first: bool) -> None:
        """Reads a page of the server's list of tools for what the tools take. Beyond `tools_known_max` tools, a page is
        ignored.

        Raises:
            RemoteProtocolError: the page cannot be read.
        """
        tools_max = self._context.limits.tools_known_max
        link.tools.learn_hints(read_hints(result), is_first=is_first, tools_max=tools_max)

    def _receive_read(self, link: Link, exchange: Exchange) -> bool:
        uri = rpc.text_of(rpc.member_of(exchange.params, "uri")) or ""
        if uri == offers.WORKFLOW_URI and self.offers_uploads(link.plan):
            tools = offers.upload_tools(self._context, link.session_of(exchange), link.plan.id)
            text = offers.workflow_text(tools)
            self._finish(link, exchange, offers.resource_contents(uri, "text/markdown", text.encode()))
        elif is_own(uri):
            self._resources.receive_read(link, exchange, uri)
        elif not self._has(link, "resources"):
            self._resources.miss(link, exchange, uri)
        else:
            real = self._calls.with_path(link, uri)
            if real != uri:
                exchange.replace_params(set_member(exchange.params or b"{}", "uri", msgspec.json.encode(real)))
            return False
        return True

    def _receive_subscription(self, link: Link, exchange: Exchange) -> bool:
        uri = rpc.text_of(rpc.member_of(exchange.params, "uri")) or ""
        if not is_own(uri):
            return False
        self._resources.receive_subscription(link, exchange, uri)
        return True

    def grant(self, link: Link, session: Session, wanted: ListenFilter) -> ListenFilter:
        """Returns the part of a subscription that the proxy itself serves."""
        return self._resources.granted(link, session, wanted)

    # --- Tools ------------------------------------------------------------------------------------------------------

    def _receive_tool_call(self, link: Link, exchange: Exchange) -> bool:
        tool = rpc.text_of(rpc.member_of(exchange.params, "name"))
        if tool == offers.helper_name(link.plan.id) and self.offers_uploads(link.plan):
            self._offer_upload(link, exchange)
            return True
        if tool == offers.put_name(link.plan.id) and self.offers_uploads(link.plan):
            self._put_calls.receive_call(link, exchange)
            return True
        return self._calls.receive_call(link, exchange)

    # --- Upload links -----------------------------------------------------------------------------------------------

    def _offer_upload(self, link: Link, exchange: Exchange) -> None:
        session, limits = link.session_of(exchange), self._context.limits
        base = base_url(self._context, session)
        put = f"call {session.tool_shown(offers.put_name(session.server))} with the file's content."
        if not base:
            text = f"Upload links need an HTTP listener, and this proxy has none: {put}"
            self._finish(link, exchange, tool_error(text))
            return
        announced = rpc.member_of(exchange.params, "arguments")
        problem = offers.announced_problem(announced, limits.upload_size_max_bytes)
        if problem is not None:
            self._finish(link, exchange, tool_error(problem))
            return
        key, ttl_s = self._context.plan.link_key, limits.upload_link_ttl_s
        tool = session.tool_shown(offers.helper_name(session.server))
        grant = UploadGrant(
            sid=session.files_sid,
            nonce=self._context.mint(),
            expires_at_unix=int(self._context.now_unix + ttl_s),
            principal=session.principal,
            is_bearer=session.is_stateless,
            owner_tag=owner_tag(key, session.owner),
            tool="" if tool == offers.helper_name(session.server) else tool,
        )
        try:
            query = sign_upload(key, server=session.server, grant=grant)
        except LinkTooLong:
            self._finish(link, exchange, tool_error(f"Your name is too long for an upload link: {put}"))
            return
        offer = offers.upload_offer(
            server_id=session.server,
            tool=tool,
            upload_url=f"{base}/upload/{session.server}?{urlencode(query)}",
            sid=session.files_sid,
            ttl_seconds=int(ttl_s),
            max_file_bytes=limits.upload_size_max_bytes,
            sha256_required=self._context.plan.require_sha256,
            max_files=limits.upload_files_max,
        )
        self._finish(link, exchange, offer)

    # --- Resources that results link to -----------------------------------------------------------------------------

    def receive_own_response(self, link: Link, own_request: OwnRequest, frame: Frame) -> None:
        self._linked_resources.receive_own_response(own_request, frame)

    # --- Ends -------------------------------------------------------------------------------------------------------

    def cancel(self, link: Link, exchange: Exchange) -> None:
        """Frees the files of a call before its server is told."""
        self.forget(link, link.session_of(exchange), exchange)

    def forget(self, link: Link | None, session: Session, exchange: Exchange) -> None:
        self._linked_resources.forget(exchange)
        self._resources.forget(exchange)
        self._calls.forget(exchange)
        self._put_calls.forget(exchange)

    def sweep(self, workspace: str) -> None:
        """Removes the folders of a session in which no server process works any more."""
        self._calls.sweep(workspace)

    def _finish(self, link: Link, exchange: Exchange, result: bytes) -> None:
        link.router.finish(link, exchange, rpc.encode_result(exchange.id_raw, result))

    def _fail(self, link: Link, exchange: Exchange, code: int, text: str) -> None:
        link.router.finish(link, exchange, rpc.encode_error(exchange.id_raw, code, text))
