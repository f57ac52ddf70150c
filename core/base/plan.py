"""What the engine is to do: the part of a configuration that its decisions rest on, and no more.

Addresses, command lines and credentials stay with the driver, which knows each server by its id.
"""

from __future__ import annotations

import enum
from fnmatch import fnmatchcase
from typing import Final, Literal

import msgspec

from .name_filter import Selection
from .revisions import Era

UPLOAD_SCHEME: Final = "upload://"


class Kind(enum.Enum):
    """How a server is reached, as far as the engine must know."""

    PIPE = "pipe"  # a child process: one two-way stream a session
    SOCKET = "socket"  # something to connect to, and then one two-way stream a session
    HTTP = "http"  # a POST an exchange, a GET stream beside them


class Sharing(enum.Enum):
    """Who uses one process, or one socket, of a server."""

    NONE = "none"  # one session
    CONCURRENT = "concurrent"  # all sessions at once; a question that could be anybody's is refused
    SERIAL = "serial"  # all sessions, one call at a time, so that every question is the caller's


class Affinity(enum.Enum):
    """Which requests of clients without sessions belong together, where principal and capabilities are equal. Those on
    one pipe or socket always do, and those on different ones never."""

    SHARED = "shared"  # all of a principal
    REQUEST = "request"  # each for itself, and what it is asked in its course


class Offer(enum.Enum):
    """When clients are offered to have a call run as a task."""

    AUTO = "auto"  # when it makes sense: they ask for it, the server wants it, or it takes long
    ALWAYS = "always"  # whenever they know tasks
    OWN = "own"  # where the server has tasks of its own, and those only
    NEVER = "never"  # not even if the server has tasks of its own


class TaskRules(msgspec.Struct, frozen=True, kw_only=True):
    """Tasks of one server.

    Attributes:
        tools: names or patterns of tools with an offer of their own; the first that matches holds.
        strict: a call that is no task, of a tool that is to be called as one, is refused. Otherwise it is made one
            here, and its client given the plain result.
    """

    offer: Offer = Offer.OWN
    tools: tuple[tuple[str, Offer], ...] = ()
    strict: bool = False

    def offer_for(self, tool: str) -> Offer:
        for pattern, offer in self.tools:
            if fnmatchcase(tool, pattern):
                return offer
        return self.offer

    @property
    def are_offered(self) -> bool:
        """Whether any tool's are."""
        return self.offer is not Offer.NEVER or any(offer is not Offer.NEVER for _, offer in self.tools)


class Eviction(enum.Enum):
    """Which of a session's files make room for new ones, the least recently used first."""

    NONE = "none"  # what does not fit is refused
    UPLOADS_FIRST = "lru_uploads_then_artifacts"
    ARTIFACTS_FIRST = "lru_artifacts_then_uploads"


class Deliver(enum.Enum):
    """What a tool is given in place of a handle."""

    PATH = "path"  # the absolute path of a copy
    FILE_URI = "file_uri"  # the same as file:///…
    URL = "url"  # a signed, expiring link, for a server that does not see our disk
    DATA_URI = "data_uri"  # the content itself, as data:…;base64,…
    BASE64 = "base64"  # the content itself
    TEXT = "text"  # the content itself, which must be UTF-8


class UploadConsumer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Tools that take uploaded files. See FILES: `upload_consumer`."""

    tools: tuple[str, ...]
    """Names, or patterns with *, ? and [...]."""
    file_path_argument: str | tuple[str, ...]
    """Dotted path into the arguments, `[*]` for the items of a list, or several such paths; the value at each is one
    handle or a list of handles."""
    uri_scheme: str = UPLOAD_SCHEME
    """What handles start with. `UPLOAD_SCHEME` is always taken as well."""
    deliver: Deliver = Deliver.PATH
    accept_other: bool = False
    """What is no handle passes as it is, such as a URL; otherwise it is refused."""

    @property
    def arguments(self) -> tuple[str, ...]:
        """`file_path_argument`, as several."""
        given = self.file_path_argument
        return (given,) if isinstance(given, str) else given


class LocatorMode(enum.Enum):
    NONE = "none"
    REGEX = "regex"
    STRUCTURED = "structured"
    EMBEDDED = "embedded"
    RESOURCE_LINK = "resource_link"
    ARGUMENT = "argument"
    CHANGED = "changed"


class OutputLocator(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a result says what was written."""

    mode: LocatorMode | tuple[LocatorMode, ...] = LocatorMode.NONE
    """One, or several: what any of them finds is taken, each file once."""
    output_path_key: str | None = None
    """STRUCTURED: dotted path into the structured result, `[*]` for the items of a list."""
    output_path_regexes: tuple[str, ...] = ()
    """REGEX: none: the built-in ones."""
    path_arguments: tuple[str, ...] = ()
    """ARGUMENT: dotted paths of arguments that name the file; none: any that holds one string."""

    @property
    def modes(self) -> tuple[LocatorMode, ...]:
        return (self.mode,) if isinstance(self.mode, LocatorMode) else self.mode


