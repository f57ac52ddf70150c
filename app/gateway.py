"""A running proxy, built from settings and shut down in order.

`running` builds storage, engine, hub and listeners, and `Gateway` is what it gives.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

import anyio
import msgspec
from anyio import to_thread

from ..core.access.gate import Gate
from ..core.access.issuers import Issuers
from ..core.base.limits import Limits
from ..core.base.plan import Plan
from ..core.base.setting_names import KEYS, SettingNames
from ..core.base.telemetry import Detail
from ..core.bulk import BulkEngine
from ..core.state.records import TASK_PREFIX, artifact_key
from ..core.status import Command
from ..core.wire.http.hop import HopReceiver, HopSigner
from ..transports.base.tokens import TokensOf
from ..transports.base.traffic import Counts
from ..transports.http_server.server import HttpServer
from ..transports.http_server.shared import Pages
from ..transports.reverse_proxy.forwarder import Forwarder
from ..transports.reverse_proxy.replicas import Replicas
from ..transports.stdio.exit_reason import LAST_LINE_MAX_CHARS, LAST_LINES
from ..transports.tls.server import ServerTls
from ..transports.unix.listener import LineListener, remove_socket
from .admin.pages import ManagementPages
from .admin.revocations import KIND, RevocationPages, stored_revocations
from .base.errors import StartError
from .base.listeners import Listener, detail_of
from .base.version import VERSION
from .cluster import lock_record
from .cluster.changes import Interest, changes_of_workers, opened_changes
from .cluster.joined import joined
from .cluster.listener import open_internal
from .cluster.lock_record import is_recorded, stored_lock
from .cluster.membership import Membership
from .config.access import to_gate_settings, to_issuer_settings, who_may
from .config.access_settings import Auth
from .config.addresses import shutdown_delay_of
from .config.lock_file import pin_rules
from .config.plan import to_limits, to_plan
from .config.settings import Settings
from .disk.blob_files import BlobFiles
from .disk.lock import holding
from .disk.restore import Restored, restore
from .disk.temporary import temporary_folder
from .disk.workspaces import Workspaces, remove_workers
from .logins.start_up import check_login_key, opened_logins
from .runtime import request_log
from .runtime.certificates import ListenerCertificate, listener_certificate
from .runtime.event_loop import drive_of
from .runtime.hub import Hub
from .runtime.listeners import (
    host_and_port_of,
    internal_surface,
    line_listener,
    open_listeners,
    open_page_listener,
    places_of,
    surface_of,
)
from .runtime.open_files import allow_open_files, within_open_files
from .runtime.own_sessions import OwnSessions
from .runtime.token_files import TokenFiles, token_folders
from .runtime.trace_file import Trace, open_trace
from .runtime.upstream_addresses import forwarder_for, upstreams_of
from .runtime.upstreams import warn_of_unchecked
from .stores.folder import kept_key, local_token, page_token, start_errors
from .stores.purge import keep_purged
from .stores.start_up import remove_leftovers
from .stores.stores import opened
from .telemetry.counters import Counters
from .telemetry.histogram import STEPS_S, Histogram
from .telemetry.loop_lag import measure
from .telemetry.measurements import Measurements
from .telemetry.store_times import StoreTimes
from .workers.pages import answers_alone, pages_of_all
from .workers.worker import Worker

if TYPE_CHECKING:
    from ..transports.access.issuer_requests import IssuerRequests
    from ..transports.web_fetch import FetchSettings
    from .logins.setup import Logins
    from .watch.watching import Watching

T = TypeVar("T")
NEW_FILE_S = 600.0
"""Seconds after which a file whose record is not found was removed by another replica. An order to the storage takes
`Limits.storage_timeout_s` at most."""

_log = logging.getLogger("isthmus.server")


def _log_server(server: str, line: str) -> None:
    _log.info("%s: %s", server, line)


def _keep_and_log(kept: dict[str, list[str]], log_server: Callable[[str, str], None], server: str, line: str) -> None:
    lines = kept.setdefault(server, [])
    lines.append(line[:LAST_LINE_MAX_CHARS])
    del lines[:-LAST_LINES]
    log_server(server, line)


@dataclass
class Gateway:
    """A running proxy.

    Attributes:
        base_url: the URL of its HTTP listener; empty without one.
        certificate: that of its listener; None if it does not speak TLS.
        membership: its lease among the replicas of shared stores; None: its stores are not shared.
        tool_counts: for each server, the number of tools it had when its tools were listed last.
        stderr: for each server, the last lines that its processes wrote to stderr.
        issuers: the issuers whose tokens are accepted, with `issuer_requests`, which asks them; None: there are none.
        own_sessions: those that operator pages use; None: it has no listener.
        stops_accepting: functions that each have one of its listeners accept no more connections.
        end_connections: has each HTTP connection end with its next response.
        wait_arrived: returns when requests that are arriving have arrived, or after a short time.
        is_stopping: it was told to stop, and still serves.
        local_token: opens its pages of operators on this machine; None: nothing listens, or the settings say who may.
        page_url: the URL of the live page, with its token; empty without one.
    """

    settings: Settings
    plan: Plan
    limits: Limits
    hub: Hub
    forwarder: Forwarder
    base_url: str = ""
    certificate: ListenerCertificate | None = None
    membership: Membership | None = None
    tool_counts: dict[str, int] = field(default_factory=dict)
    stderr: dict[str, list[str]] = field(default_factory=dict)
    issuers: Issuers | None = None
    issuer_requests: IssuerRequests | None = None
    own_sessions: OwnSessions | None = None
    stops_accepting: list[Callable[[], Awaitable[None]]] = field(default_factory=list)
    end_connections: Callable[[], None] = lambda: None
    wait_arrived: Callable[[], Awaitable[None]] = anyio.lowlevel.checkpoint
    is_stopping: bool = False
    local_token: str | None = None
    page_url: str = ""
    _is_hurried: anyio.Event = field(default_factory=anyio.Event)

    async def announce_stop(self) -> None:
        """Says at `/readyz` that this process stops, and returns once balancers have turned to others: after
        `core.shutdown_delay_seconds`, or at `hurry`. Until then all requests are served. Those that a balancer sends
        at the last moment have arrived when this returns, and no more connections are accepted."""
        delay_s = shutdown_delay_of(self.settings.core)
        if not delay_s:
            return
        self.is_stopping = True
        self.end_connections()
        told = "stopping: /readyz returns 503, and requests are served for %g s more; a second signal ends that"
        _log.info(told, delay_s)
        with anyio.move_on_after(delay_s):
            await self._is_hurried.wait()
        self._is_hurried.set()
        await self._stop_accepting()
        await self.wait_arrived()

    def hurry(self) -> bool:
        """Ends the wait of `announce_stop`. Returns False if it does not wait."""
        if not self.is_stopping or self._is_hurried.is_set():
            return False
        self._is_hurried.set()
        return True

    async def retire(self) -> None:
        """Accepts no more connections, and returns when the last session has ended, or after `Limits.drain_s`.
        Meanwhile everything goes on, and requests for its sessions come through other processes, too."""
        await self._stop_accepting()
        if self.own_sessions is not None:
            self.own_sessions.retire()
        with anyio.move_on_after(self.limits.drain_s):
            await self.hub.wait_until(lambda: not self.hub.engine.session_count)

    async def _stop_accepting(self) -> None:
        for stop_accepting in self.stops_accepting:
            await stop_accepting()

    async def issuer_problems(self) -> list[str]:
        """Asks each issuer for its documents. Returns why some of them cannot be read, for people."""
        if self.issuers is None or self.issuer_requests is None:
            return []
        await self.issuer_requests.wait_for_documents()
        return self.issuers.problems()

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
    names: SettingNames = KEYS,
    login_command: Callable[[str], tuple[str, ...]] = lambda id: ("isthmus", "login", id),
    tokens: Mapping[str, TokensOf] | None = None,
    worker: Worker | None = None,
) -> AsyncIterator[Gateway]:
    """Runs a proxy for `settings` until the context is left, which drains it and ends everything that it started.

    Args:
        listen: open the listeners of `settings.core`, and the Unix sockets of servers.
        is_lasting: keep files and records where `settings.storage` says; else in a temporary folder.
        trace_path: where to write a trace; None: nowhere.
        log_server: called with (server, line) for each line that a server process writes to stderr.
        names: the names of settings in messages.
        login_command: returns the words of the command that logs in at a server, from its id.
        tokens: the tokens of servers, by id; None: those of the settings.
        worker: this process among those that share the storage folder and the listeners; None: there are no others.

    Raises:
        ConfigError: the lock of `settings.pins` cannot be used.
        StartError: nothing says who may call, the port is taken, a certificate cannot be used, the storage is in use, a
            shared store cannot be used, the trace cannot be written, or a package for spans is not installed.
    """
    if listen and (problem := who_may(settings)):
        raise StartError(problem)
    certificate = listener_certificate(settings, names) if listen else None
    has_lock_record = settings.pins.mode != "off" and is_recorded(settings)
    pins = {} if has_lock_record else pin_rules(settings)
    gate_settings = to_gate_settings(settings)
    issuers = None if gate_settings is None else _issuers(settings.auth)
    has_metrics, store_times = listen and settings.core.management.enabled, StoreTimes()
    wants_logins = tokens is None and any(server.upstream.auth is not None for server in settings.servers)
    if wants_logins and is_lasting and settings.storage.is_shared:
        check_login_key(settings)
    async with contextlib.AsyncExitStack() as stack:
        root = settings.storage.root if is_lasting else await stack.enter_async_context(_in_thread(temporary_folder()))
        limits = within_open_files(to_limits(settings), allow_open_files())
        with start_errors(f"{names.storage} {root}"):
            # The lock comes before anything below the root is read or made: a second process that starts at the same
            # time must not touch any of it.
            workspaces_path = os.path.realpath(os.path.join(root, "workspaces"))
            if worker is not None:
                workspaces_path = os.path.join(workspaces_path, worker.tag)
            stack.enter_context(holding(workspaces_path))
            if worker is None:
                await to_thread.run_sync(remove_workers, workspaces_path)
            state = os.path.join(root, "state")
            link_key = await to_thread.run_sync(kept_key, state, "link.key")
            state_key = await to_thread.run_sync(kept_key, state, "state.key")
            own_token = await to_thread.run_sync(local_token, settings, state) if listen else None
            ui_token = await to_thread.run_sync(page_token, settings, state)
            stores = await stack.enter_async_context(
                opened(settings.storage, root, may_share=is_lasting, worker="" if worker is None else worker.tag)
            )
            changes = None  # one process has nobody to tell
            if stores.records_path and worker is not None:
                feed = changes_of_workers(stores.records_path, worker.handover.folder, worker.tag)
                changes = await stack.enter_async_context(feed)
            elif stores.shared:
                changes = await stack.enter_async_context(opened_changes(settings.storage))
            announce = (lambda key: None) if changes is None else changes.announce
            workspaces = Workspaces(
                workspaces_path,
                stores.records,
                stores.blobs,
                is_shared=stores.shared,
                own_records=stores.own_records,
                artifact_roots={server.id: server.artifact_roots for server in settings.servers},
                hard_linked_roots={server.id: server.hard_linked_roots for server in settings.servers},
                working_directories={server.id: server.upstream.cwd for server in settings.servers},
                limits=limits,
                private_paths=(*stores.private_paths, *token_folders()),
                announce=announce,
            )
            await workspaces.start_up()
            await remove_leftovers(stores)
        if has_lock_record:
            pins = pin_rules(settings, await stored_lock(settings, stores.records if is_lasting else None))
        with start_errors("the storage"):
            revoked = await stored_revocations(stores.records)
            # What others have stored is loaded when it is named.
            restored = Restored() if stores.shared else await restore(stores.records, upload_ttl_s=limits.upload_ttl_s)
        gate = None if gate_settings is None else Gate(gate_settings, issuers, revoked)
        # Opened only now: a process that fails to start must not truncate the trace of one that runs.
        trace = stack.enter_context(open_trace(trace_path)) if trace_path is not None else None
        tls = None
        if certificate is not None:
            tls = ServerTls(certificate.current, handshake_timeout_s=limits.head_timeout_s)
        if worker is not None:
            listeners, base_url = await worker.listeners(tls), worker.base_url
        else:
            listeners, base_url = await open_listeners(settings, tls) if listen else ([], "")
            stack.enter_context(TokenFiles()).show(places_of(listeners), own_token)
        if listen and worker is None and settings.core.unix_socket is not None:
            stack.callback(remove_socket, settings.core.unix_socket)
        page_listener = None
        if settings.ui.listen is not None:
            page_listener = await open_page_listener(settings.ui.listen, may_move=not listen)
            stack.push_async_callback(page_listener.aclose)
            stack.enter_context(TokenFiles()).show(places_of([(page_listener, None)]), ui_token)
        replicas: Replicas | None = None
        internal = await open_internal(settings.cluster) if listen else None
        if internal is not None:
            stack.push_async_callback(internal.aclose)
        with start_errors("the storage"):
            joining = joined(
                settings,
                stores,
                when_gone=lambda peer: None if replicas is None else replicas.note_gone(peer.address),
                when_ended=lambda: None if changes is None else changes.look(),
                is_listening=internal is not None,
            )
            membership = await stack.enter_async_context(joining)
        warn_of_unchecked(settings.servers, names)
        audit = None
        if settings.telemetry.audit is not None:
            from .telemetry.audit import opened_audit  # late: few have one

            tags = "" if membership is None else membership.name.tag, "" if worker is None else worker.tag
            audit = await stack.enter_async_context(opened_audit(settings.telemetry.audit, *tags))
        tmp_prefix = workspaces.tmp_prefix
        plan = to_plan(
            settings,
            link_key,
            workspaces.root,
            base_url,
            VERSION,
            state_key=state_key,
            tmp_prefix=tmp_prefix,
            names=names,
            pins=pins,
            has_many_clients=listen,
            decides=audit is not None and audit.refuses,
            shares_storage=stores.shared,
            replica=None if membership is None else membership.name,
        )
        event_listeners = request_log.listeners()
        if audit is not None:
            event_listeners.append(Listener(Detail.STEPS, audit.receive))
        watched = Detail.NONE if settings.ui.listen is None else Detail.STEPS
        measurements: Measurements | None = None
        if has_metrics:
            measurements = Measurements(Counters(plan.servers, plan.profiles), store_times, Histogram(STEPS_S))
            event_listeners.append(Listener(Detail.ENDS, measurements.counters.receive))
        plan = msgspec.structs.replace(plan, telemetry=max(detail_of(event_listeners), watched))
        spans_dropped: Callable[[], Mapping[str, int]] = dict
        if (traces := settings.telemetry.traces) is not None:
            from .telemetry.span_export import span_export  # late: few have spans
            from .telemetry.spans import Spans

            exported = await stack.enter_async_context(_in_thread(span_export(traces.endpoint, traces.headers)))
            spans = Spans(exported.put, traces.arguments)
            # After the line above: of requests without a span it needs nothing, and `Plan.tracing` asks for the rest.
            event_listeners.append(Listener(Detail.STEPS, spans.receive))

            def spans_dropped() -> Mapping[str, int]:
                return exported.dropped | {"open": spans.lost, "rate": hub.engine.spans_refused}

        stderr: dict[str, list[str]] = {}
        watching: Watching | None = None

        def log_line(server: str, line: str) -> None:
            _keep_and_log(stderr, log_server or _log_server, server, line)
            if watching is not None:
                watching.note("stderr", server, line)

        logins = None
        if wants_logins:
            replica_tell = None if changes is None else announce
            token_of = (lambda _: None) if gate is None else gate.token_of
            opening = opened_logins(settings, login_command, plan.link_key, token_of, stores, replica_tell)
            logins = await stack.enter_async_context(opening)
        hub = Hub(
            functools.partial(_make_engine, plan, limits, restored, trace),
            plan,
            {server.id: upstreams_of(server, names) for server in settings.servers if server.inspect},
            workspaces,
            limits,
            log_server=log_line,
            drive=drive_of(settings.core, os.environ),
            tokens=tokens if tokens is not None else {} if logins is None else logins.tokens,
            listeners=event_listeners,
            wall_time=stores.wall_time,
            decide=None if audit is None else audit.decide,
        )
        forwarder = await stack.enter_async_context(forwarder_for(settings, plan.link_key, limits, names, hub.drive))
        hops: HopReceiver | None = None
        if membership is not None:
            secret = settings.cluster and settings.cluster.secret
            signer = HopSigner(secret.encode() if secret else plan.link_key, membership.name.tag)
            replicas = await stack.enter_async_context(Replicas(membership, signer, limits, hub.drive))
            hops = HopReceiver(signer, membership.name.run)
        gateway = Gateway(settings, plan, limits, hub, forwarder, base_url, certificate, membership, stderr=stderr)
        gateway.local_token = own_token
        async with anyio.create_task_group() as tasks:
            await tasks.start(_run_hub, hub)
            tasks.start_soon(keep_purged, stores.records)
            if measurements is not None:
                tasks.start_soon(measure, measurements.lag)
            if stores.shared_blobs is not None and membership is not None:
                from .stores.sweeper import Sweeper  # late: only shared stores are swept

                tasks.start_soon(Sweeper(stores.records, stores.shared_blobs, membership.is_first).run)
            http: HttpServer | None = None
            serving: list[anyio.CancelScope] = []
            revocations = RevocationPages(
                gate, stores.records, lambda: 0 if http is None else http.check_callers(), announce
            )
            try:
                if changes is not None:
                    await tasks.start(changes.run, _interests(hub, gate, revocations, logins, has_lock_record))
                wait_for_issuer = None
                if gate is not None and gate.issuers is not None:
                    from ..transports.access.issuer_requests import IssuerRequests  # late, as `_issuers` says

                    requests = IssuerRequests(gate.issuers, functools.partial(_fetch_settings, settings.auth))
                    await tasks.start(requests.run)
                    wait_for_issuer = requests.wait
                    gateway.issuers, gateway.issuer_requests = gate.issuers, requests
                if listeners or page_listener is not None:
                    own_sessions = OwnSessions(hub, limits, VERSION)
                    await tasks.start(_run_own_sessions, own_sessions, _shielded(serving))
                    surface = surface_of(settings, forwarder.targets, names, local_token=own_token, base_url=base_url)
                    traffic = Counts()
                    files = BlobFiles(stores.blobs)
                    connect = None if logins is None or logins.pages is None else logins.pages.answer
                    pages: Pages = ManagementPages(
                        hub,
                        own_sessions,
                        limits,
                        {server.id: server for server in settings.servers},
                        revocations,
                        traffic,
                        tool_counts=gateway.tool_counts,
                        measurements=measurements,
                        spans_dropped=spans_dropped,
                        storage_root=root,
                        connect=connect,
                        replica=lambda: None if membership is None else (membership.name.tag, membership.replica_count),
                        is_stopping=lambda: gateway.is_stopping,
                        audit_failures=lambda: None if audit is None else audit.failures,
                    ).answer
                    gateway.own_sessions = own_sessions
                    if worker is not None:
                        shared_pages = worker.pages(answers_alone(pages))
                        await tasks.start(shared_pages.run)
                        for id in await shared_pages.stopped() & {server.id for server in plan.servers}:
                            hub.order(id, Command.STOP)
                        pages = pages_of_all(pages, shared_pages)
                    if audit is not None:
                        pages = audit.pages(pages)
                    if page_listener is not None:
                        from .watch.page_server import live_page, url_of  # late: few are watched

                        where = host_and_port_of(page_listener)
                        page = live_page(
                            settings,
                            hub,
                            own_sessions,
                            pages,
                            surface,
                            files,
                            limits,
                            where,
                            token=ui_token,
                            gate=gate,
                            wait_for_issuer=wait_for_issuer,
                            stderr=stderr,
                        )
                        watching = page.watching
                        await tasks.start(watching.run)
                        await tasks.start(_serve, page.server, page_listener, tls, _shielded(serving))
                        gateway.page_url = url_of(where, "http" if tls is None else "https", ui_token)
                if listeners:
                    http = HttpServer(
                        surface,
                        hub,
                        files,
                        limits,
                        pages=pages,
                        forwarder=forwarder,
                        counts=traffic,
                        gate=gate,
                        wait_for_issuer=wait_for_issuer,
                        replicas=replicas,
                        only_h11=hub.drive.only_h11,
                        protocols=hub.drive.protocols,
                    )
                    gateway.end_connections, gateway.wait_arrived = http.end_connections, http.wait_arrived
                    if internal is not None and hops is not None:
                        passed = HttpServer(
                            internal_surface(surface),
                            hub,
                            files,
                            limits,
                            pages=pages,
                            counts=traffic,
                            hops=hops,
                            only_h11=hub.drive.only_h11,
                            protocols=hub.drive.protocols,
                        )
                        await tasks.start(_serve, passed, internal, None, _shielded(serving))
                    if membership is not None:
                        await membership.wait_seen()
                    for listener, spoken in listeners:
                        await tasks.start(_serve, http, listener, spoken, _shielded(serving))
                        gateway.stops_accepting.append(functools.partial(http.stop_accepting, listener))
                for server in settings.servers:
                    if listen and server.unix_socket is not None:
                        inherited = None if worker is None else worker.lines(server.id)
                        lines = line_listener(server.id, server.unix_socket, hub, limits, gate, inherited)
                        await tasks.start(_serve_lines, lines, _shielded(serving))
                        gateway.stops_accepting.append(lines.stop_accepting)
                yield gateway
            finally:
                drain_s = 0.0 if membership is not None and membership.is_lost else limits.drain_s
                with anyio.CancelScope(shield=True):
                    async with anyio.create_task_group() as draining:
                        # The listener for other replicas stays open: they pass on answers for which calls wait, and
                        # would take a refused connection for the end of this process.
                        if http is not None:
                            draining.start_soon(http.drain)
                        async with anyio.create_task_group() as ending:
                            ending.start_soon(hub.stop, drain_s)
                            with anyio.move_on_after(drain_s):
                                await forwarder.wait_no_calls()
                                if replicas is not None:
                                    await replicas.wait_no_calls()
                        draining.cancel_scope.cancel()
                    for scope in serving:
                        scope.cancel()
                    tasks.cancel_scope.cancel()


def _interests(
    hub: Hub, gate: Gate | None, revocations: RevocationPages, logins: Logins | None, has_lock_record: bool
) -> list[Interest]:
    """Returns the records of other replicas that this process wants to be told of."""

    def known() -> set[str]:
        # The record of a new file may not be saved yet.
        old_unix = hub.now_unix() - NEW_FILE_S
        files = (file for file in hub.files() if file.kind == "artifact" and file.stored_at_unix < old_unix)
        return {artifact_key(file.session, file.id) for file in files} | {TASK_PREFIX + task.id for task in hub.tasks()}

    kinds = frozenset({"artifact", "upload", "task", "cancel", "change"})
    found = [Interest(kinds, hub.receive_records, ("artifact", "task", "cancel", "change"), known)]
    if gate is not None:
        found.append(Interest(frozenset({KIND}), revocations.receive_records, (KIND,)))
    if has_lock_record:
        found.append(Interest(frozenset({lock_record.KIND}), hub.receive_records, (lock_record.KIND,)))
    if logins is not None and logins.kind:
        found.append(Interest(frozenset({logins.kind}), logins.receive_records, (), logins.known_keys))
    return found


def _issuers(auth: Auth) -> Issuers | None:
    """Returns the issuers whose tokens are accepted; None if there are none.

    What verifies signatures takes time to import, and is not always installed.

    Raises:
        StartError: it is not installed.
    """
    if not auth.issuers:
        return None
    try:
        from ..transports.access.signatures import verify
    except ImportError as error:
        raise StartError(str(error)) from None
    return Issuers(to_issuer_settings(auth), verify=verify)


def _fetch_settings(auth: Auth, issuer: str) -> FetchSettings:
    from ..transports.web_fetch import FetchSettings  # late, as in `_issuers`

    found = next(each for each in auth.issuers if each.url == issuer)
    asked = found.introspect and found.introspect.url
    urls = frozenset(url for url in (found.url, found.jwks_url, asked) if url)
    return FetchSettings(origins=urls, ca_file=found.ca_file)


def _shielded(scopes: list[anyio.CancelScope]) -> anyio.CancelScope:
    """Adds and returns a shielded scope for one listener, which only `running` cancels."""
    scopes.append(anyio.CancelScope(shield=True))
    return scopes[-1]


# Hub and listeners are shielded from cancellation. `running` stops them in order, however its context is left, so that
# calls in flight can finish and their responses be delivered.


async def _run_hub(hub: Hub, *, task_status: anyio.abc.TaskStatus[None]) -> None:
    with anyio.CancelScope(shield=True):
        await hub.run(task_status=task_status)


async def _serve(
    http: HttpServer,
    listener: anyio.abc.Listener[anyio.abc.SocketStream],
    tls: ServerTls | None,
    scope: anyio.CancelScope,
    *,
    task_status: anyio.abc.TaskStatus[None],
) -> None:
    with scope:
        await http.serve(listener, tls=tls, task_status=task_status)


async def _serve_lines(
    lines: LineListener, scope: anyio.CancelScope, *, task_status: anyio.abc.TaskStatus[None]
) -> None:
    with scope:
        await lines.serve(task_status=task_status)


async def _run_own_sessions(
    own_sessions: OwnSessions, scope: anyio.CancelScope, *, task_status: anyio.abc.TaskStatus[None]
) -> None:
    with scope:
        await own_sessions.run(task_status=task_status)


def _make_engine(
    plan: Plan,
    limits: Limits,
    restored: Restored,
    trace: Trace | None,
    unix_at_zero: float,
) -> BulkEngine:
    make: Callable[..., BulkEngine] = BulkEngine
    if trace is not None:
        from ..core.trace import Recorder  # late: its decoder takes time to build

        make = functools.partial(Recorder, write=trace.write)
    return make(
        plan,
        entropy=os.urandom,
        unix_at_zero=unix_at_zero,
        has_storage=True,
        limits=limits,
        stored=restored.artifacts,
        stored_tasks=restored.tasks,
        stored_uploads=restored.uploads,
    )


# --- Storage --------------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def _in_thread(manager: contextlib.AbstractContextManager[T]) -> AsyncIterator[T]:
    """Enters and leaves the manager in a thread, since it may block and signals are to be handled meanwhile."""
    value = await to_thread.run_sync(manager.__enter__)
    try:
        yield value
    finally:
        with anyio.CancelScope(shield=True):
            await to_thread.run_sync(manager.__exit__, None, None, None)
