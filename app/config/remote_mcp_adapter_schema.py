"""The shape of a configuration of remote-mcp-adapter: its keys, their types and their defaults.

`remote_mcp_adapter` converts it to our settings.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from .value_types import Size, Texts

Whole = Annotated[int, Meta(ge=0, le=1_000_000_000)]
Positive = Annotated[int, Meta(gt=0, le=1_000_000_000)]
Text = Annotated[str, Meta(min_length=1)]


class Shape(Struct, frozen=True, forbid_unknown_fields=True):
    """Base of all mappings. Unknown keys are refused, as remote-mcp-adapter itself does."""


class Defaults(Shape, frozen=True):
    tool_call_timeout_seconds: Positive | None = None
    allow_raw_output: bool | None = None


class DescriptionPolicy(Shape, frozen=True):
    mode: Literal["preserve", "truncate", "strip"] | None = None
    max_tool_description_chars: Positive | None = None
    max_schema_description_chars: Positive | None = None


class Sanitization(Shape, frozen=True):
    mode: Literal["off", "sanitize", "block"] | None = None
    normalize_unicode: bool | None = None
    remove_invisible_characters: bool | None = None
    max_tool_title_chars: Positive | None = None
    max_tool_description_chars: Positive | None = None
    max_schema_text_chars: Positive | None = None


class Pinning(Shape, frozen=True):
    mode: Literal["off", "warn", "block"] | None = None
    block_strategy: Literal["error", "baseline_subset"] | None = None
    block_error_session_action: Literal["keep", "invalidate"] | None = None


class Ping(Shape, frozen=True):
    enabled: bool | None = None
    interval_seconds: Positive | None = None
    timeout_seconds: Positive | None = None
    failure_threshold: Positive | None = None
    open_cooldown_seconds: Positive | None = None
    half_open_probe_allowance: Positive | None = None


class Auth(Shape, frozen=True):
    enabled: bool = False
    header_name: str = "X-Mcp-Adapter-Auth-Token"
    token: str | None = None
    signed_upload_ttl_seconds: Positive = 120
    signing_secret: str | None = None


class Cors(Shape, frozen=True):
    enabled: bool = False
    allowed_origins: Texts = ()
    allowed_methods: Texts = ()
    allowed_headers: Texts = ()
    allow_credentials: bool = False


class Core(Shape, frozen=True):
    host: Text = "0.0.0.0"
    port: Annotated[int, Meta(ge=1, le=65_535)] = 8932
    log_level: Literal["debug", "info", "warning", "error", "critical"] = "warning"
    max_start_wait_seconds: Whole = 60
    cleanup_interval_seconds: Whole | None = 60
    public_base_url: str | None = None
    allow_artifacts_download: bool = False
    code_mode_enabled: bool = False
    shorten_descriptions: bool = False
    short_description_max_tokens: Positive = 16
    upload_path: Text = "/upload"
    upstream_metadata_cache_ttl_seconds: Whole = 300
    tool_description_policy: DescriptionPolicy = DescriptionPolicy()
    tool_metadata_sanitization: Sanitization = Sanitization()
    tool_definition_pinning: Pinning = Pinning()
    upstream_ping: Ping = Ping()
    auth: Auth = Auth()
    cors: Cors = Cors()
    defaults: Defaults = Defaults(tool_call_timeout_seconds=60)


class Storage(Shape, frozen=True):
    root: Text = "/data/shared"
    max_size: Size | None = None
    atomic_writes: bool = True
    lock_mode: Literal["none", "process", "file", "redis", "auto"] = "auto"
    orphan_sweeper_enabled: bool = True
    orphan_sweeper_grace_seconds: Whole = 300
    artifact_locator_policy: Literal["storage_only", "allow_configured_roots"] = "storage_only"
    artifact_locator_allowed_roots: Texts = ()


class Sessions(Shape, frozen=True):
    max_active: Positive | None = None
    max_in_flight_per_session: Positive | None = None
    idle_ttl_seconds: Positive | None = None
    allow_revival: bool = True
    tombstone_ttl_seconds: Positive | None = 86_400
    upstream_session_termination_retries: Annotated[int, Meta(ge=0, le=5)] = 1
    max_total_session_size: Size | None = None
    eviction_policy: Literal["lru_uploads_then_artifacts", "lru_artifacts_then_uploads"] = "lru_uploads_then_artifacts"


class Uploads(Shape, frozen=True):
    enabled: bool = True
    max_file_bytes: Size = 10 << 20
    ttl_seconds: Positive | None = 120
    require_sha256: bool = False
    uri_scheme: str = "upload://"


class Artifacts(Shape, frozen=True):
    enabled: bool = True
    ttl_seconds: Positive | None = 600
    max_per_session: Positive | None = None
    expose_as_resources: bool = True
    uri_scheme: str = "artifact://"


class Wal(Shape, frozen=True):
    enabled: bool = True


class Disk(Shape, frozen=True):
    local_path: str | None = None
    wal: Wal = Wal()


class Redis(Shape, frozen=True):
    host: str | None = None
    port: Positive = 6379
    db: Whole = 0
    username: str | None = None
    password: str | None = None
    tls_insecure: bool = False
    key_base: str = "mcp_remote_adapter"
    ping_seconds: Positive = 5


class Reconciliation(Shape, frozen=True):
    mode: Literal["disabled", "if_empty", "always"] = "if_empty"
    legacy_server_id: str | None = None


class StatePersistence(Shape, frozen=True):
    type: Literal["memory", "disk", "redis"] = "disk"
    refresh_on_startup: bool = False
    snapshot_interval_seconds: Positive = 30
    unavailable_policy: Literal["fail_closed", "exit", "fallback_memory"] = "fail_closed"
    disk: Disk = Disk()
    redis: Redis = Redis()
    reconciliation: Reconciliation = Reconciliation()


class Telemetry(Shape, frozen=True):
    enabled: bool = False
    transport: Literal["grpc", "http"] = "grpc"
    endpoint: str | None = None
    logs_endpoint: str | None = None
    insecure: bool = True
    headers: dict[str, str] = {}
    export_interval_seconds: Positive = 15
    export_timeout_seconds: Positive = 10
    max_queue_size: Positive = 5000
    queue_batch_size: Positive = 256
    periodic_flush_seconds: Positive = 5
    shutdown_drain_timeout_seconds: Positive = 10
    log_batch_max_queue_size: Positive | None = None
    log_batch_max_export_batch_size: Positive | None = None
    log_batch_schedule_delay_millis: Positive | None = None
    log_batch_export_timeout_millis: Positive | None = None
    drop_on_queue_full: bool = True
    flush_on_shutdown: bool = True
    flush_on_terminate: bool = True
    emit_logs: bool = False
    service_name: str = "remote-mcp-adapter"
    service_namespace: str | None = None


class ClientHeaders(Shape, frozen=True):
    required: Texts = ()
    passthrough: Texts = ()


class Upstream(Shape, frozen=True):
    url: Text
    transport: Literal["streamable_http", "sse"] = "streamable_http"
    insecure_tls: bool = False
    static_headers: dict[str, str] = {}
    client_headers: ClientHeaders = ClientHeaders()


class UploadConsumer(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="upload_consumer"):
    tools: Texts
    file_path_argument: str
    uri_scheme: str | None = None
    uri_prefix: bool | None = None
    overrides: Defaults = Defaults()


class OutputLocator(Shape, frozen=True):
    mode: Literal["none", "regex", "structured", "embedded"] = "none"
    output_path_key: str | None = None
    output_path_regexes: Texts = ()


class ArtifactProducer(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="artifact_producer"):
    tools: Texts
    output_path_argument: str | None = None
    output_locator: OutputLocator = OutputLocator()
    persist: bool = True
    expose_as_resource: bool = True
    allow_raw_output: bool | None = None
    include_raw_output: bool | None = None
    """Alias of `allow_raw_output`."""
    overrides: Defaults = Defaults()


class Server(Shape, frozen=True):
    id: Text
    mount_path: Text
    upstream: Upstream
    upstream_ping: Ping = Ping()
    tool_description_policy: DescriptionPolicy = DescriptionPolicy()
    tool_metadata_sanitization: Sanitization = Sanitization()
    tool_definition_pinning: Pinning = Pinning()
    tool_defaults: Defaults = Defaults()
    code_mode_enabled: bool | None = None
    shorten_descriptions: bool | None = None
    short_description_max_tokens: Positive | None = None
    disabled_tools: Texts = ()
    adapters: tuple[UploadConsumer | ArtifactProducer, ...] = ()


class AdapterFile(Shape, frozen=True, kw_only=True):
    core: Core = Core()
    storage: Storage = Storage()
    sessions: Sessions = Sessions()
    uploads: Uploads = Uploads()
    artifacts: Artifacts = Artifacts()
    state_persistence: StatePersistence = StatePersistence()
    telemetry: Telemetry = Telemetry()
    servers: tuple[Server, ...]
