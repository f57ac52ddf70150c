"""Reads configurations of remote-mcp-adapter.

Paths, ports, limits and the lifetimes of files mean the same here, with the defaults that they have there. Keys without
a meaning here are reported, each with the behaviour in its place.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from ...core.base.name_filter import NameFilter
from ...core.base.plan import LocatorMode
from ...core.files.calls.offers import helper_name
from ...core.wire.http.admin_routes import find_page
from ...core.wire.http.header_forwarding import may_pass
from ...core.wire.http.origin import is_loopback
from ..base.problem import Problem
from . import remote_mcp_adapter_schema as theirs
from .addresses import host_of
from .file_settings import Adapter, ArtifactProducerAdapter, OutputLocator, UploadConsumerAdapter
from .settings import Artifacts, Core, Server, Sessions, Settings, Storage, ToolFilter, Uploads, Upstream
from .value_checks import usable_part

FOREVER_S: Final = 365 * 86_400.0
"""Time to live of a file that never expires there: here each has one, and a year is as good as for ever."""
SESSION_FOREVER_S: Final = 86_400.0
"""Idle timeout of a session that never ends there: else those of clients that vanished would stay for good. Most
clients that return do so within a day."""

_CORE_KEYS: Final = frozenset(theirs.Core.__struct_fields__) - frozenset(Core.__struct_fields__)
_TOP_KEYS: Final = frozenset({"state_persistence"})
_TELEMETRY_KEYS: Final = frozenset(theirs.Telemetry.__struct_fields__)
_SERVER_KEYS: Final = frozenset(theirs.Server.__struct_fields__) - frozenset(Server.__struct_fields__)

_PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9_-]+")
_MODES: Final = ("tool_metadata_sanitization", "tool_definition_pinning")
"""Mappings with a `mode` that may be off, which YAML reads as false unless it is in quotes."""

# Our keys, as patterns, and the keys of such a file that they come from.
_THEIRS: Final = (
    (re.compile(r"core\.further_upload_path"), r"core.upload_path"),
    (re.compile(r"core\.allowed_origins"), r"core.cors.allowed_origins"),
    (re.compile(r"(servers\[\d+\])\.further_path"), r"\1.mount_path"),
    (re.compile(r"(servers\[\d+\])\.tools\.exclude(_regexes)?"), r"\1.disabled_tools"),
    (re.compile(r"(servers\[\d+\]\.upstream)\.headers"), r"\1.static_headers"),
    (re.compile(r"(servers\[\d+\]\.upstream)\.pass_headers"), r"\1.client_headers.passthrough"),
    (re.compile(r"(servers\[\d+\])\.required_headers"), r"\1.upstream.client_headers.required"),
    (re.compile(r"servers\[\d+\]\.artifact_roots\[\d+\]"), r"storage.artifact_locator_allowed_roots"),
)

_UNTOUCHED: Final = "descriptions and schemas of tools reach clients as the server wrote them"
_DISK: Final = "records are kept in SQLite, below storage.root"
_UNUSED: Final[tuple[tuple[str, object, str], ...]] = (
    ("core.max_start_wait_seconds", 0, "it listens at once, and servers are asked when they are needed"),
    ("core.cleanup_interval_seconds", None, "a file goes when its time is over"),
    ("core.code_mode_enabled", False, "clients see the tools themselves"),
    ("core.shorten_descriptions", False, _UNTOUCHED),
    ("core.short_description_max_tokens", None, _UNTOUCHED),
    ("core.upstream_metadata_cache_ttl_seconds", 0, "lists are asked for each time"),
    ("core.tool_description_policy", {"mode": "preserve"}, _UNTOUCHED),
    ("core.tool_metadata_sanitization", {"mode": "off"}, _UNTOUCHED),
    ("core.tool_definition_pinning", {"mode": "off"}, "a tool whose definition changes is offered as it is then"),
    ("core.upstream_ping", {"enabled": False}, "how a server fares is known from the calls it answers, see isthmus ps"),
    ("core.auth.signing_secret", None, "links are signed with a key that is made and kept below storage.root"),
    ("core.cors.allowed_methods", None, "pages of allowed origins may use the methods that there are"),
    ("core.cors.allowed_headers", None, "pages of allowed origins may send the headers that are read"),
    ("core.cors.allow_credentials", False, "cookies are not asked for"),
    ("storage.atomic_writes", True, "a file is stored whole or not at all, always"),
    ("storage.lock_mode", "auto", "one process holds storage.root, by a lock of the system's"),
    ("storage.orphan_sweeper_enabled", True, "what no record owns is removed at the start, always"),
    ("storage.orphan_sweeper_grace_seconds", None, "what no record owns is removed at the start, always"),
    ("sessions.allow_revival", False, "a session that has ended does not come back"),
    ("artifacts.enabled", True, "with false no file is taken in; there it only hid them from resources/list"),
    ("artifacts.uri_scheme", "artifact://", "artifacts are artifact://…"),
    ("state_persistence.type", "disk", f"{_DISK}, and several processes do not share them"),
    ("state_persistence.refresh_on_startup", False, "what is stored is kept"),
    ("state_persistence.snapshot_interval_seconds", None, "each record is written when it changes"),
    ("state_persistence.unavailable_policy", None, "a request that needs the disk fails alone"),
    ("state_persistence.disk", None, _DISK),
    ("state_persistence.redis", None, _DISK),
    ("state_persistence.reconciliation", {"mode": "disabled"}, "files without a record are removed at the start"),
    ("telemetry", {"enabled": False}, "GET /metrics gives numbers to Prometheus"),
    ("servers[].upstream_ping", {"enabled": False}, "how a server fares is known from the calls it answers"),
    ("servers[].tool_description_policy", {"mode": "preserve"}, _UNTOUCHED),
    ("servers[].tool_metadata_sanitization", {"mode": "off"}, _UNTOUCHED),
    ("servers[].tool_definition_pinning", {"mode": "off"}, "a tool whose definition changes is offered as it is then"),
    ("servers[].code_mode_enabled", False, "clients see the tools themselves"),
    ("servers[].shorten_descriptions", False, _UNTOUCHED),
    ("servers[].short_description_max_tokens", None, _UNTOUCHED),
    (
        "servers[].adapters[].overrides.tool_call_timeout_seconds",
        None,
        "the server's time limit holds for each tool; the key tool_time_limits has limits for some",
    ),
)
"""Keys without a meaning here: the value that agrees with our behaviour and needs no note, and that behaviour."""


def is_adapter_file(document: object) -> bool:
    """True if a document is a configuration of remote-mcp-adapter: its servers have keys, above all `mount_path`, that
    ours do not have."""
    if not isinstance(document, dict):
        return False
    servers = document.get("servers")
    entries = [entry for entry in servers if isinstance(entry, dict)] if isinstance(servers, list) else []
    if any("mount_path" in entry for entry in entries):
        return True
    upstreams = [entry.get("upstream") for entry in entries]
    if "mcpServers" in document or any(isinstance(one, dict) and "command" in one for one in upstreams):
        return False
    core, telemetry = document.get("core"), document.get("telemetry")
    is_theirs = isinstance(core, dict) and not _CORE_KEYS.isdisjoint(core)
    is_theirs |= isinstance(telemetry, dict) and not _TELEMETRY_KEYS.isdisjoint(telemetry)
    return is_theirs or not _TOP_KEYS.isdisjoint(document) or any(not _SERVER_KEYS.isdisjoint(one) for one in entries)


def prepared(document: Any) -> Any:
    """Rewrites a document for our reader: there, a bare `off` is a mode, and `$$` is two characters."""
    if isinstance(document, list):
        return [prepared(item) for item in document]
    if isinstance(document, str):
        return document.replace("$$", "$$$$")
    if not isinstance(document, dict):
        return document
    made = {key: prepared(value) for key, value in document.items()}
    for key in _MODES:
        if isinstance(made.get(key), dict) and made[key].get("mode") is False:
            made[key] = {**made[key], "mode": "off"}
    if isinstance(made.get("log_level"), str):
        made["log_level"] = made["log_level"].strip().lower()
    return made


def faults(file: theirs.AdapterFile) -> Iterator[Problem]:
    """Yields problems that remote-mcp-adapter itself refuses and that our own checks do not know."""
    auth, storage = file.core.auth, file.storage
    if auth.enabled and not (auth.token or "").strip():
        yield Problem("core.auth.token", "a secret, for core.auth.enabled is true", "got none")
    if auth.signing_secret is not None and not auth.signing_secret.strip():
        yield Problem("core.auth.signing_secret", "a secret, or null", "got a blank one")
    if storage.lock_mode == "redis" and file.state_persistence.type != "redis":
        yield Problem("storage.lock_mode", "another one, for state_persistence.type is not redis")
    if storage.artifact_locator_policy == "allow_configured_roots" and not storage.artifact_locator_allowed_roots:
        yield Problem("storage.artifact_locator_allowed_roots", "at least one folder, for the policy allows them")


def to_settings(file: theirs.AdapterFile) -> tuple[Settings, list[str]]:
    """Converts such a file to our settings, and returns a line for each setting that works differently here."""
    notes: list[str] = []
    settings = Settings(
        core=_core(file.core, notes),
        storage=Storage(root=file.storage.root, max_size=file.storage.max_size),
        sessions=_sessions(file.sessions),
        uploads=Uploads(
            enabled=file.uploads.enabled,
            max_file_bytes=file.uploads.max_file_bytes,
            ttl_seconds=file.uploads.ttl_seconds or FOREVER_S,
            require_sha256=file.uploads.require_sha256,
            link_ttl_seconds=file.core.auth.signed_upload_ttl_seconds,
        ),
        artifacts=Artifacts(
            enabled=file.artifacts.enabled,
            ttl_seconds=file.artifacts.ttl_seconds or FOREVER_S,
            max_per_session=file.artifacts.max_per_session or Artifacts().max_per_session,
            expose_as_resources=file.artifacts.expose_as_resources,
        ),
        servers=tuple(_server(f"servers[{i}]", server, file, notes) for i, server in enumerate(file.servers)),
    )
    return settings, notes


def _core(core: theirs.Core, notes: list[str]) -> Core:
    host, is_local = core.host, is_loopback(host_of(core.host))
    if core.auth.enabled:
        bound = "so it listens on 127.0.0.1 only: put something that checks it in front"
        bound = "and other programs on this machine reach it" if is_local else bound
        header = core.auth.header_name
        notes.append(f"core.auth.enabled is not used: nobody is asked for {header}, {bound}")
        host = host if is_local else "127.0.0.1"
    origins = core.cors.allowed_origins if core.cors.enabled else ()
    if "*" in origins:
        notes.append("core.cors.allowed_origins names *, and pages of named origins only may call")
    return Core(
        host=host,
        port=core.port,
        public_base_url=core.public_base_url,
        further_upload_path=_path(core.upload_path) if _path(core.upload_path) != "/upload" else None,
        allow_artifacts_download=core.allow_artifacts_download,
        allowed_origins=tuple(origin for origin in origins if origin != "*"),
        any_host=not is_local and not core.auth.enabled,
        log_level=core.log_level,
    )


def _sessions(sessions: theirs.Sessions) -> Sessions:
    defaults = Sessions()
    return Sessions(
        idle_ttl_seconds=sessions.idle_ttl_seconds or SESSION_FOREVER_S,
        max_active=sessions.max_active or defaults.max_active,
        max_in_flight_per_session=sessions.max_in_flight_per_session or defaults.max_in_flight_per_session,
        max_total_session_size=sessions.max_total_session_size,
        eviction_policy=sessions.eviction_policy,
        tombstone_ttl_seconds=sessions.tombstone_ttl_seconds or defaults.tombstone_ttl_seconds,
        file_scope="session",
        upstream_session_termination_retries=sessions.upstream_session_termination_retries,
    )


def _server(key: str, server: theirs.Server, file: theirs.AdapterFile, notes: list[str]) -> Server:
    path, timeouts = _path(server.mount_path), (server.tool_defaults, file.core.defaults)
    if find_page(path) is not None:
        notes.append(f"{key}.mount_path {path} takes the place of the page that there is at that path")
    upstream = _upstream(f"{key}.upstream", server.upstream, notes)
    disabled = _disabled(server.disabled_tools)
    selection = usable_part(disabled.selection)  # the checks of the settings report the rest
    if not selection.admits(helper_name(server.id.strip())):
        notes.append(
            f"{key}.disabled_tools names the tool that offers uploads, which stays as long as they are enabled"
        )
    adapters = tuple(_adapters(key, server, file, selection, notes))
    roots: list[str] = []
    if any(isinstance(adapter, ArtifactProducerAdapter) for adapter in adapters):
        is_wider = file.storage.artifact_locator_policy == "allow_configured_roots"
        roots = [file.storage.root, *(file.storage.artifact_locator_allowed_roots if is_wider else ())]
    return Server(
        id=server.id.strip(),
        upstream=upstream,
        further_path=None if path == f"/mcp/{server.id.strip()}" else path,
        adapters=adapters,
        artifact_roots=tuple(roots),
        tools=disabled,
        required_headers=server.upstream.client_headers.required,
        call_timeout_seconds=next(
            (one.tool_call_timeout_seconds for one in timeouts if one.tool_call_timeout_seconds), None
        ),
    )


def _path(path: str) -> str:
    """Normalizes a path as remote-mcp-adapter does: one slash before it, none after it."""
    return "/" + path.strip().strip("/")


def _disabled(entries: tuple[str, ...]) -> ToolFilter:
    """Converts `disabled_tools`: an entry with characters beyond those of names is a regular expression, if Python
    reads it so, as remote-mcp-adapter does. Where RE2 does not, it is refused: as a name it would hide nothing."""
    names, regexes = [], []
    for entry in entries:
        if _PLAIN_NAME.fullmatch(entry) is None and _is_regex(entry):
            regexes.append(entry)
        else:
            names.append(entry)
    return ToolFilter(exclude=tuple(names) or None, exclude_regexes=tuple(regexes) or None)


def _is_regex(text: str) -> bool:
    try:
        re.compile(text)
    except (re.error, RecursionError, OverflowError):
        return False
    return True


def _upstream(key: str, upstream: theirs.Upstream, notes: list[str]) -> Upstream:
    fixed = {name.lower() for name in upstream.static_headers}
    passed: list[str] = []
    for i, name in enumerate(upstream.client_headers.passthrough):
        at = f"{key}.client_headers.passthrough[{i}]"
        if not may_pass(name):
            notes.append(f"{at} is not used: {name} is set anew for each request")
        elif name.lower() in fixed:
            notes.append(f"{at} is not used: static_headers sets {name}")
        elif name.lower() not in {one.lower() for one in passed}:
            passed.append(name)
    return Upstream(
        url=upstream.url.strip(),
        transport=upstream.transport,
        headers=upstream.static_headers,
        pass_headers=tuple(passed) or {},
        verify_tls=not upstream.insecure_tls,
    )


def _adapters(
    key: str, server: theirs.Server, file: theirs.AdapterFile, selection: NameFilter, notes: list[str]
) -> Iterator[Adapter]:
    raw_output = (server.tool_defaults.allow_raw_output, file.core.defaults.allow_raw_output)
    for i, adapter in enumerate(server.adapters):
        at = f"{key}.adapters[{i}]"
        tools = tuple(filter(selection.admits, adapter.tools))
        if tools != adapter.tools:
            notes.append(f"{at}.tools names tools that disabled_tools hides: they stay hidden")
        if not tools and adapter.tools:
            continue
        if isinstance(adapter, theirs.UploadConsumer):
            yield UploadConsumerAdapter(
                tools=tools,
                file_path_argument=adapter.file_path_argument.strip(),
                uri_scheme=adapter.uri_scheme or file.uploads.uri_scheme,
                uri_prefix=adapter.uri_prefix,
            )
            continue
        locator = adapter.output_locator
        if adapter.output_path_argument is None and locator.mode == "none":
            notes.append(f"{at} is not used: with mode none and no output_path_argument it takes no file in")
            continue
        is_raw = (adapter.allow_raw_output, adapter.include_raw_output, adapter.overrides.allow_raw_output, *raw_output)
        yield ArtifactProducerAdapter(
            tools=tools,
            output_path_argument=adapter.output_path_argument,
            output_locator=OutputLocator(
                mode=LocatorMode(locator.mode),
                output_path_key=locator.output_path_key or None,
                output_path_regexes=locator.output_path_regexes,
            ),
            persist=adapter.persist,
            expose_as_resource=adapter.expose_as_resource,
            allow_raw_output=next((given for given in is_raw if given is not None), False),
        )


def to_their_keys(problem: Problem) -> Problem:
    """Converts a problem of the settings back to the keys of the file."""
    return Problem(*map(_renamed, problem))


def _renamed(text: str) -> str:
    for ours, other in _THEIRS:
        text = ours.sub(other, text)
    return text


def unused(document: Mapping[str, Any]) -> list[str]:
    """Returns a line for each key of the document that is not used, with the first place where it stands."""
    lines = []
    uses_cors = ("core.cors.enabled", True) in _written(document, ["core", "cors", "enabled"])
    for key, holds, instead in _UNUSED:
        found = [where for where, value in _written(document, key.split(".")) if not _agrees(value, holds)]
        if found and (uses_cors or not key.startswith("core.cors.")):
            more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
            lines.append(f"{found[0]}{more} is not used: {instead}")
    return lines


def _written(value: object, steps: list[str], at: str = "") -> Iterator[tuple[str, object]]:
    """Yields places and values at a dotted key, in which `[]` stands for each item of a list."""
    if not steps:
        yield at, value
        return
    name, is_list = steps[0].removesuffix("[]"), steps[0].endswith("[]")
    if not isinstance(value, dict) or name not in value:
        return
    inner, here = value[name], f"{at}.{name}" if at else name
    if not is_list:
        yield from _written(inner, steps[1:], here)
    elif isinstance(inner, list):
        for i, item in enumerate(inner):
            yield from _written(item, steps[1:], f"{here}[{i}]")


def _agrees(value: object, holds: object) -> bool:
    """True if a value agrees with our behaviour `holds`, so that no note is needed."""
    if value is None or value in ({}, []):
        return True
    if isinstance(holds, dict):
        return isinstance(value, dict) and all(value.get(name) == ours for name, ours in holds.items())
    return holds is not None and value == holds
