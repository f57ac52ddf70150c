"""The shape of a configuration: every key, its type, its default and what it is for.

The docstrings and descriptions appear in the JSON Schema and in docs/configuration.md. Rules that types cannot express
are in `checks`; `load` reads a file into these structs. Every struct is frozen; every collection is a tuple, except for
the mappings of names to text.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from ...core.base.name_filter import NameFilter
from ..base.sizes import GIB, MIB
from .access_settings import Access, Auth
from .cluster_settings import Cluster
from .file_settings import Adapter, Files, SharedFolder
from .governance_settings import Clean, Descriptions, Pins, RateLimit, ToolOverride
from .login_settings import Login
from .profile_settings import Profile
from .telemetry_settings import Telemetry
from .tls_settings import Tls
from .ui_settings import Ui
from .value_types import Count, Delay, Id, Port, Seconds, Size, Texts, about


class Management(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The management pages: /servers, /tasks, /files, /auth and /metrics."""

    enabled: Annotated[
        bool,
        about(
            "Offer the management pages. Without token and auth only programs on this machine can use them, with the "
            "token of isthmus token show, and only if Isthmus listens on loopback and has no public_base_url of another"
            " machine."
        ),
    ] = True
    token: Annotated[
        str | None,
        about("Token that is required for the management pages and /mcp/ID/tools, as Authorization: Bearer."),
    ] = None

    def __repr__(self) -> str:
        return _without_secrets(self)


