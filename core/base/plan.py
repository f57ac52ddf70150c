"""The plan: the part of a configuration that the engine's decisions rest on, and no more.

Addresses, command lines and credentials stay with the driver, which knows each server by its id.
"""

from __future__ import annotations

import enum
from fnmatch import fnmatchcase
from typing import Annotated, Final, Literal

import msgspec

from .governance import Cleaning, PinRules, RateLimit, Shown
from .name_filter import NameFilter
from .replica import ReplicaName
from .revisions import Era
from .setting_names import KEYS, SettingNames
from .telemetry import Detail, Tracing

Id = Annotated[str, msgspec.Meta(min_length=1)]
Count = Annotated[int, msgspec.Meta(ge=0)]
Seconds = Annotated[float, msgspec.Meta(gt=0)]
Key = Annotated[bytes, msgspec.Meta(min_length=16)]

UPLOAD_SCHEME: Final = "upload://"
"""The scheme of upload handles, unless a consumer names another."""


class Kind(enum.Enum):
    """The transport to a server, as far as the engine must know it."""

    PIPE = "pipe"  # a child process: one two-way stream a session
    SOCKET = "socket"  # something to connect to, and then one two-way stream a session
    HTTP = "http"  # a POST for each exchange, and a GET stream beside them


class Sharing(enum.Enum):
    """The sessions that use one process, or one socket, of a server."""

    NONE = "none"  # one session
    CONCURRENT = "concurrent"  # all sessions at once; a server request that could concern any of them is refused
    SERIAL = "serial"  # all sessions, one call at a time, so that every server request belongs to that call


class Affinity(enum.Enum):
    """The rule by which requests of clients without sessions share one session with a server, given equal principal and
    capabilities. Requests on one pipe or socket always share one, requests on different pipes never."""

    SHARED = "shared"  # all requests of a principal
    REQUEST = "request"  # each request has its own, together with the retries that answer its questions


class Offer(enum.Enum):
    """The rule by which clients are offered to run a call as a task."""

    AUTO = "auto"  # when it makes sense: the client asks for it, the server wants it, or the call takes long
    ALWAYS = "always"  # for every client that declares tasks
    OWN = "own"  # only where the server has tasks of its own
    NEVER = "never"  # not even if the server has tasks of its own


OURS: Final = (Offer.AUTO, Offer.ALWAYS)
"""Offers under which the proxy itself makes tasks of calls, for servers without tasks."""


class TaskRules(msgspec.Struct, frozen=True, kw_only=True):
    """The rules for tasks of one server. Tasks are records: an engine offers them only if its driver has a storage.

    Attributes:
        tools: names or patterns of tools with an offer of their own; the first that matches holds.
        strict: refuse a plain call of a tool that must be called as a task. Otherwise the proxy makes a task of it, and
            gives the client the plain result.
    """

    offer: Offer = Offer.NEVER
    tools: tuple[tuple[str, Offer], ...] = ()
    strict: bool = False

    def offer_for(self, tool: str) -> Offer:
        """Returns the offer for a tool: that of the first matching entry of `tools`, else `offer`."""
        for pattern, offer in self.tools:
            if fnmatchcase(tool, pattern):
                return offer
        return self.offer

    @property
    def are_offered(self) -> bool:
        """True if calls of any tool are offered as tasks."""
        return self.offer is not Offer.NEVER or any(offer is not Offer.NEVER for _, offer in self.tools)


class Eviction(enum.Enum):
    """The files of a session that are removed to make room for new ones, the least recently used first."""

    NONE = "none"  # a file for which there is no room is refused
    UPLOADS_FIRST = "lru_uploads_then_artifacts"
    ARTIFACTS_FIRST = "lru_artifacts_then_uploads"


class FileScope(enum.Enum):
    """The clients that may use a stored file by its name, and the accounts that files count in."""

    PRINCIPAL = "principal"  # all sessions of a principal, also after the one that it was stored in
    SESSION = "session"  # the session that it was stored in; uploads go with that


class Deliver(enum.Enum):
    """The form in which a tool receives a file in place of its handle."""

    PATH = "path"  # the absolute path of a copy
    FILE_URI = "file_uri"  # that path as file:///…
    URL = "url"  # a signed, expiring link, for a server that does not see our disk
    DATA_URI = "data_uri"  # the content itself, as data:…;base64,…
    BASE64 = "base64"  # the content itself
    TEXT = "text"  # the content itself, which must be UTF-8


