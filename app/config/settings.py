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
from .file_settings import Adapter, Files, SharedFolder
from .governance_settings import Clean, Descriptions, Pins, RateLimit, ToolOverride
from .login_settings import Login
from .profile_settings import Profile
from .tls_settings import Tls
from .value_types import Count, Id, Port, Seconds, Size, Texts, about


class Management(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The pages under /servers and /tasks, which show their status, start, stop and cancel them, and /metrics."""

    enabled: Annotated[
        bool,
        about(
            "Offer them. Without a token only programs on this machine see them, and only while Isthmus listens on "
            "loopback and has no public_base_url of another machine."
        ),
    ] = True
    token: Annotated[
        str | None, about("The secret that must be shown as Authorization: Bearer to see them, and /mcp/ID/tools.")
    ] = None

    def __repr__(self) -> str:
        return _without_secrets(self)


class Core(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The listener."""

    host: Annotated[str, Meta(min_length=1, description="Address to listen on.")] = "127.0.0.1"
    port: Annotated[
        Port | None, about("Port to listen on; 0 takes a free one, null none: unix_socket alone is listened on.")
    ] = 8932
    unix_socket: Annotated[
        str | None, about("Path of a Unix domain socket to listen on for HTTP as well. Only its owner may connect.")
    ] = None
    tls: Annotated[
        Tls | None, about("Speak TLS on host and port, and nothing else. null: plain HTTP. unix_socket has none.")
    ] = None
    public_base_url: Annotated[
        str | None, about("What upload and download links start with, where clients reach this host by another name.")
    ] = None
    link_keys: Annotated[
        Texts,
        about(
            "Secrets of 16 bytes or more that sign links to files, better as ${NAME}: the first signs, all are "
            "accepted. None: one that is made and kept in the storage folder."
        ),
    ] = ()
    allow_artifacts_download: Annotated[bool, about("Offer signed download links for artifacts.")] = True
    allowed_hosts: Annotated[Texts, about("Host headers accepted beside those of the listening address.")] = ()
    allowed_origins: Annotated[
        Texts,
        about("Origins of web pages that may call, such as https://example.com, as CORS has it. Others are refused."),
    ] = ()
    any_host: Annotated[
        bool,
        about(
            "Accept every Host header, for networks in which this host has names that nobody knows here. Web pages of "
            "other origins are refused all the same."
        ),
    ] = False
    further_upload_path: Annotated[
        str | None, about("Another path for uploads, beside /upload: a server's id follows it.")
    ] = None
    http: Annotated[
        Literal["fast", "h11"],
        about(
            "What reads and writes HTTP/1.1: a codec of our own for what is usual, h11 for the rest; or h11 for all."
        ),
    ] = "fast"
    driver: Annotated[
        Literal["protocols", "anyio"],
        about(
            "What moves bytes where the event loop is asyncio's or uvloop's: its protocols, or the streams of anyio, "
            "which cost more. The environment variable ISTHMUS_DRIVER takes precedence."
        ),
    ] = "protocols"
    management: Management = Management()
    log_level: Annotated[
        Literal["debug", "info", "warning", "error", "critical"], about("The least level that is logged.")
    ] = "info"
    keep_alive_seconds: Annotated[
        Seconds,
        about(
            "How often an event stream on which nothing is said gets a comment, and an idle WebSocket a ping: more "
            "often than what stands between cuts idle connections."
        ),
    ] = 15.0
    max_request_bytes: Annotated[
        Size, about("One message of a client, in bytes. On HTTP, a larger one is answered 413.")
    ] = 16 * MIB
    drain_seconds: Annotated[Seconds, about("How long running calls may finish on shutdown.")] = 10.0


class Storage(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The place of files and records."""

    root: Annotated[str, Meta(min_length=1, description="Folder of everything kept.")] = "./data"
    max_size: Annotated[Size | None, about("Files of all sessions together, in bytes; null: 16 GiB.")] = None


class Sessions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Clients' sessions."""

    idle_ttl_seconds: Annotated[Seconds, about("A session without any use for this long is ended.")] = 1800.0
    max_active: Annotated[Count, about("Sessions alive at once.")] = 10_000
    max_active_per_client: Annotated[
        Count | None,
        about(
            "Sessions alive at once of one client, which is known by its IP address, so that no address can take all. "
            "Clients behind one reverse proxy have one address. null: three quarters of max_active."
        ),
    ] = None
    max_processes: Annotated[Count, about("Server processes at once, over all servers and sessions.")] = 512
    max_in_flight_per_session: Annotated[Count, about("Requests of one session that wait for their answers.")] = 256
    max_total_session_size: Annotated[
        Size | None,
        about(
            "Files of one session together, or of all sessions of an authenticated principal (file_scope), in bytes; "
            "null: 1 GiB."
        ),
    ] = None
    event_store: Annotated[
        Literal["memory", "sqlite"],
        about(
            "Where messages are kept for clients that were cut off and come back for them. sqlite: those that there "
            "is no room for in memory go into the records below storage.root, until their session or stream is over."
        ),
    ] = "memory"
    mirror_polling: Annotated[
        bool,
        about(
            "Where a server closes its event stream to be polled, close the client's as well; else the client keeps "
            "one connection until its answer comes."
        ),
    ] = False
    eviction_policy: Annotated[
        Literal["lru_uploads_then_artifacts", "lru_artifacts_then_uploads", "none"],
        about(
            "What makes room where a file does not fit into max_total_session_size: files counted there that no call "
            "uses, of ended sessions first, of one kind and then of the other, the least recently used first. none: "
            "the new file is refused."
        ),
    ] = "lru_uploads_then_artifacts"
    file_scope: Annotated[
        Literal["principal", "session"],
        about(
            "Where a handle, an artifact or an upload link is good. principal: in all sessions of its principal, until "
            "it expires, also after its session. session: in its own session, with which uploads end."
        ),
    ] = "principal"
    tombstone_ttl_seconds: Annotated[
        Seconds, about("How long a client that names a file which is gone is told what became of it.")
    ] = 86_400.0
    affinity: Annotated[
        Literal["shared", "request"] | None,
        about(
            "Which requests of clients without sessions (2026-07-28) use one session of a server that has them: shared "
            "all that come over HTTP from clients of equal capabilities, request each one its own. null: shared while "
            "only this machine is served, else request."
        ),
    ] = None
    request_state_keys: Annotated[
        Texts,
        about(
            "Secrets of 16 bytes or more that sign requestState, better as ${NAME}: the first signs, all are accepted. "
            "None: one that is made and kept in the storage folder."
        ),
    ] = ()
    upstream_session_termination_retries: Annotated[
        int, Meta(ge=0, le=5, description="Repeats of a request that did not run since the server forgot its session.")
    ] = 1

    def __repr__(self) -> str:
        return _without_secrets(self)


class Uploads(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Files that clients hand in."""

    enabled: Annotated[bool, about("Offer the upload tools and take uploads.")] = True
    max_file_bytes: Annotated[Size, about("One file, in bytes.")] = 50 * MIB
    ttl_seconds: Annotated[Seconds, about("A file not used for this long is removed.")] = 3600.0
    require_sha256: Annotated[bool, about("Refuse uploads that do not state each file's SHA-256.")] = False
    max_files_per_request: Annotated[Count, about("Files in one upload.")] = 32
    link_ttl_seconds: Annotated[Seconds, about("How long an upload link may be used.")] = 120.0


class Artifacts(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Files that tools make."""

    enabled: Annotated[bool, about("Take in the files that artifact_producer tools make.")] = True
    ttl_seconds: Annotated[Seconds, about("An artifact is removed after this.")] = 3600.0
    max_per_session: Annotated[Count, about("Artifacts counted as in max_total_session_size.")] = 1000
    max_file_bytes: Annotated[Size, about("One artifact, in bytes.")] = GIB
    expose_as_resources: Annotated[bool, about("List artifacts among the session's resources.")] = True
    max_inline_bytes: Annotated[
        Size, about("A larger artifact is not put into a resources/read answer; its link is named instead.")
    ] = 8 * MIB


class Tasks(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Calls that go on while no request waits for them: how long they are kept, and how many."""

    ttl_seconds: Annotated[
        Seconds, about("How long a task is kept, from its beginning, where its client does not say.")
    ] = 3600.0
    max_ttl_seconds: Annotated[Seconds, about("The longest that a client may ask for. Not below ttl_seconds.")] = (
        86_400.0
    )
    poll_interval_ms: Annotated[Count, about("How often clients are asked to look, where the server does not say.")] = (
        1000
    )
    after_seconds: Annotated[
        Seconds,
        about("A call of a client without sessions (2026-07-28) that knows tasks becomes one when it takes longer."),
    ] = 5.0
    max_total: Annotated[Count, about("Tasks at once, finished ones included.")] = 10_000
    max_per_principal: Annotated[Count, about("Those of one principal; anonymous clients are one together.")] = 5_000
    max_per_session: Annotated[Count, about("Those of one session.")] = 1_000


Transport = Literal["auto", "streamable_http", "sse", "websocket", "unix"]


class Upstream(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The way to a server: a command to start, a URL, or several."""

    command: Annotated[
        Texts | None, about("Program and arguments. A program with a slash in it starts from the file's folder.")
    ] = None
    env: Annotated[dict[str, str], about("Environment variables of the program.")] = {}
    cwd: Annotated[str | None, about("Working directory of the program.")] = None
    inherit_env: Annotated[bool, about("Hand on the whole environment, not just its harmless part.")] = False
    url: Annotated[
        str | None,
        about(
            "Where the server listens, http(s):// or ws(s)://; sse+http:// and sse+https:// name sse as well; "
            "unix:///path is a Unix domain socket on which it speaks as on stdio."
        ),
    ] = None
    urls: Annotated[
        Texts | None,
        about(
            "Several URLs of one server, in place of url. A session is at one of them, and stays there; a new one goes "
            "to the URL with the fewest, among those that can be connected to. What else is said here holds at each."
        ),
    ] = None
    transport: Annotated[
        Transport | None,
        about(
            "What is spoken at the URL; sse is the HTTP+SSE of revision 2024-11-05. null: auto: what the URL says, and "
            "HTTP+SSE with a server that refuses Streamable HTTP."
        ),
    ] = None
    era: Annotated[
        Literal["auto", "handshake", "stateless"],
        about(
            "How the server is spoken to: handshake, with initialize and a session (until 2025-11-25), or stateless "
            "(2026-07-28). auto: as its client speaks, where the server is found to know that, else in the other way."
        ),
    ] = "auto"
    headers: Annotated[dict[str, str], about("Headers of every request to the URL.")] = {}
    pass_headers: Annotated[
        dict[str, str] | Texts,
        about("Headers of clients' requests that go on to the URL: names, or a mapping to other names there."),
    ] = {}
    verify_tls: Annotated[bool, about("Check the server's certificate.")] = True
    ca_file: Annotated[str | None, about("Certificates to trust in place of the system's, as PEM.")] = None
    proxy: Annotated[
        str | None,
        about(
            "The proxy to the URL, as http(s)://USER:PASSWORD@HOST:PORT, or none. null: HTTP_PROXY, HTTPS_PROXY, "
            "ALL_PROXY and NO_PROXY of the environment decide."
        ),
    ] = None
    auth: Annotated[Login | None, about("How to log in at the URL. null: what headers and pass_headers say.")] = None

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
    for name in ("token", "proxy"):
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
    """The headers of clients that reach a server with inspect: false. Names may be globs, such as x-mine-*."""

    allow: Annotated[
        Texts | None,
        about(
            "Only these, and what MCP needs; null: all. Authorization, Cookie, Proxy-Authorization, Origin, Forwarded "
            "and X-Forwarded-* pass only if named here without a glob, and so does Set-Cookie of responses."
        ),
    ] = None
    deny: Annotated[Texts, about("Never these.")] = ()
    set: Annotated[dict[str, str], about("Sent with every request, in place of clients' own by these names.")] = {}
    x_forwarded: Annotated[bool, about("Add X-Forwarded-For, X-Forwarded-Host and X-Forwarded-Proto.")] = False
    forwarded: Annotated[bool, about("Add Forwarded (RFC 7239).")] = False

    def __repr__(self) -> str:
        return _without_secrets(self)


class Filter(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The names that clients see of a server: whole, or as patterns with *, ? and [...]. Case counts."""

    include: Annotated[Texts | None, about("Only these; null or an empty list: all.")] = None
    exclude: Annotated[Texts | None, about("Not these, whatever include says.")] = None
    exclude_regexes: Annotated[
        Texts | None, about("Nor those whose whole name one of these regular expressions (RE2) matches.")
    ] = None

    @property
    def selection(self) -> NameFilter:
        return NameFilter(self.include or (), self.exclude or (), self.exclude_regexes or ())


class ToolFilter(Filter, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The tools that clients see of a server, and how they see them. Names are whole, or patterns with *, ? and [...].
    Case counts."""

    overrides: Annotated[
        dict[str, ToolOverride], about("Other names and texts for tools, by the server's names, which are whole here.")
    ] = {}
    descriptions: Annotated[
        Descriptions,
        about(
            "Whether descriptions of tools are kept, cut to their first sentence, or cut after a number of characters."
        ),
    ] = "keep"


Offer = Literal["auto", "always", "own", "never"]


class ServerTasks(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The rules by which calls of this server's tools may run as tasks."""

    offer: Annotated[
        Offer,
        about(
            "auto: the server's own tasks, in each client's terms, and tasks of the gateway where the server has none; "
            "a client without sessions gets one when the call takes long. always: such a client gets one at once. "
            "own: the server's own tasks only. never: none, not even those."
        ),
    ] = "auto"
    tools: Annotated[
        dict[str, Offer],
        about(
            "Tools with an offer of their own, by name or by a pattern with *, ? and [...]. The first that fits holds."
        ),
    ] = {}
    strict: Annotated[
        bool,
        about(
            "Refuse plain calls of tools that the server wants called as tasks, as it would itself. Otherwise the "
            "gateway makes them tasks, and waits."
        ),
    ] = False


class Server(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One server, and what is done about its files."""

    id: Annotated[Id, about("Names the server in URLs and tool names.")]
    upstream: Annotated[Upstream, Meta(extra_json_schema=_ONE_OF)]
    adapters: Annotated[
        tuple[Adapter, ...], about("Tools whose files are carried. Others are left alone, unless files is auto.")
    ] = ()
    files: Annotated[
        Literal["auto", "none"] | Files,
        about(
            "auto: files of all tools that no adapter names: handles anywhere in their arguments become paths, and "
            "what they write is found in their results and in the session's folders. A mapping says how."
        ),
    ] = "none"
    shared: Annotated[
        SharedFolder | tuple[SharedFolder, ...],
        about("Folders that the server sees under other paths, as in a container. One, or a list."),
    ] = ()
    stage: Annotated[
        Literal["in", "out", "ws"] | None,
        about(
            "In which of the session's folders uploads are laid for the server, and new files: out for one that reads "
            "only where it writes, ws for one that reads only below its working directory. null: in; with files: auto "
            "ws, or out if the command or env has {out} and not {ws}."
        ),
    ] = None
    artifact_roots: Annotated[Texts, about("Folders, beside the session's own, that artifacts may lie in.")] = ()
    hard_linked_roots: Annotated[
        Texts,
        about(
            "Those of artifact_roots in which a file may have several names (hard links), as pnpm, git and cp -l make "
            "them. From other folders such a file is not taken: the server may have linked a file from elsewhere."
        ),
    ] = ()
    roots: Annotated[
        Literal["workspace", "client"],
        about(
            "With adapters or files: auto, which folders the server is told it may use: its session's own, or those "
            "that the client names."
        ),
    ] = "workspace"
    share: Annotated[
        Literal["none", "concurrent", "serial"],
        about(
            "Of a command or a socket: none gives each session its own; concurrent lets all sessions use one, and "
            "refuses questions of the server that could be for several; serial runs one call at a time, so that each "
            "question reaches its caller. Not with adapters or files: auto."
        ),
    ] = "none"
    share_with: Annotated[
        Literal["caller", "everyone"],
        about(
            "With share: the sessions that use one process: those of one caller, or, for a server that can run only "
            "once, those of all."
        ),
    ] = "caller"
    warm: Annotated[
        Annotated[int, Meta(ge=0, le=64)] | Literal["auto"],
        about(
            "Processes of the command that are kept ready for the next sessions. auto: one, for half an hour after the "
            "last session began, and none once it was seen that the server cannot run twice, or if it is shared."
        ),
    ] = "auto"
    idle_stop_seconds: Annotated[
        Seconds | None,
        about(
            "A process that has had nothing to do for this long is stopped, and started again by the next request; "
            "null: it ends with its session, or, if it is shared, a minute after the last one."
        ),
    ] = None
    answer_early: Annotated[
        bool,
        about(
            "With a command: while its process starts for a session, answer initialize, server/discover and lists with "
            "what an earlier process said to a client of equal revision and capabilities. Calls wait for the process."
        ),
    ] = True
    cache: Annotated[
        bool,
        about(
            "Keep what its lists and resources are for as long as its ttlMs says, and answer equal requests of clients "
            "of 2026-07-28 with it, those of other callers too where its cacheScope is public and the server is not "
            "shown who they are."
        ),
    ] = False
    access: Annotated[Access, about("What callers need to use the server.")] = Access()
    tools: Annotated[ToolFilter, about("Which of its tools clients see, and how.")] = ToolFilter()
    prompts: Annotated[Filter, about("Which of its prompts clients see.")] = Filter()
    resources: Annotated[Filter, about("Which of its resources clients see: URIs, and templates as they are.")] = (
        Filter()
    )
    tasks: ServerTasks = ServerTasks()
    further_path: Annotated[
        str | None, about("Another path at which it is reached over Streamable HTTP, beside /mcp/ and its id.")
    ] = None
    unix_socket: Annotated[
        str | None,
        about(
            "Path of a Unix domain socket on which clients of this server speak as on stdio, one JSON message a line. "
            "Only its owner may connect."
        ),
    ] = None
    required_headers: Annotated[Texts, about("Headers that each HTTP request for this server must have.")] = ()
    start_timeout_seconds: Annotated[Seconds | None, about("From starting it to its first answer; null: 60.")] = None
    call_timeout_seconds: Annotated[Seconds | None, about("How long it may be silent on a call; null: 3600.")] = None
    tool_time_limits: Annotated[
        dict[str, Seconds],
        about(
            "How long a call may take in all, progress or not, by names of tools, or patterns with *, ? and [...]; the "
            "first that matches holds."
        ),
    ] = {}
    rate_limits: Annotated[
        tuple[RateLimit, ...], about("How many calls of its tools may be made in a time. All that cover a tool hold.")
    ] = ()
    inspect: Annotated[
        bool, about("With a URL and no files, false passes all requests and responses on as they are.")
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
    sessions: Sessions = Sessions()
    uploads: Uploads = Uploads()
    artifacts: Artifacts = Artifacts()
    tasks: Tasks = Tasks()
    pins: Pins = Pins()
    clean: Clean = Clean()
    servers: Annotated[tuple[Server, ...], about("The servers.")] = ()
    profiles: Annotated[tuple[Profile, ...], about("Endpoints that show several servers each.")] = ()
    schema_url: Annotated[
        str | None, about("Where an editor finds the JSON Schema of this file. Isthmus does not look there.")
    ] = field(default=None, name="$schema")
