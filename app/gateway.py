"""From settings to a running proxy: storage, engine, hub and listeners put together, and taken apart in order."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from types import ModuleType
from typing import TypeVar

import anyio
import msgspec
from anyio import to_thread

from ..core.base.effects import Serve
from ..core.base.limits import Limits
from ..core.base.plan import Plan
from ..core.downstream import event_store
from ..core.engine import Engine
from ..core.wire.http.admin_routes import Page
from ..core.wire.http.error_responses import page_answer
from ..core.wire.http.routes import PageRoute, Refused
from ..storage.files import FileBlobs
from ..storage.interface import StorageError
from ..storage.sqlite import SqliteRecords
from ..transports.base.endpoint import Endpoint
from ..transports.base.traffic import Counts
from ..transports.http_server.server import HttpServer
from ..transports.http_server.shared import Pages
from ..transports.reverse_proxy.forwarder import Forwarder, Transparent
from ..transports.stdio.exit_reason import LAST_LINE_MAX_CHARS, LAST_LINES
from ..transports.stdio.server_process import ChildSpec
from ..transports.unix.client import UnixAddress
from ..transports.unix.listener import remove_socket
from .admin.files import FilePages
from .admin.servers import ServerPages
from .admin.tasks import TaskPages
from .admin.tools import ToolPages
from .base.errors import StartError
from .base.version import DESCRIPTION, VERSION
from .config.addresses import unix_path
from .config.plan import to_forward_target, to_header_rules, to_limits, to_plan
from .config.settings import Server, Settings
from .disk.blob_files import BlobFiles
from .disk.lock import InUse, holding
from .disk.restore import Left, left_behind
from .disk.temporary import temporary_folder
from .disk.workspaces import Workspaces
from .runtime.event_loop import drive_of
from .runtime.hub import EngineLike, Hub
from .runtime.listeners import open_listeners, serve_lines, surface_of
from .runtime.open_files import allow_open_files, within_open_files
from .runtime.own_sessions import Conversations
from .runtime.trace_file import Trace, open_trace

T = TypeVar("T")
KEY_BYTES = 32


_log = logging.getLogger("isthmus.server")


def _log_server(server: str, line: str) -> None:
    _log.info("%s: %s", server, line)


def _keep_and_log(kept: dict[str, list[str]], log_server: Callable[[str, str], None], server: str, line: str) -> None:
    lines = kept.setdefault(server, [])
    lines.append(line[:LAST_LINE_MAX_CHARS])
    del lines[:-LAST_LINES]
    log_server(server, line)


@dataclass
class Service:
    """A proxy at work.

    Attributes:
        base_url: what its HTTP listener is reached by; empty without one.
        tool_counts: how many tools a server was found to have when it was asked last.
        stderr: what processes of each server wrote there last.
    """

    settings: Settings
    plan: Plan
    limits: Limits
    hub: Hub
    forwarder: Forwarder
    base_url: str = ""
    tool_counts: dict[str, int] = field(default_factory=dict)
    stderr: dict[str, list[str]] = field(default_factory=dict)

    @property
    def server_ids(self) -> list[str]:
        return [server.id for server in self.settings.servers]


@contextlib.asynccontextmanager
async def running(
    settings: Settings,
    *,
    listen: bool,
    is_lasting: bool,
    trace_path: str | None = None,
    log_server: Callable[[str, str], None] | None = None,
) -> AsyncIterator[Service]:
    """A proxy for `settings`, until the context is left: then it drains, and everything it started is gone.

    Args:
        listen: whether to open the HTTP listener of `settings.core`.
        is_lasting: whether what is stored stays in `settings.storage.root`; else it lives in a temporary folder.

    Raises:
        StartError: the port is taken, the storage is in use, the trace cannot be written.
    """
    async with contextlib.AsyncExitStack() as stack:
        root = settings.storage.root if is_lasting else await stack.enter_async_context(_apart(temporary_folder()))
        limits = within_open_files(to_limits(settings), allow_open_files())
        with _start_errors(root):
            # Before anything below the root is read or made: of two that start at once, one must not see any of it.
            workspaces_path = os.path.realpath(os.path.join(root, "workspaces"))
            stack.enter_context(holding(workspaces_path))
            state = os.path.join(root, "state")
            link_key = await to_thread.run_sync(_kept_key, state, "link.key")
            state_key = await to_thread.run_sync(_kept_key, state, "state.key")
            records = SqliteRecords(os.path.join(state, "records.sqlite"))
            stack.push_async_callback(records.aclose)
            blobs_path = os.path.join(root, "blobs")
            blobs = FileBlobs(blobs_path)
            stack.push_async_callback(blobs.aclose)
            workspaces = Workspaces(
                workspaces_path,
                records,
                blobs,
                artifact_roots={server.id: server.artifact_roots for server in settings.servers},
                working_directories={server.id: server.upstream.cwd for server in settings.servers},
                limits=limits,
                private_paths=(state, blobs_path),
            )
            await records.delete_all(event_store.PREFIX)  # their sessions ended with the process that had them
            await workspaces.start_up()
            left = await left_behind(records, now_unix=time.time(), upload_ttl_s=limits.upload_ttl_s)
        # Only now: what does not start must not touch the trace of what runs.
        trace = stack.enter_context(open_trace(trace_path)) if trace_path is not None else None
        listeners, base_url = await open_listeners(settings) if listen else ([], "")
        if listen and settings.core.unix_socket is not None:
            stack.callback(remove_socket, settings.core.unix_socket)
        tmp_prefix = workspaces.tmp_prefix
        plan = to_plan(
            settings, link_key, workspaces.root, base_url, VERSION, state_key=state_key, tmp_prefix=tmp_prefix
        )
        stderr: dict[str, list[str]] = {}
        hub = Hub(
            functools.partial(_make_engine, plan, limits, left, trace),
            plan,
            {server.id: upstream_of(server) for server in settings.servers if server.inspect},
            workspaces,
            limits,
            log_server=functools.partial(_keep_and_log, stderr, log_server or _log_server),
            drive=drive_of(settings.core, os.environ),
        )
        forwarder = _forwarder(settings, link_key, limits)
        stack.push_async_callback(forwarder.close_idle)
        service = Service(settings, plan, limits, hub, forwarder, base_url, stderr=stderr)
        async with anyio.create_task_group() as tasks:
            await tasks.start(_run_hub, hub)
            http: HttpServer | None = None
            serving: list[anyio.CancelScope] = []
            try:
                if listeners:
                    conversations = Conversations(hub, limits, VERSION)
                    await tasks.start(_converse, conversations, _shielded(serving))
                    surface = surface_of(settings, forwarder.targets)
                    traffic = Counts()
                    files, pages = BlobFiles(blobs), _pages(service, conversations, traffic)
                    http = HttpServer(
                        surface,
                        hub,
                        files,
                        limits,
                        pages=pages,
                        forwarder=forwarder,
                        counts=traffic,
                        only_h11=hub.drive.only_h11,
                        protocols=hub.drive.protocols,
                    )
                    for listener in listeners:
                        await tasks.start(_serve, http, listener, _shielded(serving))
                for server in settings.servers:
                    if listen and server.unix_socket is not None:
                        scope = _shielded(serving)
                        await tasks.start(serve_lines, server.id, server.unix_socket, hub, limits, scope)
                yield service
            finally:
                with anyio.CancelScope(shield=True):
                    async with anyio.create_task_group() as draining:
                        if http is not None:
                            draining.start_soon(http.drain)
                        async with anyio.create_task_group() as ending:
                            ending.start_soon(hub.stop, limits.drain_s)
                            with anyio.move_on_after(limits.drain_s):
                                await forwarder.wait_no_calls()
                        draining.cancel_scope.cancel()
                    for scope in serving:
                        scope.cancel()
                    tasks.cancel_scope.cancel()


def _shielded(scopes: list[anyio.CancelScope]) -> anyio.CancelScope:
    """A scope of its own for each listener, which only we end."""
    scopes.append(anyio.CancelScope(shield=True))
    return scopes[-1]


# Hub and listener outlive the cancellation of their surroundings: whoever leaves `running`, in whatever way, stops them
# in order, so that calls in flight can finish and their answers be delivered.


async def _run_hub(hub: Hub, *, task_status: anyio.abc.TaskStatus[None]) -> None:
    with anyio.CancelScope(shield=True):
        await hub.run(task_status=task_status)


async def _serve(
    http: HttpServer,
    listener: anyio.abc.Listener[anyio.abc.SocketStream],
    scope: anyio.CancelScope,
    *,
    task_status: anyio.abc.TaskStatus[None],
) -> None:
    with scope:
        await http.serve(listener, task_status=task_status)


async def _converse(
    conversations: Conversations, scope: anyio.CancelScope, *, task_status: anyio.abc.TaskStatus[None]
) -> None:
    with scope:
        await conversations.run(task_status=task_status)


def _make_engine(
    plan: Plan,
    limits: Limits,
    left: Left,
    trace: Trace | None,
    unix_at_zero: float,
) -> EngineLike:
    make: Callable[..., EngineLike] = Engine
    if trace is not None:
        from ..core.trace import Recorder  # only then, for its decoder takes time to make

        make = functools.partial(Recorder, write=trace.write)
    return make(
        plan,
        entropy=os.urandom,
        unix_at_zero=unix_at_zero,
        limits=limits,
        stored=left.artifacts,
        stored_tasks=left.tasks,
        stored_uploads=left.uploads,
    )


def upstream_of(server: Server) -> ChildSpec | Endpoint | UnixAddress:
    upstream = server.upstream
    if upstream.command is not None:
        return ChildSpec(upstream.command, dict(upstream.env), upstream.cwd, upstream.inherit_env)
    assert upstream.url is not None
    path = unix_path(upstream.url)
    if path is not None:
        return UnixAddress(path)
    headers = tuple(upstream.headers.items())
    return Endpoint(upstream.url, headers, verify_tls=upstream.verify_tls, ca_file=upstream.ca_file)


def _forwarder(settings: Settings, link_key: bytes, limits: Limits) -> Forwarder:
    servers = {}
    for server in settings.servers:
        if not server.inspect:
            endpoint = upstream_of(server)
            assert isinstance(endpoint, Endpoint)
            target, rules = to_forward_target(settings, server, link_key), to_header_rules(server)
            servers[server.id] = Transparent(endpoint, target, rules, reply_timeout_s=server.call_timeout_seconds)
    return Forwarder(servers, limits)


# --- Pages ----------------------------------------------------------------------------------------------------------


def _pages(service: Service, conversations: Conversations, traffic: Counts) -> Pages:
    hub, counts = service.hub, service.tool_counts
    servers = ServerPages(hub, conversations, service.limits, service.settings.servers, tool_counts=counts)
    by_id = {server.id: server for server in service.settings.servers}
    tools = ToolPages(conversations, by_id, service.limits, counts=counts)
    tasks, files = TaskPages(hub, service.server_ids), FilePages(hub, service.server_ids)

    async def answer(route: PageRoute, body: bytes) -> Refused | Serve:
        match route.page:
            case Page.HEALTH | Page.READY:
                unready = servers.unready() if route.page is Page.READY else []
                said: dict[str, object] = {"status": "not ready" if unready else "ok", "service": "isthmus"}
                said |= {"version": VERSION, "sessions": hub.engine.session_count}
                said |= {"servers": unready} if unready else {}
                return page_answer(503 if unready else 200, msgspec.json.encode(said))
            case Page.INFO:
                said = {"name": "isthmus", "version": VERSION, "description": DESCRIPTION}
                return page_answer(200, msgspec.json.encode(said))
            case Page.TOOLS:
                return await tools.show(route.id, route.query)
            case Page.CALL:
                return await tools.call(route.id, route.query, body)
            case Page.SERVERS:
                return servers.show_all()
            case Page.SERVER:
                return servers.show(route.id)
            case Page.START | Page.STOP | Page.RESTART:
                return await servers.act(route.page, route.id)
            case Page.TASKS:
                return tasks.show_all(route.query)
            case Page.TASK:
                return tasks.show(route.id)
            case Page.CANCEL:
                return tasks.cancel(route.id)
            case Page.FILES:
                return files.show_all(route.query)
            case Page.FILE:
                return files.show(route.id)
            case Page.CONTENT:
                return files.content(route.id)
            case Page.DELETE:
                return files.delete(route.id)
            case Page.METRICS:
                metrics = await to_thread.run_sync(_load_metrics)
                counted = metrics.exposition(
                    VERSION,
                    hub.engine.report(),
                    hub.tasks(),
                    hub.now_unix(),
                    traffic=traffic,
                    files=hub.files(),
                    ends=hub.engine.file_ends(),
                )
                return page_answer(200, counted, content_type=metrics.CONTENT_TYPE)

    return answer


def _load_metrics() -> ModuleType:
    """It takes longest to import, in half a dozen modules of the standard library, and few ever ask for its page."""
    from .admin import metrics

    return metrics


# --- Storage --------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _start_errors(root: str) -> Iterator[None]:
    try:
        yield
    except InUse as error:
        raise StartError(str(error)) from error
    except StorageError as error:
        raise StartError(f"storage.root {root} cannot be used: {error}") from error
    except OSError as error:
        raise StartError(f"storage.root {root} cannot be used: {error.strerror or error}") from error


def _kept_key(folder: str, name: str) -> bytes:
    """A key, made once and kept beside what it protects: links outlive a restart, and a `requestState` of an earlier
    run is known for one."""
    os.makedirs(folder, mode=0o700, exist_ok=True)
    path = os.path.join(folder, name)
    try:
        with open(path, "rb") as file:
            key = file.read()
        if len(key) == KEY_BYTES:
            return key
    except FileNotFoundError:
        pass
    key = secrets.token_bytes(KEY_BYTES)
    temporary = f"{path}.{os.getpid()}"
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(key)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    return key


@contextlib.asynccontextmanager
async def _apart(manager: contextlib.AbstractContextManager[T]) -> AsyncIterator[T]:
    """The manager, entered and left in a thread: it may take its time, and signals are heard meanwhile."""
    value = await to_thread.run_sync(manager.__enter__)
    try:
        yield value
    finally:
        with anyio.CancelScope(shield=True):
            await to_thread.run_sync(manager.__exit__, None, None, None)
