"""Requests that name files which another process has stored: they wait until the records of these files are loaded.

So whatever reads the request later finds a file of any process as it finds those of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from ..base.errors import INTERNAL_ERROR
from ..base.plan import UPLOAD_SCHEME, ServerPlan
from ..jsonrpc import envelope as rpc
from ..state.context import Context
from ..state.exchange import Exchange, ExchangeState
from ..state.interceptor import Interceptor
from ..state.link import Link
from .store.handles import ARTIFACT_SCHEME
from .store.shared import FileName, SharedFiles
from .store.store import FileStore

FOREIGN_FILES_MAX: Final = 64
"""Files of other processes that are looked for, for one request. Real calls name one to ten. At it: the others count as
unknown, and the request is refused for them."""
METHODS: Final = frozenset({"tools/call", "resources/read", "resources/subscribe"})
"""Requests that name files."""

_SLASH: Final = rb"\\?/"  # as some encoders write it in JSON
_ID: Final = rb"([0-9a-f]{32})"


class ForeignFiles(Interceptor):
    """Loads the records of files that a request names and this process does not know."""

    name = "foreign files"

    def __init__(self, context: Context, file_store: FileStore, shared_files: SharedFiles) -> None:
        self._context = context
        self._file_store = file_store
        self._shared_files = shared_files
        schemes = {ARTIFACT_SCHEME, UPLOAD_SCHEME, *(server.upload_scheme for server in context.plan.servers)}
        named = b"|".join(re.escape(scheme.encode()).replace(b"/", _SLASH) for scheme in sorted(schemes))
        self._pattern = re.compile(b"(" + named + b")sessions" + _SLASH + _ID + _SLASH + _ID)

    def is_for(self, plan: ServerPlan) -> bool:
        return plan.has_files and self._context.plan.shares_storage

    def receive_request(self, link: Link, exchange: Exchange) -> bool:
        if exchange.method not in METHODS:
            return False

        def go_on(problem: str) -> None:
            if exchange.state is not ExchangeState.PREPARING:
                return  # the client has left meanwhile
            if problem:
                link.router.finish(link, exchange, rpc.encode_error(exchange.id_raw, INTERNAL_ERROR, problem))
            else:
                link.router.forward(link, exchange, after=self.name)

        return self.wait_for_files(exchange.params, go_on)

    def wait_for_files(self, params: bytes | None, then: Callable[[str], None]) -> bool:
        """True if params name files that are looked for now. Calls `then` at the end, with the text of the error if the
        storage had a problem; else with ""."""
        unknown = [] if params is None else self._unknown(params)

        def loaded(problem: str) -> None:
            text = "the files that this request names could not be looked up"
            then(problem and f"{text}: {problem}: try again")

        if unknown:
            self._shared_files.load(unknown, loaded)
        return bool(unknown)

    def _unknown(self, params: bytes) -> list[FileName]:
        found: dict[FileName, None] = {}
        for scheme, sid, id in self._pattern.findall(params):
            is_artifact = scheme.replace(b"\\", b"") == ARTIFACT_SCHEME.encode()
            name = FileName("artifact" if is_artifact else "upload", sid.decode(), id.decode())
            if not self._file_store.has(*name):
                found[name] = None
            if len(found) == FOREIGN_FILES_MAX:
                break
        return list(found)
