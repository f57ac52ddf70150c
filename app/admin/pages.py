"""The management pages of one process: what each route of `core.wire.http.admin_routes` is answered with."""

from __future__ import annotations

import shutil
from collections.abc import Awaitable, Callable, Mapping
from types import ModuleType

import msgspec
from anyio import to_thread

from ...core.base.limits import Limits
from ...core.base.storage import Serve
from ...core.wire.http.admin_routes import METRICS_TYPE, Page
from ...core.wire.http.error_responses import page_answer, page_error
from ...core.wire.http.routes import PageRoute, Refused
from ...transports.base.traffic import Counts
from ..base.logs import later_dropped
from ..base.version import DESCRIPTION, VERSION
from ..config.settings import Server
from ..runtime.hub import Hub
from ..runtime.own_sessions import OwnSessions
from ..telemetry.measurements import Measurements
from .files import FilePages
from .revocations import RevocationPages
from .servers import ServerPages
from .tasks import TaskPages
from .tools import ToolPages


class ManagementPages:
    """The management pages of one process.

    Args:
        servers: the configured servers, by id.
        tool_counts: for each server, the number of tools it had when its tools were listed last. The pages keep it.
        connect: answers the pages where callers log in at servers; None: no server has a login for each caller.
        replica: the tag of this replica, and the number of replicas it sees; None: its stores are not shared.
        measurements: what is counted and measured besides the traffic; None: nothing.
        spans_dropped: returns the number of spans that were dropped, by reason.
        storage_root: the folder of the storage.
        is_stopping: returns whether the process was told to stop, and still serves.
        audit_failures: the number of records that the audit log has lost; None: there is no audit log.
    """

    def __init__(
        self,
        hub: Hub,
        own_sessions: OwnSessions,
        limits: Limits,
        servers: Mapping[str, Server],
        revocations: RevocationPages,
        traffic: Counts,
        *,
        tool_counts: dict[str, int],
        connect: Callable[[PageRoute], Awaitable[Refused | Serve]] | None,
        replica: Callable[[], tuple[str, int] | None],
        measurements: Measurements | None,
        spans_dropped: Callable[[], Mapping[str, int]],
        storage_root: str,
        is_stopping: Callable[[], bool],
        audit_failures: Callable[[], int | None] = lambda: None,
    ) -> None:
        self._hub = hub
        self._traffic = traffic
        self._connect = connect
        self._replica = replica
        self._measurements = measurements
        self._spans_dropped = spans_dropped
        self._storage_root = storage_root
        self._is_stopping = is_stopping
        self._audit_failures = audit_failures
        self._servers = ServerPages(hub, own_sessions, limits, tuple(servers.values()), tool_counts=tool_counts)
        self._tools = ToolPages(own_sessions, servers, limits, counts=tool_counts)
        self._tasks, self._files = TaskPages(hub, list(servers)), FilePages(hub, list(servers))
        self._revocations = revocations

    async def answer(self, route: PageRoute, body: bytes) -> Refused | Serve:
        """Returns the response to a request for a page."""
        match route.page:
            case Page.HEALTH | Page.READY:
                return self._health(route)
            case Page.INFO:
                shown = {"name": "isthmus", "version": VERSION, "description": DESCRIPTION}
                return page_answer(200, msgspec.json.encode(shown))
            case Page.TOOLS:
                return await self._tools.show(route.id, route.query, route.identity)
            case Page.CALL:
                return await self._tools.call(route.id, route.query, body, route.identity)
            case Page.SERVERS:
                return self._servers.show_all()
            case Page.SERVER:
                return self._servers.show(route.id)
            case Page.START | Page.STOP | Page.RESTART:
                return await self._servers.act(route.page, route.id)
            case Page.TASKS:
                return self._tasks.show_all(route.query)
            case Page.TASK:
                return self._tasks.show(route.id)
            case Page.CANCEL:
                return await self._tasks.cancel(route.id)
            case Page.FILES:
                return self._files.show_all(route.query)
            case Page.FILE:
                return self._files.show(route.id)
            case Page.CONTENT:
                return self._files.content(route.id)
            case Page.DELETE:
                return self._files.delete(route.id)
            case Page.CONNECT | Page.CONNECTED:
                if self._connect is None:
                    return page_error(404, "got a page of logins, and no server here has one for each caller")
                return await self._connect(route)
            case Page.REVOKE:
                return await self._revocations.revoke(route.query, route.identity)
            case Page.METRICS:
                return await self._metrics()
            case _:  # of the live page, which answers them itself
                return page_error(404, "got a page that is not here")

    def _health(self, route: PageRoute) -> Refused:
        unready = self._servers.unready() if route.page is Page.READY else []
        is_stopping = self._is_stopping() and route.page is Page.READY
        status = "stopping" if is_stopping else "not ready" if unready else "ok"
        shown: dict[str, object] = {"status": status, "service": "isthmus"}
        if route.shows_all:
            shown |= {"version": VERSION, "sessions": self._hub.engine.session_count}
            shown |= {"servers": unready} if unready else {}
            if (replica := self._replica()) is not None:
                shown |= {"replica": replica[0], "replicas": replica[1]}
        return page_answer(200 if status == "ok" else 503, msgspec.json.encode(shown))

    async def _metrics(self) -> Refused:
        hub, replica = self._hub, self._replica()
        # No other module takes longer to import.
        metrics = await to_thread.run_sync(_load_metrics)
        try:
            disk = await to_thread.run_sync(shutil.disk_usage, self._storage_root)
        except OSError:
            disk = None
        exposed = metrics.exposition(
            VERSION,
            hub.engine.report(),
            hub.tasks(),
            hub.now_unix(),
            traffic=self._traffic,
            files=hub.files(),
            ends=hub.engine.file_ends(),
            replicas=None if replica is None else replica[1],
            measurements=self._measurements,
            lost={"log": later_dropped(), "defect": hub.events_lost},
            spans_dropped=self._spans_dropped(),
            disk=None if disk is None else (disk.free, disk.total),
            audit_failures=self._audit_failures(),
        )
        return page_answer(200, exposed, content_type=METRICS_TYPE)


def _load_metrics() -> ModuleType:
    from . import metrics

    return metrics
