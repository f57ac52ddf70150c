"""The pages of the live page: its files, what has crossed, and the management pages beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from ...core.base.storage import Serve
from ...core.wire.http.admin_routes import POSTED, Page
from ...core.wire.http.error_responses import page_answer, page_error
from ...core.wire.http.routes import PageRoute, Refused
from ...transports.http_server.shared import Pages
from ..base.version import VERSION
from .records import BODIES_MAX_BYTES, MESSAGES_MAX
from .replay import Replays
from .static_files import StaticFiles
from .watching import WAIT_MAX_S, Watching

EVENTS_MAX: Final = 2000
"""Records in one response. At it: the page asks for the next ones at once."""
_OTHERS: Final = frozenset(
    {Page.SERVERS, Page.SERVER, Page.START, Page.STOP, Page.RESTART, Page.TASKS, Page.TASK, Page.CANCEL}
) | {Page.FILES, Page.FILE, Page.CONTENT, Page.DELETE}
"""The management pages that the live page uses."""


class WatchPages:
    """The pages.

    Args:
        others: answers the management pages.
        servers: the ids of the servers.
        stderr: for each server, the last lines that its processes wrote to stderr.
        has_actions: the page may change something.
    """

    def __init__(
        self,
        watching: Watching,
        others: Pages,
        replays: Replays,
        servers: Sequence[str],
        stderr: Mapping[str, list[str]],
        *,
        has_actions: bool,
    ) -> None:
        self._watching = watching
        self._others = others
        self._replays = replays
        self._servers = servers
        self._stderr = stderr
        self._has_actions = has_actions
        self._files = StaticFiles()

    async def answer(self, route: PageRoute, body: bytes) -> Refused | Serve:
        """Returns the response to a request for a page."""
        is_command = route.page in POSTED or route.page is Page.DELETE
        if is_command and not self._has_actions:
            return page_error(403, "got a command, expected none: ui.actions: true in the configuration turns them on")
        match route.page:
            case Page.STATIC:
                return self._files.answer(route.id)
            case Page.EVENTS:
                return await self._events(route.query)
            case Page.OVERVIEW:
                return self._overview()
            case Page.SESSIONS:
                return page_answer(200, msgspec.json.encode({"sessions": self._watching.sessions()}))
            case Page.MESSAGE:
                return self._message(route.id, is_body=False)
            case Page.BODY:
                return self._message(route.id, is_body=True)
            case Page.REPLAY:
                return await self._replays.answer(body, route.identity)
        if route.page in _OTHERS:
            return await self._others(route, body)
        return page_error(404, "got a page that is not beside the live page, expected it at the port of clients")

    async def _events(self, query: dict[str, str]) -> Refused:
        try:
            after, wait_s = int(query.get("after", "0")), float(query.get("wait", "0"))
        except ValueError:
            return page_error(400, "got after or wait that is no number, expected ?after=N&wait=SECONDS")
        watching, records = self._watching, self._watching.records
        if not 0 <= wait_s <= WAIT_MAX_S:
            return page_error(400, f"got wait={query['wait'][:20]}, expected 0 to {WAIT_MAX_S:g} seconds")
        if after > records.last:  # that of a page from before a restart, which is to know
            after, wait_s = records.last, 0.0
        found = await watching.after(max(0, after), EVENTS_MAX, wait_s)
        skipped = max(0, records.first - after - 1)
        shown = {
            "run": watching.run_id,
            "after": after,
            "last": records.last,
            "skipped": skipped if found else 0,
            "events": found,
        }
        return page_answer(200, msgspec.json.encode(shown))

    def _overview(self) -> Refused:
        self._watching.look()
        records = self._watching.records
        ring = {
            "messages": records.message_count,
            "bytes": records.body_bytes,
            "messages_max": MESSAGES_MAX,
            "bytes_max": BODIES_MAX_BYTES,
        }
        shown = {
            "run": self._watching.run_id,
            "version": VERSION,
            "mode": "full" if self._watching.has_bodies else "headers",
            "actions": self._has_actions,
            "ring": ring,
            "servers": self._servers,
            "stderr": self._stderr,
        }
        return page_answer(200, msgspec.json.encode(shown))

    def _message(self, id: str, *, is_body: bool) -> Refused:
        found = self._watching.message(int(id)) if id.isascii() and id.isdigit() and len(id) < 20 else None
        if found is None:
            why = "" if self._watching.has_bodies else ", as ui.bodies is false"
            return page_error(404, f"got the message {id[:20]!r}, which is not kept (any more){why}")
        record, body = found
        if is_body:
            extra = ((b"x-full-size", b"%d" % record.bytes), (b"x-sha256", body.sha256.hex().encode()))
            return page_answer(200, body.data, extra, content_type="application/octet-stream")
        shown = msgspec.to_builtins(record)
        shown |= {"headers": body.headers, "status": body.status, "redacted": body.redacted}
        return page_answer(200, msgspec.json.encode(shown))