class ArtifactProducer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Tools whose output files are taken in. See FILES: `artifact_producer`."""

    tools: tuple[str, ...]
    output_path_argument: str | None = None
    output_locator: OutputLocator = OutputLocator()
    persist: bool = True
    expose_as_resource: bool = True
    allow_raw_output: bool = False
    required: bool = False
    move: bool = False
    """Take the file away from where it was, once it is stored."""
    rewrite_text: bool = False
    """In the result, write the URI of what was taken in where its path stands."""
    inline_text_bytes: int = 0
    """A text file of at most so many bytes is added to the result as a block."""


class AutoFiles(msgspec.Struct, frozen=True, kw_only=True):
    """Files of all tools of a server, without adapters: `files: auto`. See FILES 2.3."""

    rewrite_text: bool = True
    inline_text_bytes: int = 32 * 1024
    expose_as_resource: bool = True


class SharedFolder(msgspec.Struct, frozen=True):
    """A folder that the server sees under another path than we do. Both are absolute."""

    here: str
    there: str


class ServerPlan(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    kind: Kind
    consumers: tuple[UploadConsumer, ...] = ()
    producers: tuple[ArtifactProducer, ...] = ()
    session_retries: int = 1
    """How often a request that provably did not run is sent again after the upstream forgot its session."""
    start_timeout_s: float | None = None
    """From dialling it to its answer to `initialize`; None: as the limits say."""
    reply_timeout_s: float | None = None
    """How long it may be silent on a request; None: as the limits say."""
    sharing: Sharing = Sharing.NONE
    """Not with files, nor with a server reached over Streamable HTTP: these have a session for each client."""
    may_fall_back: bool = False
    """A server that refuses Streamable HTTP is tried as one of HTTP+SSE (2025-03-26 basic/transports, "Backwards
    Compatibility")."""
    spares: int = 0
    """Processes kept ready for the next sessions."""
    idle_stop_s: float | None = None
    """A process that nobody uses is stopped after this; the next request starts it again. None: with its session, or,
    if it is shared, as the limits say."""
    passes_authorization: bool = False
    """A client's `Authorization` goes on to it: the client is the one to authenticate, and sees its challenges."""
    tools: Selection = Selection()
    """Which of its tools clients see, by name."""
    prompts: Selection = Selection()
    resources: Selection = Selection()
    """By URI, and templates by their text."""
    era: Era | None = None
    """How it is spoken to; None: as its client is, if it can be."""
    tasks: TaskRules = TaskRules()
    forwards_roots: bool = False
    """With a file plane: answer the server's `roots/list` with the client's roots, not with the session's folders."""
    auto_files: AutoFiles | None = None
    """What no adapter says of a tool is found out; None: tools without adapters carry no files."""
    shared: tuple[SharedFolder, ...] = ()
    cwd: str = ""
    """Its working directory, with `{ws}`, `{in}` and `{out}` for a session's folders; empty: `{ws}`."""
    stage: Literal["in", "out", "ws"] = "in"
    """In which of a session's folders uploads are laid for the server."""

    def __post_init__(self) -> None:
        if self.sharing is not Sharing.NONE and (self.kind is Kind.HTTP or self.has_files):
            raise ValueError(f"server {self.id} cannot be shared: it speaks Streamable HTTP, or has adapters")

    @property
    def upload_scheme(self) -> str:
        """What the handles that are handed out for this server start with: what its tools take, if they agree."""
        schemes = {consumer.uri_scheme for consumer in self.consumers}
        return schemes.pop() if len(schemes) == 1 else UPLOAD_SCHEME

    @property
    def has_files(self) -> bool:
        return bool(self.consumers or self.producers or self.auto_files)

    @property
    def takes_uploads(self) -> bool:
        """Whether any of its tools may be given an uploaded file."""
        return bool(self.consumers or self.auto_files)

    @property
    def owns_roots(self) -> bool:
        """Whether roots are answered here. A client's roots would replace the server's own list of folders it may
        touch, with paths of another machine."""
        return self.has_files and not self.forwards_roots


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Args:
    workspaces_path: absolute path under which the driver keeps each session's folders, as upstreams see it.
    tmp_prefix: the same of their temporary folders, up to the names of the workspaces; empty: nobody knows.
    public_base_url: what links start with; empty: as the client reached us, else `fallback_base_url`.
    link_key: the key that signs links; at least 16 bytes.
    """

    servers: tuple[ServerPlan, ...]
    workspaces_path: str = "/nonexistent"
    tmp_prefix: str = ""
    public_base_url: str = ""
    fallback_base_url: str = ""
    link_key: bytes = b""
    uploads_enabled: bool = True
    downloads_enabled: bool = True
    require_sha256: bool = False
    artifacts_enabled: bool = True
    expose_as_resources: bool = True
    eviction: Eviction = Eviction.UPLOADS_FIRST
    mirrors_polling: bool = False
    """Where a server closes its event stream to be polled (2025-11-25), close the client's as well."""
    stores_events: bool = False
    """Events for which there is no room in memory go into the storage, not away."""
    version: str = "0"
    """What shared servers are told is the version of this proxy."""
    affinity: Affinity = Affinity.SHARED
    """Which clients without sessions have one session with a server that has them."""
    state_keys: tuple[bytes, ...] = ()
    """Keys that seal `requestState`: the first seals, all open. At least 16 bytes each; none: one for this run."""