class UploadConsumer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An adapter for tools that take uploaded files. See FILES: `upload_consumer`."""

    tools: tuple[str, ...]
    """Names, or patterns with *, ? and [...]."""
    file_path_argument: str | tuple[str, ...]
    """Dotted path into the arguments, `[*]` for the items of a list, or several such paths; the value at each is one
    handle or a list of handles."""
    uri_scheme: str = UPLOAD_SCHEME
    """The scheme that handles start with. `UPLOAD_SCHEME` is always accepted as well."""
    deliver: Deliver = Deliver.PATH
    accept_other: bool = False
    """Pass values that are no handles, such as a URL, unchanged; otherwise they are refused."""

    @property
    def arguments(self) -> tuple[str, ...]:
        """`file_path_argument` as a tuple."""
        given = self.file_path_argument
        return (given,) if isinstance(given, str) else given


class LocatorMode(enum.Enum):
    """A way to find the written files in a call's result or arguments. See FILES: `output_locator`."""

    NONE = "none"
    REGEX = "regex"
    STRUCTURED = "structured"
    EMBEDDED = "embedded"
    RESOURCE_LINK = "resource_link"
    ARGUMENT = "argument"
    CHANGED = "changed"


class Links(enum.Enum):
    """The form in which a result leads to an artifact. See FILES 2.4."""

    BOTH = "both"
    RESOURCE_LINK = "resource_link"  # a block of that type; a text only where there can be none
    TEXT = "text"  # text blocks only, for clients that fail at a block of that type