class Core(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The listener."""

    host: Annotated[str, Meta(min_length=1, description="Address to listen on.")] = "127.0.0.1"
    port: Annotated[Port | None, about("Port to listen on. 0: any free port. null: no port, only unix_socket.")] = 8932
    unix_socket: Annotated[
        str | None, about("Path of a Unix domain socket to listen on for HTTP as well. Only its owner may connect.")
    ] = None
    tls: Annotated[Tls | None, about("TLS for host and port. null: plain HTTP. unix_socket never uses TLS.")] = None
    public_base_url: Annotated[
        str | None, about("URL by which clients reach this host. Upload and download links begin with it.")
    ] = None
    link_keys: Annotated[
        Texts,
        about(
            "Secrets of at least 16 bytes that sign links to files. Write them as ${NAME}. The first one signs. All "
            "are accepted. Empty: a key in the storage folder."
        ),
    ] = ()
    allow_artifacts_download: Annotated[bool, about("Offer signed download links for artifacts.")] = True
    allowed_hosts: Annotated[
        Texts, about("Further accepted Host headers. The host of the listening address is always accepted.")
    ] = ()
    allowed_origins: Annotated[
        Texts,
        about("Accepted origins of web pages, such as https://example.com. Other origins are rejected."),
    ] = ()
    any_host: Annotated[
        bool,
        about(
            "Accept every Host header, for networks in which the names of this host are unknown. Web pages of other "
            "origins are still rejected."
        ),
    ] = False
    trusted_proxies: Annotated[
        Texts,
        about(
            "Addresses and networks of proxies in front, or balancers. unix: all clients of unix_socket. The address "
            "of a client is then the last one in X-Forwarded-For that is not among them. Empty: the header is ignored."
        ),
    ] = ()
    further_upload_path: Annotated[
        str | None, about("Further path for uploads, in addition to /upload. The id of the server follows it.")
    ] = None
    http: Annotated[
        Literal["fast", "h11"],
        about(
            "HTTP/1.1 parser. fast: the parser of Isthmus for common messages, and h11 for others. h11: h11 for all."
        ),
    ] = "fast"
    driver: Annotated[
        Literal["protocols", "anyio"],
        about(
            "IO layer with asyncio or uvloop: its protocols, or anyio streams, which are slower. The environment "
            "variable ISTHMUS_DRIVER takes precedence."
        ),
    ] = "protocols"
    management: Management = Management()
    log_level: Annotated[
        Literal["debug", "info", "warning", "error", "critical"], about("Lowest level that is logged.")
    ] = "info"
    keep_alive_seconds: Annotated[
        Seconds,
        about(
            "Interval of comments on idle event streams, and of pings on idle WebSockets. It must be shorter than the "
            "idle timeout of proxies and firewalls."
        ),
    ] = 15.0
    max_request_bytes: Annotated[
        Size, about("Maximum size of a client message, in bytes. A larger HTTP request gets 413.")
    ] = 16 * MIB
    drain_seconds: Annotated[Seconds, about("Time for running calls to finish on shutdown.")] = 10.0
    shutdown_delay_seconds: Annotated[
        Delay | None,
        about(
            "Time after the stop signal in which /readyz returns 503 and all requests are still served, so that a "
            "balancer turns to others first. null: 5, or 0 if only this machine can connect."
        ),
    ] = None


class Storage(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Storage of files and records."""

    root: Annotated[
        str,
        Meta(
            min_length=1,
            description="Folder for all stored data. With records and blobs, only for the folders of sessions and "
            "what is not finished.",
        ),
    ] = "./data"
    max_size: Annotated[Size | None, about("Maximum size of all files of all sessions, in bytes. null: 16 GiB.")] = None
    records: Annotated[
        str | None,
        about(
            "Database for records that several replicas share: postgresql://USER:PASSWORD@HOST:PORT/DATABASE or "
            "redis://USER:PASSWORD@HOST:PORT/NUMBER (rediss and valkeys: with TLS). Write it as ${NAME}. null: a file "
            "in root."
        ),
    ] = None
    blobs: Annotated[
        str | None,
        about(
            "Bucket for files that several replicas share: s3://BUCKET/PREFIX?endpoint=https://HOST:PORT&region=NAME. "
            "Credentials come from the environment. null: a folder in root."
        ),
    ] = None

    @property
    def is_shared(self) -> bool:
        """True if records and files are where other processes can use them, too."""
        return self.records is not None and self.blobs is not None

    def __repr__(self) -> str:
        return _without_secrets(self)


class Sessions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Sessions of clients."""

    idle_ttl_seconds: Annotated[Seconds, about("A session that is not used for this time ends.")] = 1800.0
    max_active: Annotated[Count, about("Maximum number of sessions.")] = 10_000
    max_active_per_client: Annotated[
        Count | None,
        about(
            "Maximum number of sessions of one client IP address. Clients behind one reverse proxy have the same "
            "address unless core.trusted_proxies names it. null: three quarters of max_active."
        ),
    ] = None
    max_processes: Annotated[Count, about("Maximum number of server processes, for all servers and sessions.")] = 512
    max_in_flight_per_session: Annotated[Count, about("Maximum number of unanswered requests of one session.")] = 256
    max_total_session_size: Annotated[
        Size | None,
        about(
            "Maximum size of all files of one session, or of all sessions of an authenticated principal (file_scope), "
            "in bytes. null: 1 GiB."
        ),
    ] = None
    event_store: Annotated[
        Literal["memory", "sqlite"],
        about(
            "Storage of events for clients that resume a stream. sqlite: events that do not fit into memory are "
            "stored below storage.root, until their session or stream ends."
        ),
    ] = "memory"
    mirror_polling: Annotated[
        bool,
        about(
            "If a server closes its event stream to be polled, also close the stream of the client. false: the client "
            "keeps one connection until the response."
        ),
    ] = False
    eviction_policy: Annotated[
        Literal["lru_uploads_then_artifacts", "lru_artifacts_then_uploads", "none"],
        about(
            "Files to remove if a file does not fit into max_total_session_size: unused files of ended sessions "
            "first, then those of the first kind, then those of the second, the least recently used first. none: the "
            "new file is rejected."
        ),
    ] = "lru_uploads_then_artifacts"
    file_scope: Annotated[
        Literal["principal", "session"],
        about(
            "Sessions that can use a handle, an artifact or an upload link. principal: all sessions of the principal, "
            "until it expires. session: only the session that created it. Uploads end with that session."
        ),
    ] = "principal"
    tombstone_ttl_seconds: Annotated[
        Seconds, about("Time for which an error for a removed file says why it was removed.")
    ] = 86_400.0
    affinity: Annotated[
        Literal["shared", "request"] | None,
        about(
            "Server session for requests of clients without sessions (2026-07-28). shared: one session for all HTTP "
            "clients with equal capabilities. request: a new session for each request. null: shared if only this "
            "machine can connect, else request."
        ),
    ] = None
    request_state_keys: Annotated[
        Texts,
        about(
            "Secrets of at least 16 bytes that sign requestState. Write them as ${NAME}. The first one signs. All are "
            "accepted. Empty: a key in the storage folder."
        ),
    ] = ()
    upstream_session_termination_retries: Annotated[
        int,
        Meta(
            ge=0,
            le=5,
            description="Number of times that a request is sent again if it did not run because the server lost its "
            "session.",
        ),
    ] = 1

    def __repr__(self) -> str:
        return _without_secrets(self)


class Uploads(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Files that clients upload."""

    enabled: Annotated[bool, about("Offer the upload tools and accept uploads.")] = True
    max_file_bytes: Annotated[Size, about("Maximum size of one file, in bytes.")] = 50 * MIB
    ttl_seconds: Annotated[Seconds, about("Time after the last use until an upload is removed.")] = 3600.0
    require_sha256: Annotated[bool, about("Reject uploads without a SHA-256 for each file.")] = False
    max_files_per_request: Annotated[Count, about("Maximum number of files in one upload request.")] = 32
    link_ttl_seconds: Annotated[Seconds, about("Time for which an upload link is valid.")] = 120.0


class Artifacts(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Files that tools write."""

    enabled: Annotated[bool, about("Return the files that artifact_producer tools write.")] = True
    ttl_seconds: Annotated[Seconds, about("Time until an artifact is removed.")] = 3600.0
    max_per_session: Annotated[Count, about("Maximum number of artifacts, counted like max_total_session_size.")] = 1000
    max_file_bytes: Annotated[Size, about("Maximum size of one artifact, in bytes.")] = GIB
    expose_as_resources: Annotated[bool, about("List artifacts among the session's resources.")] = True
    max_inline_bytes: Annotated[
        Size,
        about(
            "Maximum size of an artifact in a resources/read result. For a larger one, the error has the download link."
        ),
    ] = 8 * MIB


class Tasks(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Lifetimes and limits of tasks, which are calls that continue after their request was answered."""

    ttl_seconds: Annotated[Seconds, about("Lifetime of a task from its creation, if its client sets none.")] = 3600.0
    max_ttl_seconds: Annotated[Seconds, about("Maximum lifetime that a client can request. At least ttl_seconds.")] = (
        86_400.0
    )
    poll_interval_ms: Annotated[Count, about("Poll interval that clients are told, if the server sets none.")] = 1000
    after_seconds: Annotated[
        Seconds,
        about("Time after which a call of a client without sessions (2026-07-28) that supports tasks becomes a task."),
    ] = 5.0
    max_total: Annotated[Count, about("Maximum number of tasks, including finished ones.")] = 10_000
    max_per_principal: Annotated[
        Count, about("Maximum number of tasks of one principal. All anonymous clients are one principal.")
    ] = 5_000
    max_per_session: Annotated[Count, about("Maximum number of tasks of one session.")] = 1_000


Transport = Literal["auto", "streamable_http", "sse", "websocket", "unix"]


class Upstream(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The server: a command to start, a URL, or several URLs."""

    command: Annotated[
        Texts | None, about("Program and arguments. A program with a slash in it starts from the file's folder.")
    ] = None
    env: Annotated[dict[str, str], about("Environment variables of the program.")] = {}
    cwd: Annotated[str | None, about("Working directory of the program.")] = None
    inherit_env: Annotated[
        bool, about("Pass the whole environment to the program, not only the inherited variables.")
    ] = False
    url: Annotated[
        str | None,
        about(
            "URL of the server: http(s):// or ws(s)://. sse+http:// and sse+https:// select HTTP+SSE. unix:///path is "
            "a Unix domain socket with the protocol of stdio."
        ),
    ] = None
    urls: Annotated[
        Texts | None,
        about(
            "Several URLs of one server, in place of url. A new session uses the healthy URL with the fewest "
            "sessions, and stays at that URL. The other keys of upstream apply to each URL."
        ),
    ] = None
    transport: Annotated[
        Transport | None,
        about(
            "Transport at the URL. sse: HTTP+SSE of revision 2024-11-05. auto or null: by the scheme of the URL, and "
            "HTTP+SSE if the server rejects Streamable HTTP."
        ),
    ] = None
    era: Annotated[
        Literal["auto", "handshake", "stateless"],
        about(
            "Protocol of the server. handshake: initialize and a session, up to revision 2025-11-25. stateless: "
            "2026-07-28. auto: that of the client if the server supports it, else the other."
        ),
    ] = "auto"
    headers: Annotated[dict[str, str], about("Headers to send with every request.")] = {}
    pass_headers: Annotated[
        dict[str, str] | Texts,
        about("Headers of client requests to forward: a list of names, or a mapping to other names."),
    ] = {}
    verify_tls: Annotated[bool, about("Check the server's certificate.")] = True
    ca_file: Annotated[str | None, about("PEM file of certificates to trust instead of the system's.")] = None
    proxy: Annotated[
        str | None,
        about(
            "The proxy to the URL, as http(s)://USER:PASSWORD@HOST:PORT, or none. null: HTTP_PROXY, HTTPS_PROXY, "
            "ALL_PROXY and NO_PROXY of the environment."
        ),
    ] = None
    auth: Annotated[Login | None, about("Login at the server. null: only headers and pass_headers.")] = None

    @property
    def all_urls(self) -> tuple[str, ...]:
        """The URL, or all of them; none beside a command."""
        return self.urls or (() if self.url is None else (self.url,))

    @property
    def passes(self) -> tuple[tuple[str, str], ...]:
        """`pass_headers` as pairs: the name in the client's request, and the name sent to the server."""
        given = self.pass_headers
        return tuple(given.items()) if isinstance(given, dict) else tuple((name, name) for name in given)

    def __repr__(self) -> str:
        return _without_secrets(self)


def _without_secrets(shape: Struct) -> str:
    """Formats a struct for a log: variables and headers by name only, keys by number, a token not at all."""
    shown = {name: getattr(shape, name) for name in shape.__struct_fields__}
    for name in ("env", "headers", "set"):
        if name in shown:
            shown[name] = dict.fromkeys(shown[name] or (), "…")
    for name in ("token", "proxy", "records", "blobs"):
        if shown.get(name) is not None:
            shown[name] = "…"
    for name in ("link_keys", "request_state_keys"):
        if name in shown:
            shown[name] = ("…",) * len(shown[name] or ())
    return f"{type(shape).__name__}({', '.join(f'{name}={value!r}' for name, value in shown.items())})"


# A key may be null, which counts as missing, so the schema tells the two forms apart by type and not by presence.
_ONE_OF = {
    "oneOf": [
        {"required": ["command"], "properties": {"command": {"type": ["array", "string"]}}},
        {"required": ["url"], "properties": {"url": {"type": "string"}}},
        {"required": ["urls"], "properties": {"urls": {"type": ["array", "string"]}}},
    ]
}


class Forwarding(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Client headers that are forwarded to a server with inspect: false. Names may be globs, such as x-mine-*."""

    allow: Annotated[
        Texts | None,
        about(
            "Headers to forward, in addition to those that MCP needs. null: all. Authorization, Cookie, "
            "Proxy-Authorization, Origin, Forwarded and X-Forwarded-*, and Set-Cookie of responses, are forwarded "
            "only if listed here without a glob."
        ),
    ] = None
    deny: Annotated[Texts, about("Headers that are not forwarded.")] = ()
    set: Annotated[
        dict[str, str], about("Headers to send with every request. They replace client headers of the same name.")
    ] = {}
    x_forwarded: Annotated[bool, about("Add X-Forwarded-For, X-Forwarded-Host and X-Forwarded-Proto.")] = False
    forwarded: Annotated[bool, about("Add Forwarded (RFC 7239).")] = False

    def __repr__(self) -> str:
        return _without_secrets(self)


class Filter(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Filters by full names, or by patterns with *, ? and [...]. Case matters."""

    include: Annotated[Texts | None, about("Names to show. null or an empty list: all.")] = None
    exclude: Annotated[Texts | None, about("Names to hide. Takes precedence over include.")] = None
    exclude_regexes: Annotated[
        Texts | None, about("Regular expressions (RE2) of names to hide. An expression must match the whole name.")
    ] = None

    @property
    def selection(self) -> NameFilter:
        return NameFilter(self.include or (), self.exclude or (), self.exclude_regexes or ())


class ToolFilter(Filter, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Filters and other names of tools. Names are full names, or patterns with *, ? and [...]. Case matters."""

    overrides: Annotated[
        dict[str, ToolOverride], about("Other names and texts for tools, by the full name at the server.")
    ] = {}
    descriptions: Annotated[
        Descriptions,
        about(
            "Descriptions of tools: keep them, cut them to the first sentence, or cut them to a number of characters."
        ),
    ] = "keep"


Offer = Literal["auto", "always", "own", "never"]


class ServerTasks(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Rules for calls of this server's tools as tasks."""

    offer: Annotated[
        Offer,
        about(
            "auto: tasks of the server, or tasks of Isthmus if the server has none. A client without sessions gets a "
            "task when the call takes longer than tasks.after_seconds. always: such a client gets a task at once. "
            "own: only tasks of the server. never: no tasks."
        ),
    ] = "auto"
    tools: Annotated[
        dict[str, Offer],
        about(
            "Other values of offer for single tools, by name or by a pattern with *, ? and [...]. The first match "
            "applies."
        ),
    ] = {}
    strict: Annotated[
        bool,
        about(
            "Reject plain calls of tools that require tasks. false: Isthmus creates a task for such a call and waits "
            "for it."
        ),
    ] = False


class Server(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A server."""

    id: Annotated[Id, about("Name of the server in URLs and tool names.")]
    upstream: Annotated[Upstream, Meta(extra_json_schema=_ONE_OF)]
    adapters: Annotated[
        tuple[Adapter, ...],
        about("Tools whose files are transferred. Files of other tools are transferred only with files: auto."),
    ] = ()
    files: Annotated[
        Literal["auto", "none"] | Files,
        about(
            "auto: transfer files of all tools that no adapter names. Handles in arguments become paths, and written "
            "files are found in results and in the session's folders. A mapping sets options."
        ),
    ] = "none"
    shared: Annotated[
        SharedFolder | tuple[SharedFolder, ...],
        about("One folder or a list of folders that have another path at the server, as in a container."),
    ] = ()
    stage: Annotated[
        Literal["in", "out", "ws"] | None,
        about(
            "Folder of the session for copies of uploads and for new files. out: for a server that reads only its "
            "output folder. ws: for a server that reads only below its working directory. null: in; with files: auto "
            "ws, or out if command or env contains {out} and not {ws}."
        ),
    ] = None
    artifact_roots: Annotated[Texts, about("Further folders from which artifacts may be returned.")] = ()
    hard_linked_roots: Annotated[
        Texts,
        about(
            "Folders of artifact_roots in which files may have hard links, as pnpm, git and cp -l create them. In "
            "other folders such files are rejected, because the server could link a file from elsewhere."
        ),
    ] = ()
    roots: Annotated[
        Literal["workspace", "client"],
        about(
            "Roots that the server gets, with adapters or files: auto. workspace: the folders of its session. client: "
            "the roots of the client."
        ),
    ] = "workspace"
    share: Annotated[
        Literal["none", "concurrent", "serial"],
        about(
            "Sharing of the process or socket. none: each session has its own. concurrent: all sessions use one, and "
            "questions of the server that could be for several clients are rejected. serial: one call at a time, so "
            "that each question has one client. Not with adapters or files: auto."
        ),
    ] = "none"
    share_with: Annotated[
        Literal["caller", "everyone"],
        about(
            "With share: whether one process serves the sessions of one caller, or those of all callers. Use everyone "
            "for a server that can run only once."
        ),
    ] = "caller"
    warm: Annotated[
        Annotated[int, Meta(ge=0, le=64)] | Literal["auto"],
        about(
            "Number of spare processes for the next sessions. auto: one, until half an hour after the start of the "
            "last session. auto starts none if the server is shared, or cannot run twice."
        ),
    ] = "auto"
    idle_stop_seconds: Annotated[
        Seconds | None,
        about(
            "Idle time after which a process is stopped. The next request starts it again. null: it ends with its "
            "session, or, if shared, a minute after the last session."
        ),
    ] = None
    answer_early: Annotated[
        bool,
        about(
            "While a process of the command starts, answer initialize, server/discover and lists with the stored "
            "responses for a client of the same revision and capabilities. Calls wait for the process."
        ),
    ] = True
    cache: Annotated[
        bool,
        about(
            "Cache lists and resources of a server of 2026-07-28 for its ttlMs, and answer equal requests of clients "
            "of 2026-07-28 from the cache. Results with cacheScope public are shared between callers, unless the "
            "server gets their credentials."
        ),
    ] = False
    access: Annotated[Access, about("Scopes and groups that callers need to use the server.")] = Access()
    tools: Annotated[ToolFilter, about("Filters and other names of the server's tools.")] = ToolFilter()
    prompts: Annotated[Filter, about("Filters of the server's prompts.")] = Filter()
    resources: Annotated[Filter, about("Filters of the server's resources: of URIs, and of the text of templates.")] = (
        Filter()
    )
    tasks: ServerTasks = ServerTasks()
    further_path: Annotated[
        str | None, about("Further path of the server for Streamable HTTP, in addition to /mcp/ID.")
    ] = None
    unix_socket: Annotated[
        str | None,
        about(
            "Path of a Unix domain socket for clients of this server, with the protocol of stdio: one JSON message on "
            "each line. Only its owner may connect."
        ),
    ] = None
    required_headers: Annotated[Texts, about("Headers that each HTTP request for this server must have.")] = ()
    start_timeout_seconds: Annotated[
        Seconds | None, about("Maximum time from the start of the server to its first response. null: 60.")
    ] = None
    call_timeout_seconds: Annotated[
        Seconds | None, about("Maximum time of a call without a message of the server. null: 3600.")
    ] = None
    tool_time_limits: Annotated[
        dict[str, Seconds],
        about(
            "Maximum total time of a call, even with progress, by names of tools, or patterns with *, ? and [...]. "
            "The first match applies."
        ),
    ] = {}
    rate_limits: Annotated[
        tuple[RateLimit, ...], about("Rate limits of tool calls. Every entry that matches a tool applies.")
    ] = ()
    inspect: Annotated[
        bool, about("false: forward all requests and responses unchanged. Requires a URL and no files.")
    ] = True
    forwarding: Forwarding = Forwarding()

    @property
    def auto_files(self) -> Files | None:
        """The rules for files of tools without adapters; None if these files are left alone."""
        files = Files() if self.files == "auto" else self.files
        return files if isinstance(files, Files) and files.mode == "auto" else None

    @property
    def has_files(self) -> bool:
        return bool(self.adapters) or self.auto_files is not None

    @property
    def shared_folders(self) -> tuple[SharedFolder, ...]:
        return (self.shared,) if isinstance(self.shared, SharedFolder) else self.shared


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A configuration of Isthmus."""

    core: Core = Core()
    auth: Auth = Auth()
    storage: Storage = Storage()
    cluster: Cluster = Cluster()
    sessions: Sessions = Sessions()
    uploads: Uploads = Uploads()
    artifacts: Artifacts = Artifacts()
    tasks: Tasks = Tasks()
    telemetry: Telemetry = Telemetry()
    pins: Pins = Pins()
    clean: Clean = Clean()
    ui: Ui = Ui()
    servers: Annotated[tuple[Server, ...], about("The servers.")] = ()
    profiles: Annotated[tuple[Profile, ...], about("Endpoints with several servers.")] = ()
    schema_url: Annotated[
        str | None, about("URL or path of the JSON Schema for editors. Isthmus does not read it.")
    ] = field(default=None, name="$schema")
