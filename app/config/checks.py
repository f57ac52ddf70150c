"""Checks of a whole configuration, beyond the types of its keys."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from ...core.wire.http.header_forwarding import AUTHORIZATION
from ..base.problem import Problem
from .access_checks import check_auth, check_peer
from .access_settings import Access
from .audit_checks import check_audit
from .cluster_checks import check_cluster
from .file_checks import check_files
from .governance_checks import check_pins, check_rate_limits, check_shown_tools, shows_otherwise
from .login_checks import check_callers
from .profile_checks import check_profiles
from .settings import Core, Forwarding, Server, ServerTasks, Settings, Tasks
from .storage_checks import check_storage
from .telemetry_checks import check_telemetry
from .ui_checks import check_ui
from .upstream_checks import check_upstream, check_usable
from .value_checks import (
    HEADER_NAME,
    check_further_path,
    check_header_name,
    check_headers,
    check_host,
    check_origin,
    check_path,
    check_secret,
    check_selection,
    check_socket_path,
    check_token,
    check_url,
)
from .value_types import ID_PATTERN


def check(settings: Settings, is_sound: Callable[[str], bool]) -> list[Problem]:
    """Returns all problems of `settings` as they were read.

    Args:
        is_sound: true if the value at a dotted key was read without a problem. Other values are not checked.
    """
    return list(_check(settings, is_sound))


def _check(settings: Settings, is_sound: Callable[[str], bool]) -> Iterator[Problem]:
    if is_sound("core"):
        yield from _core(settings.core)
    if is_sound("auth"):
        yield from check_auth(settings.auth, is_sound)
        if settings.auth and settings.auth.client_certificates is not None and is_sound("core"):
            if settings.core.tls is None:
                yield Problem("auth.client_certificates", "core.tls beside it: clients show certificates with TLS only")
    yield from check_storage(settings, is_sound)
    yield from check_cluster(settings, is_sound)
    yield from check_ui(settings, is_sound)
    if is_sound("core.link_keys"):
        yield from _secrets("core.link_keys", settings.core.link_keys)
    if is_sound("sessions.request_state_keys"):
        yield from _secrets("sessions.request_state_keys", settings.sessions.request_state_keys)
    if is_sound("tasks"):
        yield from _tasks(settings.tasks)
    yield from check_telemetry(settings.telemetry, is_sound)
    yield from check_audit(settings, is_sound)
    yield from check_pins(settings, is_sound)
    if is_sound("servers") and not settings.servers:
        yield Problem("servers", "at least one server", "no server here or in mcpServers")
    seen: dict[str, str] = {}
    paths: dict[str, str] = {}
    for i, server in enumerate(settings.servers or ()):
        if server:  # a server that could not be read is None
            if is_sound(f"servers[{i}].id"):
                yield from _id(f"servers[{i}].id", server.id, seen)
            yield from _server(f"servers[{i}]", server, is_sound)
            if is_sound(f"servers[{i}].further_path") and server.further_path is not None:
                yield from _further_path(f"servers[{i}].further_path", server.further_path, paths)
    for i, server in enumerate(settings.servers or ()):
        if server and is_sound(f"servers[{i}].access") and server.access != Access():
            key = f"servers[{i}].access"
            if is_sound("auth") and not settings.auth.recognises:
                yield Problem(key, "a way to recognise callers (auth.tokens, auth.issuers or auth.proxy) beside it")
            if server.access.has_names and not server.inspect and is_sound(f"servers[{i}].inspect"):
                yield Problem(key, "scope and groups alone: with inspect: false nobody looks into what passes")
        if server and is_sound("auth") and is_sound(f"servers[{i}].upstream"):
            yield from check_callers(f"servers[{i}]", server, settings.auth)
    if is_sound("profiles"):
        yield from check_profiles(settings, is_sound)
    if is_sound("auth") and is_sound("core") and settings.core.public_base_url is None:
        for i, issuer in enumerate(settings.auth.issuers if is_sound("auth.issuers") else ()):
            if issuer.client is not None:
                right = "core.public_base_url beside it: browsers come back to that, and /connect"
                yield Problem(f"auth.issuers[{i}].client", right)
    if is_sound("auth") and settings.auth.reads_tokens:
        yield from _passed_tokens(settings, is_sound)


def _passed_tokens(settings: Settings, is_sound: Callable[[str], bool]) -> Iterator[Problem]:
    """Refuses to hand tokens that are for this gateway on to a server.

    Source: 2026-07-28 basic/authorization, "Token Handling": "MUST NOT accept or transit any other tokens".
    """
    right = (
        "another header than Authorization, in which callers show the token for this gateway; "
        "{X-Upstream-Authorization: Authorization} passes one that is for the server"
    )
    for i, server in enumerate(settings.servers or ()):
        if server and is_sound(f"servers[{i}].upstream"):
            if any(name.lower() == AUTHORIZATION for name, _ in server.upstream.passes):
                yield Problem(f"servers[{i}].upstream.pass_headers", right)
        if server and is_sound(f"servers[{i}].forwarding"):
            if any(name.lower() == AUTHORIZATION for name in server.forwarding.allow or ()):
                yield Problem(
                    f"servers[{i}].forwarding.allow",
                    "it without Authorization, in which callers show the token for this gateway",
                )


def _secrets(path: str, secrets: Sequence[str]) -> Iterator[Problem]:
    for i, secret in enumerate(secrets):
        yield from check_secret(f"{path}[{i}]", secret)


def _core(core: Core) -> Iterator[Problem]:
    if core.public_base_url is not None:
        yield from check_url("core.public_base_url", core.public_base_url, may_query=False)
    if core.unix_socket is not None:
        yield from check_socket_path("core.unix_socket", core.unix_socket)
    elif core.port is None:
        yield Problem("core.port", "a port, or a unix_socket to listen on instead")
    if core.tls is not None:
        yield from check_path("core.tls.certificate", core.tls.certificate)
        yield from check_path("core.tls.key", core.tls.key)
        if core.port is None:
            yield Problem("core.tls", "a core.port beside it: unix_socket has no TLS")
    for i, origin in enumerate(core.allowed_origins):
        yield from check_origin(f"core.allowed_origins[{i}]", origin)
    for i, host in enumerate(core.allowed_hosts):
        yield from check_host(f"core.allowed_hosts[{i}]", host)
    for i, proxy in enumerate(core.trusted_proxies):
        yield from check_peer(f"core.trusted_proxies[{i}]", proxy)
    if core.further_upload_path is not None:
        yield from check_further_path("core.further_upload_path", core.further_upload_path)
    if core.management is not None:  # None if it could not be read
        yield from check_token("core.management.token", core.management.token)


def _tasks(tasks: Tasks) -> Iterator[Problem]:
    if tasks.ttl_seconds > tasks.max_ttl_seconds:
        right = f"at most tasks.max_ttl_seconds, which is {tasks.max_ttl_seconds:g}"
        yield Problem("tasks.ttl_seconds", right, f"is {tasks.ttl_seconds:g}")


def _id(key: str, id: str, seen: dict[str, str]) -> Iterator[Problem]:
    if re.fullmatch(ID_PATTERN, id) is None:
        right = "1 to 64 letters, digits, dots, dashes and underscores, the first a letter or digit"
        yield Problem(key, right, f"got the id {id!r}")
    if id in seen:
        yield Problem(key, f"an id of its own ({seen[id]} has this one)", f"got the id {id!r}")
    seen[id] = key


def _further_path(key: str, path: str, seen: dict[str, str]) -> Iterator[Problem]:
    yield from check_further_path(key, path)
    if path in seen:
        yield Problem(key, f"a path of its own ({seen[path]} has this one)", f"got {path!r}")
    seen.setdefault(path, key)


def _server(key: str, server: Server, is_sound: Callable[[str], bool]) -> Iterator[Problem]:
    is_inspected = server.inspect or not is_sound(f"{key}.inspect")
    if is_sound(f"{key}.upstream"):
        yield from check_upstream(f"{key}.upstream", server.upstream, is_inspected=is_inspected)
        if not is_inspected and server.upstream.command is not None:
            yield Problem(f"{key}.inspect", "false beside an upstream.url only", "got false for a command")
    if is_sound(f"{key}.forwarding"):
        yield from _forwarding(f"{key}.forwarding", server.forwarding, is_inspected=is_inspected)
    if not is_inspected:
        yield from _uninspected(key, server, is_sound)
    if is_sound(f"{key}.unix_socket") and server.unix_socket is not None:
        yield from check_socket_path(f"{key}.unix_socket", server.unix_socket)
        if not server.inspect:
            yield Problem(f"{key}.unix_socket", "none for a server with inspect: false")
    yield from check_files(key, server, is_sound)
    if is_sound(f"{key}.required_headers"):
        for i, name in enumerate(server.required_headers):
            yield from check_header_name(f"{key}.required_headers[{i}]", name)
    for kind in ("tools", "prompts", "resources"):
        if is_sound(f"{key}.{kind}"):
            yield from check_selection(f"{key}.{kind}", getattr(server, kind).selection)
    if is_sound(f"{key}.tools"):
        yield from check_shown_tools(f"{key}.tools", server.tools)
    if is_sound(f"{key}.rate_limits"):
        yield from check_rate_limits(f"{key}.rate_limits", server.rate_limits)
    if is_sound(f"{key}.tasks"):
        for tool in server.tasks.tools:
            if not tool.strip():
                yield Problem(f"{key}.tasks.tools", "names of tools, or patterns such as get_*", "got an empty one")
    if is_sound(f"{key}.upstream"):
        yield from _process(key, server)


def _uninspected(key: str, server: Server, is_sound: Callable[[str], bool]) -> Iterator[Problem]:
    """Refuses rules that `inspect: false` cannot enforce, such as filters: users would rely on them."""
    right = "none: with inspect: false nobody looks into what passes"
    for name in ("adapters", "artifact_roots", "hard_linked_roots"):
        if getattr(server, name):
            yield Problem(f"{key}.{name}", right, "got some")
    if is_sound(f"{key}.files") and server.auto_files is not None:
        yield Problem(f"{key}.files", "none with inspect: false: nobody looks into what passes", "got auto")
    for kind in ("tools", "prompts", "resources"):
        if is_sound(f"{key}.{kind}") and getattr(server, kind).selection:
            yield Problem(f"{key}.{kind}", right, "got a filter")
    if is_sound(f"{key}.tools") and shows_otherwise(server):
        yield Problem(f"{key}.tools", right, "got overrides or descriptions")
    if is_sound(f"{key}.tasks") and server.tasks != ServerTasks():
        yield Problem(f"{key}.tasks", "none with inspect: false: the server's own tasks pass as they are", "got some")
    if is_sound(f"{key}.upstream") and server.upstream.pass_headers:
        yield Problem(f"{key}.upstream.pass_headers", "none with inspect: false: forwarding.allow says what passes")
    if is_sound(f"{key}.upstream") and server.upstream.era != "auto":
        yield Problem(f"{key}.upstream.era", "auto with inspect: false: clients are not served in another era than its")
    if server.start_timeout_seconds is not None:
        yield Problem(f"{key}.start_timeout_seconds", "none with inspect: false: nobody greets the server")
    if server.tool_time_limits:
        yield Problem(f"{key}.tool_time_limits", "none with inspect: false: calls are not read")
    if server.rate_limits:
        yield Problem(f"{key}.rate_limits", "none with inspect: false: calls are not read")
    if server.cache is True:
        yield Problem(f"{key}.cache", "false with inspect: false: results are not read")


def _process(key: str, server: Server) -> Iterator[Problem]:
    """Checks `share`, `warm` and `idle_stop_seconds`, which are about the processes of a server."""
    url = next(iter(server.upstream.all_urls), None)
    if server.share == "none" and server.share_with != "caller":
        yield Problem(f"{key}.share_with", "it beside share only, and this server's is none")
    if server.share != "none" and server.has_files:
        what = "adapters" if server.adapters else "files: auto"
        yield Problem(f"{key}.share", f"none, for a server with {what}: each session has folders of its own")
    if server.share != "none" and url is not None and url.startswith(("http:", "https:")):
        yield Problem(f"{key}.share", "share beside a command only, and this server has a url")
    if url is not None:
        for name in ("warm", "idle_stop_seconds"):
            if getattr(server, name) not in ("auto", 0, None):
                yield Problem(f"{key}.{name}", f"{name} beside a command only, and this server has a url")
    if server.share != "none" and server.warm not in ("auto", 0):
        yield Problem(f"{key}.warm", "0 for a server that is shared: all sessions use one process")


def _forwarding(key: str, forwarding: Forwarding, *, is_inspected: bool) -> Iterator[Problem]:
    if is_inspected and forwarding != Forwarding():
        yield Problem(key, "it with inspect: false only", "got it for a server that is inspected")
    for kind in ("allow", "deny"):
        for i, name in enumerate(getattr(forwarding, kind) or ()):
            if HEADER_NAME.fullmatch(name) is None:  # the pattern allows a * as well
                yield Problem(f"{key}.{kind}[{i}]", "a header name, or a glob such as x-mine-*")
    found = list(check_headers(f"{key}.set", forwarding.set))
    yield from found or check_usable(f"{key}.set", "http://localhost", forwarding.set)