class OutputLocator(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The places in a result or in the arguments that name the files a tool has written."""

    mode: LocatorMode | tuple[LocatorMode, ...] = LocatorMode.NONE
    """One mode, or several: the files that any of them finds are taken in, each once."""
    output_path_key: str | None = None
    """STRUCTURED: dotted path into the structured result, `[*]` for the items of a list."""
    output_path_regexes: tuple[str, ...] = ()
    """REGEX: the expressions; empty uses the built-in ones."""
    path_arguments: tuple[str, ...] = ()
    """ARGUMENT: dotted paths of arguments that name the file; empty: any argument that holds one string."""

    @property
    def modes(self) -> tuple[LocatorMode, ...]:
        """`mode` as a tuple."""
        return (self.mode,) if isinstance(self.mode, LocatorMode) else self.mode


class ArtifactProducer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An adapter for tools whose output files are taken in as artifacts. See FILES: `artifact_producer`."""

    tools: tuple[str, ...]
    output_path_argument: str | None = None
    output_locator: OutputLocator = OutputLocator()
    persist: bool = True
    expose_as_resource: bool = True
    allow_raw_output: bool = False
    required: bool = False
    move: bool = False
    """Remove the file from its original place once it is stored."""
    rewrite_text: bool = False
    """Replace the paths of stored files in the result by their artifact URIs."""
    inline_text_bytes: Count = 0
    """Add a text file of at most so many bytes to the result as a block."""
    links: Links = Links.BOTH


class AutoFiles(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of `files: auto`, which handles the files of all tools of a server without adapters. See FILES
    2.3."""

    rewrite_text: bool = True
    inline_text_bytes: Count = 32 * 1024
    expose_as_resource: bool = True
    links: Links = Links.BOTH


class SharedFolder(msgspec.Struct, frozen=True):
    """A folder that the server sees under another path than the proxy does: `there` and `here`, both absolute."""

    here: str
    there: str


class AccessRule(msgspec.Struct, frozen=True):
    """The scopes and groups that a caller needs to use something.

    Attributes:
        scopes: all of these, in its token.
        groups: one of these; else it does not exist for the caller. None: nobody need be in a group.
    """

    scopes: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()


PatternRules = tuple[tuple[str, AccessRule], ...]
"""Rules by name, or by patterns with *, ? and [...]; the first that matches holds."""


class AccessRules(msgspec.Struct, frozen=True):
    """The rules of access to a server: the rule of the server, and further ones for what it has. The groups of the
    server's rule are checked where its endpoint is reached."""

    server: AccessRule = AccessRule()
    tools: PatternRules = ()
    prompts: PatternRules = ()
    resources: PatternRules = ()


class ServerPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The plan of one server."""

    id: Id
    kind: Kind
    addresses: tuple[str, ...] = ()
    """The server's addresses, as people are shown them, so without credentials. Each session is at one of them, which
    orders to connect name by its place (`Post.address`). Empty: one that needs no name."""
    consumers: tuple[UploadConsumer, ...] = ()
    producers: tuple[ArtifactProducer, ...] = ()
    session_retries: Count = 1
    """Times that a request that provably did not run is sent again after the upstream forgot its session."""
    start_timeout_s: Seconds | None = None
    """Seconds from dialling the server to its response to `initialize`; None: as the limits say."""
    reply_timeout_s: Seconds | None = None
    """Seconds that the server may be silent on a request; None: as the limits say."""
    tool_time_limits: tuple[tuple[str, Seconds], ...] = ()
    """Seconds that a call may take in all, by names of tools, or patterns with *, ? and [...]; the first that matches
    holds."""
    sharing: Sharing = Sharing.NONE
    """Sharing of the server's process or socket. Not possible with files, nor over Streamable HTTP: these have one
    upstream session for each client."""
    shares_with_everyone: bool = False
    """All principals share one process or socket, for a server that can run only once. Else each has its own."""
    may_fall_back: bool = False
    """Try a server that refuses Streamable HTTP as one of HTTP+SSE (2025-03-26 basic/transports, "Backwards
    Compatibility")."""
    spares: Count = 0
    """Processes kept ready for the next sessions."""
    spares_on_trial: bool = False
    """The spare processes are a default, which no configuration asked for: they are kept only where that is safe, and
    only for a time (`core/upstream/warm_pool.py`)."""
    idle_stop_s: Seconds | None = None
    """Seconds without use after which a process is stopped; the next request starts it again. None: it ends with its
    session, or, if it is shared, as the limits say."""
    passes_authorization: bool = False
    """Pass a client's `Authorization` header on to the server: the server authenticates the client, and the client sees
    its challenges."""
    logs_in_callers: bool = False
    """Each principal has a login of its own at the server, which the driver knows (`Post.principal`)."""
    tools: NameFilter = NameFilter()
    """The tools that clients see, by name."""
    prompts: NameFilter = NameFilter()
    """The prompts that clients see, by name."""
    resources: NameFilter = NameFilter()
    """The resources that clients see, by URI, and resource templates, by their text."""
    access: AccessRules | None = None
    """Rules by the grants in the openings of clients' channels; None: all clients may use everything."""
    pins: PinRules | None = None
    """Rules for definitions that differ from the approved ones; None: none was approved."""
    clean: Cleaning = Cleaning.OFF
    """The treatment of invisible characters in what the server lists."""
    shown: Shown = Shown()
    """The way in which clients are shown its tools."""
    rate_limits: tuple[RateLimit, ...] = ()
    """Limits to the rate of calls. Each one that covers a tool holds."""
    caches: bool = False
    """Keep results of lists and reads for as long as the server allows, and answer equal requests with them."""
    answers_early: bool = False
    """Applies to processes: while one starts, give its clients what the server last said of itself and listed."""
    decides: bool = False
    """Order a decision (`Decide`) about each request of a client, before anything is done for it."""
    era: Era | None = None
    """The era in which the server is spoken to; None: that of its client, if the server supports it."""
    tasks: TaskRules = TaskRules()
    forwards_roots: bool = False
    """Applies to servers with files: answer the server's `roots/list` with the client's roots, not with the session's
    folders."""
    auto_files: AutoFiles | None = None
    """Settings for the tools that no adapter describes; None: those tools carry no files."""
    shared: tuple[SharedFolder, ...] = ()
    """Folders that the server sees under other paths."""
    cwd: str = ""
    """The server's working directory, with `{ws}`, `{in}` and `{out}` for a session's folders; empty: `{ws}`."""
    names: SettingNames = KEYS
    """The names of settings in messages about the server."""
    stage: Literal["in", "out", "ws"] = "in"
    """The folder of a session in which uploads are laid for the server."""

    def __post_init__(self) -> None:
        if self.sharing is not Sharing.NONE and (self.kind is Kind.HTTP or self.has_files):
            raise ValueError(f"server {self.id} cannot be shared: it speaks Streamable HTTP, or has adapters")
        if self.logs_in_callers and self.sharing is not Sharing.NONE and self.shares_with_everyone:
            raise ValueError(f"server {self.id} has a login for each caller, and one connection for all of them")
        if self.answers_early and self.kind is not Kind.PIPE:
            raise ValueError(f"server {self.id} has no process that starts, so nothing is answered meanwhile")

    @property
    def upload_scheme(self) -> str:
        """The scheme of the handles that are given to clients of this server: that of its consumers if they agree, else
        `UPLOAD_SCHEME`."""
        schemes = {consumer.uri_scheme for consumer in self.consumers}
        return schemes.pop() if len(schemes) == 1 else UPLOAD_SCHEME

    @property
    def has_files(self) -> bool:
        """True if the file plane handles messages of this server."""
        return bool(self.consumers or self.producers or self.auto_files)

    @property
    def judges_definitions(self) -> bool:
        """True if what the server lists is compared with what was approved, or searched for invisible characters."""
        return self.pins is not None or self.clean is Cleaning.BLOCK

    @property
    def takes_uploads(self) -> bool:
        """True if any of its tools may be given an uploaded file."""
        return bool(self.consumers or self.auto_files)

    @property
    def owns_roots(self) -> bool:
        """True if the proxy answers the server's `roots/list` itself. A client's roots would replace the server's own
        list of folders it may touch with paths of another machine."""
        return self.has_files and not self.forwards_roots


class ProfileServer(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """A server of a profile.

    Attributes:
        alias: stands before its names; None: made of its id; "": nothing.
        headers: the headers of clients of the profile that go on to it: each with its name in lower case, and the name
            at the server.
        required_headers: those of them, in lower case, without which an HTTP client has no use of the server.
    """

    id: str
    alias: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    required_headers: tuple[str, ...] = ()


class Profile(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """One endpoint that shows several servers. Its id is that of an endpoint, as the id of a server is."""

    id: str
    servers: tuple[ProfileServer, ...]
    longest_name: Annotated[int, msgspec.Meta(ge=32)] = 50
    """The most characters of a name: model APIs take 64, and clients put a prefix of their own in front."""
    list_wait_s: Seconds = 3.0
    """Seconds that a list waits for servers of which nothing is known yet."""
    keeps_lists: bool = False
    """Lists of servers are stored, and shown after a restart until the servers have listed anew."""
    has_search: bool = False
    """Clients are shown tools that search and call, instead of the tools of the servers."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The plan of the whole proxy.

    Args:
        workspaces_path: absolute path under which the driver keeps each session's folders, as upstreams see it.
        tmp_prefix: the path of the temporary folders, up to the names of the workspaces; empty: not known.
        public_base_url: the start of links; empty: as the client reached us, else `fallback_base_url`.
        link_keys: keys that sign links, of at least 16 bytes each: the first one signs, all are accepted.
    """

    servers: tuple[ServerPlan, ...]
    profiles: tuple[Profile, ...] = ()
    """Endpoints that show several of the servers each."""
    workspaces_path: str = "/nonexistent"
    tmp_prefix: str = ""
    public_base_url: str = ""
    fallback_base_url: str = ""
    link_keys: tuple[Key, ...] = ()
    uploads_enabled: bool = True
    downloads_enabled: bool = True
    require_sha256: bool = False
    artifacts_enabled: bool = True
    expose_as_resources: bool = True
    eviction: Eviction = Eviction.UPLOADS_FIRST
    file_scope: FileScope = FileScope.PRINCIPAL
    mirrors_polling: bool = False
    """Close the client's event stream, too, where a server closes its own to be polled (2025-11-25)."""
    stores_events: bool = False
    """Put events for which there is no room in memory into the storage, instead of dropping them."""
    telemetry: Detail = Detail.NONE
    """The events of sessions and requests for which an `Emit` is ordered."""
    tracing: Tracing | None = None
    """The rules for trace contexts and spans; None: contexts in `_meta` pass untouched, and there are no spans."""
    shares_storage: bool = False
    """Other processes use the storage, too, so a file may be there that this one does not know."""
    replica: ReplicaName | None = None
    """The name of this process among those that serve the same clients; None: there are no others."""
    name: Id = "isthmus"
    """The name of this proxy in the `clientInfo` of its own requests, and of clients without sessions that do not tell
    their name."""
    publishes_metadata: bool = False
    """The driver publishes protected-resource metadata (`access/metadata`) of the servers, and challenges name them."""
    version: str = "0"
    """The version of this proxy beside that name."""
    affinity: Affinity = Affinity.SHARED
    """The clients without sessions that share one session with a server that has sessions."""
    state_keys: tuple[Key, ...] = ()
    """Keys that seal `requestState`: the first one seals, all of them open. Empty: one random key for this run."""

    @property
    def link_key(self) -> bytes:
        """The key that signs links; empty if there is none."""
        return self.link_keys[0] if self.link_keys else b""
