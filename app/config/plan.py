"""Turns settings into the `Plan` and the `Limits` of the engine, and into the rules of transparent servers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal
from urllib.parse import urlsplit

from ...core.base.governance import Cleaning, Override, PinRules, RateLimit, Shown
from ...core.base.limits import Limits
from ...core.base.plan import (
    Affinity,
    ArtifactProducer,
    AutoFiles,
    Eviction,
    FileScope,
    Kind,
    Offer,
    OutputLocator,
    Plan,
    Profile,
    ProfileServer,
    ServerPlan,
    SharedFolder,
    Sharing,
    TaskRules,
    UploadConsumer,
)
from ...core.base.replica import ReplicaName
from ...core.base.revisions import Era
from ...core.base.setting_names import KEYS, SettingNames
from ...core.base.telemetry import Tracing
from ...core.wire.http.header_forwarding import AUTHORIZATION
from ...core.wire.http.reverse_proxy import HeaderRules
from ...core.wire.http.reverse_proxy_target import ForwardTarget
from . import profile_settings
from .access import to_rules
from .addresses import is_for_this_machine, settle, shown_names
from .file_settings import ArtifactProducerAdapter, UploadConsumerAdapter
from .login_checks import logs_in_callers
from .profiles import profiles_of, servers_of
from .settings import Server, ServerTasks, Settings, ToolFilter, Upstream
from .telemetry_settings import Telemetry

LINK_KEY_MIN_BYTES: Final = 16


def to_plan(
    settings: Settings,
    link_key: bytes,
    workspaces_path: str,
    fallback_base_url: str,
    version: str = "0",
    *,
    state_key: bytes = b"",
    tmp_prefix: str = "",
    names: SettingNames = KEYS,
    pins: Mapping[str, PinRules] | None = None,
    has_many_clients: bool = False,
    decides: bool = False,
    shares_storage: bool = False,
    replica: ReplicaName | None = None,
) -> Plan:
    """Returns the plan for settings that `load` returned.

    Args:
        link_key: the key that signs links if the settings have none, at least 16 bytes.
        workspaces_path: absolute path of the folder with all workspaces.
        fallback_base_url: base of links if neither the settings nor the client's request give one.
        version: the version of this proxy, as servers see it.
        state_key: the key that signs `requestState` if the settings have none; empty: one of this run's own.
        tmp_prefix: beginning of the path of each temporary folder; the name of the workspace follows.
        names: the names of settings in messages.
        pins: the pins of servers, by id (`lock_file.pin_rules`).
        has_many_clients: clients come and go, so `warm: auto` keeps a process ready for the next one.
        decides: the driver decides about each request.
        shares_storage: other processes use the stores, too.
        replica: the name of this process among them.
    """
    assert len(link_key) >= LINK_KEY_MIN_BYTES
    given_keys = tuple(key.encode() for key in settings.sessions.request_state_keys)
    retries = settings.sessions.upstream_session_termination_retries
    return Plan(
        servers=tuple(
            _server_plan(
                server,
                retries,
                names,
                Cleaning(settings.clean.mode),
                (pins or {}).get(server.id),
                has_many_clients=has_many_clients,
                decides=decides,
            )
            for server in settings.servers
            if server.inspect
        ),
        profiles=tuple(_profile(profile, settings) for profile in profiles_of(settings)),
        workspaces_path=workspaces_path,
        tmp_prefix=tmp_prefix,
        public_base_url=settings.core.public_base_url or "",
        publishes_metadata=bool(settings.auth.issuers),
        fallback_base_url=fallback_base_url,
        link_keys=tuple(key.encode() for key in settings.core.link_keys) or (link_key,),
        uploads_enabled=settings.uploads.enabled,
        downloads_enabled=settings.core.allow_artifacts_download,
        require_sha256=settings.uploads.require_sha256,
        artifacts_enabled=settings.artifacts.enabled,
        expose_as_resources=settings.artifacts.expose_as_resources,
        eviction=Eviction(settings.sessions.eviction_policy),
        file_scope=FileScope(settings.sessions.file_scope),
        mirrors_polling=settings.sessions.mirror_polling,
        stores_events=settings.sessions.event_store == "sqlite",
        tracing=to_tracing(settings.telemetry),
        shares_storage=shares_storage,
        replica=replica,
        version=version,
        affinity=affinity_of(settings),
        state_keys=given_keys or ((state_key,) if state_key else ()),
    )


def to_tracing(telemetry: Telemetry) -> Tracing | None:
    """Returns the rules for trace contexts and spans; None if the settings ask for neither."""
    traces, passes_baggage = telemetry.traces, telemetry.baggage == "pass"
    if traces is None:
        if passes_baggage and not telemetry.bridge:
            return None
        return Tracing(bridges=telemetry.bridge, passes_baggage=passes_baggage)
    return Tracing(
        is_recorded=True,
        ratio=traces.ratio,
        spans_per_second_max=traces.max_spans_per_second,
        passes_baggage=passes_baggage,
    )


def _profile(profile: profile_settings.Profile, settings: Settings) -> Profile:
    by_id = {server.id: server for server in settings.servers}
    servers = tuple(
        ProfileServer(
            shown.id,
            shown.alias,
            headers=tuple((name.lower(), sent) for name, sent in by_id[shown.id].upstream.passes),
            required_headers=tuple(name.lower() for name in by_id[shown.id].required_headers),
        )
        for shown in servers_of(profile)
    )
    return Profile(
        profile.id,
        servers,
        list_wait_s=profile.list_wait_seconds,
        keeps_lists=True,
        has_search=profile.tools == "search",
    )


def affinity_of(settings: Settings) -> Affinity:
    """Returns which requests of clients without sessions share a session of a server.

    Those of one principal share a session. Anonymous clients are not told apart: if other machines can call, each
    request gets a session of its own, so that no client sees what the server remembers of another.
    """
    chosen = settings.sessions.affinity
    if chosen is not None:
        return Affinity(chosen)
    are_recognised = settings.auth.recognises and settings.auth.anonymous != "allow"
    return Affinity.SHARED if are_recognised or is_for_this_machine(settings.core) else Affinity.REQUEST


def to_limits(settings: Settings) -> Limits:
    """Returns the limits of `settings`, with the defaults of `Limits` for those that the settings leave open."""
    defaults = Limits()
    size = settings.core.max_request_bytes
    sessions, uploads, artifacts, tasks = settings.sessions, settings.uploads, settings.artifacts, settings.tasks
    return Limits(
        request_size_max_bytes=size,
        # Some of the largest requests fit, however large the settings allow them to be.
        bodies_max_bytes=max(defaults.bodies_max_bytes, 4 * size),
        bodies_per_owner_max_bytes=max(defaults.bodies_per_owner_max_bytes, 2 * size),
        session_memory_max_bytes=max(defaults.session_memory_max_bytes, 4 * size),
        owner_memory_max_bytes=max(defaults.owner_memory_max_bytes, 8 * size),
        memory_max_bytes=max(defaults.memory_max_bytes, 16 * size),
        sessions_max=sessions.max_active,
        sessions_per_owner_max=sessions.max_active_per_client or max(1, sessions.max_active - sessions.max_active // 4),
        children_max=sessions.max_processes,
        session_idle_ttl_s=sessions.idle_ttl_seconds,
        exchanges_per_session_max=sessions.max_in_flight_per_session,
        session_storage_max_bytes=sessions.max_total_session_size or defaults.session_storage_max_bytes,
        tombstone_ttl_s=sessions.tombstone_ttl_seconds,
        storage_max_bytes=settings.storage.max_size or defaults.storage_max_bytes,
        upload_size_max_bytes=uploads.max_file_bytes,
        upload_files_max=uploads.max_files_per_request,
        upload_ttl_s=uploads.ttl_seconds,
        upload_link_ttl_s=uploads.link_ttl_seconds,
        artifact_size_max_bytes=artifacts.max_file_bytes,
        artifact_ttl_s=artifacts.ttl_seconds,
        artifacts_per_session_max=artifacts.max_per_session,
        inline_size_max_bytes=artifacts.max_inline_bytes,
        task_ttl_s=tasks.ttl_seconds,
        task_ttl_max_s=tasks.max_ttl_seconds,
        task_poll_s=tasks.poll_interval_ms / 1000,
        task_after_s=tasks.after_seconds,
        tasks_max=tasks.max_total,
        tasks_per_principal_max=tasks.max_per_principal,
        tasks_per_session_max=tasks.max_per_session,
        keep_alive_s=settings.core.keep_alive_seconds,
        drain_s=settings.core.drain_seconds,
    )


def to_forward_target(settings: Settings, server: Server, link_key: bytes) -> ForwardTarget:
    """Returns the target to which requests for a transparent server are forwarded."""
    url = server.upstream.url
    assert url is not None and not server.inspect
    scheme, _, rest = url.partition("#")[0].partition("://")
    base_url = f"{scheme.lower().replace('ws', 'http')}://{rest}"  # a WebSocket begins as an HTTP request
    return ForwardTarget(server.id, base_url, link_key, urlsplit(settings.core.public_base_url or "").path.rstrip("/"))


def to_header_rules(server: Server) -> HeaderRules:
    """Returns the rules for headers sent to a transparent server."""
    forwarding = server.forwarding
    fixed = {name.lower(): value for name, value in (server.upstream.headers | forwarding.set).items()}
    return HeaderRules(
        allow=None if forwarding.allow is None else tuple(name.lower() for name in forwarding.allow),
        deny=tuple(name.lower() for name in forwarding.deny),
        set=tuple((name.encode("ascii"), value.encode("latin-1")) for name, value in fixed.items()),
        x_forwarded=forwarding.x_forwarded,
        forwarded=forwarding.forwarded,
    )


def _server_plan(
    server: Server,
    retries: int,
    names: SettingNames,
    clean: Cleaning,
    pins: PinRules | None,
    *,
    has_many_clients: bool,
    decides: bool,
) -> ServerPlan:
    may_keep_ready = has_many_clients and server.share == "none" and _kind(server.upstream) is Kind.PIPE
    spares = int(may_keep_ready) if server.warm == "auto" else server.warm
    return ServerPlan(
        id=server.id,
        kind=_kind(server.upstream),
        addresses=shown_names(server.upstream.urls or ()),
        names=names,
        consumers=tuple(_consumer(entry) for entry in server.adapters if isinstance(entry, UploadConsumerAdapter)),
        producers=tuple(_producer(entry) for entry in server.adapters if isinstance(entry, ArtifactProducerAdapter)),
        sharing=Sharing(server.share),
        shares_with_everyone=server.share_with == "everyone",
        logs_in_callers=logs_in_callers(server.upstream),
        may_fall_back=_kind(server.upstream) is Kind.HTTP and server.upstream.transport in (None, "auto"),
        spares=spares,
        spares_on_trial=server.warm == "auto" and spares > 0,
        idle_stop_s=server.idle_stop_seconds,
        session_retries=retries,
        start_timeout_s=server.start_timeout_seconds,
        reply_timeout_s=server.call_timeout_seconds,
        tool_time_limits=tuple(server.tool_time_limits.items()),
        rate_limits=to_rate_limits(server),
        tools=server.tools.selection,
        prompts=server.prompts.selection,
        resources=server.resources.selection,
        passes_authorization=any(
            (name.lower(), sent.lower()) == (AUTHORIZATION, AUTHORIZATION) for name, sent in server.upstream.passes
        ),
        era=era_of(server.upstream),
        tasks=_task_rules(server.tasks),
        forwards_roots=server.roots == "client",
        auto_files=_auto_files(server),
        cwd=server.upstream.cwd or "",
        shared=tuple(SharedFolder(folder.here, folder.there) for folder in server.shared_folders),
        access=to_rules(server.access),
        pins=pins,
        clean=clean,
        caches=server.cache,
        answers_early=answers_early(server),
        shown=_shown(server.tools),
        stage=server.stage or _stage(server),
        decides=decides,
    )


def _stage(server: Server) -> Literal["in", "out", "ws"]:
    """Returns the folder that uploads and new files are laid into where the configuration does not say it: the one that
    the server is told of."""
    if server.auto_files is None:
        return "in"
    told = [*(server.upstream.command or ()), *server.upstream.env.values()]
    is_told = {name: any(f"{{{name}}}" in text for text in told) for name in ("ws", "out")}
    return "out" if is_told["out"] and not is_told["ws"] else "ws"


def answers_early(server: Server) -> bool:
    """True if clients are answered while a process of the server starts."""
    return server.answer_early and _kind(server.upstream) is Kind.PIPE


def to_rate_limits(server: Server) -> tuple[RateLimit, ...]:
    """Returns the limits to the rate of calls of a server."""
    return tuple(
        RateLimit(calls=one.calls, per_s=one.per_seconds, tools=one.tools, is_for_each_caller=one.by == "caller")
        for one in server.rate_limits
    )


def _shown(tools: ToolFilter) -> Shown:
    most = tools.descriptions if isinstance(tools.descriptions, int) else None
    return Shown(
        overrides=tuple(
            Override(tool=tool, rename=one.rename or "", title=one.title, description=one.description)
            for tool, one in tools.overrides.items()
        ),
        first_sentence=tools.descriptions == "first-sentence",
        description_max_chars=most,
    )


def _auto_files(server: Server) -> AutoFiles | None:
    files = server.auto_files
    if files is None:
        return None
    return AutoFiles(
        rewrite_text=files.rewrite_text,
        inline_text_bytes=files.inline_text_bytes,
        expose_as_resource=files.expose_as_resource,
        links=files.links,
    )


def _task_rules(tasks: ServerTasks) -> TaskRules:
    return TaskRules(
        offer=Offer(tasks.offer),
        tools=tuple((pattern, Offer(offer)) for pattern, offer in tasks.tools.items()),
        strict=tasks.strict,
    )


def era_of(upstream: Upstream) -> Era | None:
    """Returns the era of a server; None if it has to be detected. HTTP+SSE exists in the handshake era only."""
    if upstream.era != "auto":
        return Era(upstream.era)
    is_legacy_sse = upstream.url is not None and settle(upstream.url, upstream.transport)[1] == "sse"
    return Era.HANDSHAKE if is_legacy_sse else None


def _kind(upstream: Upstream) -> Kind:
    if upstream.command is not None:
        return Kind.PIPE
    _, transport = settle(upstream.url or "", upstream.transport)
    return Kind.SOCKET if transport in ("sse", "websocket", "unix") else Kind.HTTP


def _consumer(adapter: UploadConsumerAdapter) -> UploadConsumer:
    return UploadConsumer(
        tools=adapter.tools,
        file_path_argument=adapter.file_path_argument,
        uri_scheme=adapter.uri_scheme,
        deliver=adapter.delivery,
        accept_other=adapter.accept_other,
    )


def _producer(adapter: ArtifactProducerAdapter) -> ArtifactProducer:
    locator = adapter.output_locator
    return ArtifactProducer(
        tools=adapter.tools,
        output_path_argument=adapter.output_path_argument,
        output_locator=OutputLocator(
            mode=locator.mode,
            output_path_key=locator.output_path_key,
            output_path_regexes=locator.output_path_regexes,
            path_arguments=locator.path_arguments,
        ),
        persist=adapter.persist,
        expose_as_resource=adapter.expose_as_resource,
        allow_raw_output=adapter.allow_raw_output,
        required=adapter.required,
        move=adapter.move,
        rewrite_text=adapter.rewrite_text,
        inline_text_bytes=adapter.inline_text_bytes,
        links=adapter.links,
    )
