"""The commands that serve clients: `serve` and `wrap`."""

from __future__ import annotations

import argparse
import logging
import os
from collections.abc import Callable
from functools import partial

import anyio
import msgspec

from ...core.access.static_tokens import digest_of, new_token
from ...core.base.events import PipeOpening
from ...core.base.setting_names import KEYS, OPTIONS, OPTIONS_OF_SEVERAL, SettingNames
from ...core.wire.http.admin_routes import ADMIN
from ...core.wire.http.header_forwarding import AUTHORIZATION
from ...transports.stdio.client import serve_pipe
from ..base import logs, output
from ..base.errors import ConfigError
from ..commands import banner
from ..commands.server_table import painted
from ..config.access import who_may
from ..config.access_settings import Token
from ..config.settings import Core, Management, Settings
from ..config.value_checks import check_host, check_origin
from ..gateway import Gateway, running
from ..runtime.allocator import return_free_memory
from ..runtime.garbage_collector import collect_rarely
from ..runtime.probe import ServerReport
from ..runtime.signals import Stop
from ..workers.worker import own_channel
from . import config_files, endpoints, wrap
from .arguments import token_of
from .listen_options import STDIO, address_of, given
from .probe_servers import probe_all
from .run import DONE, no_command, run
from .serving_settings import answered, login_command_of, settled, with_ui
from .serving_workers import serve_worker, serve_workers
from .stopping import stop_in_order
from .targets import targets_of

_log = logging.getLogger("isthmus.cli")


def serve(options: argparse.Namespace, command: list[str]) -> int:
    no_command(command, "serve")
    channel = own_channel()
    if channel is not None:
        return serve_worker(options, channel)
    endpoints.settle_stdio(options)
    if options.stdio is not None and (names := given(options)):
        raise ConfigError(f"got {names[0]} with --stdio, with which nothing listens, expected one of them")
    if options.workers is not None:
        return serve_workers(options)
    source = config_files.open_given(options)
    settings = source.settings()
    if options.stdio is not None:
        # Clients start several of these beside each other, and each page needs an address of its own.
        settings = msgspec.structs.replace(settings, ui=msgspec.structs.replace(settings.ui, listen=None))
    settings = settled(settings, options)
    # A client that starts a command may show its stderr to people: lines of requests are there if they are asked for.
    requests = None if options.stdio is None or options.log_level is not None else False
    logs.set_up(options.log_level or settings.core.log_level, options.log_format, requests=requests)
    for note in source.notes:
        logs.say(f"{source.path}: {note}")
    login_command = login_command_of(options)
    if options.stdio is not None:
        work = partial(
            _serve_stdio,
            settings,
            endpoints.endpoint_on_stdio(settings, options.stdio),
            options.trace,
            is_lasting=False,  # several clients may each start one of these, beside a gateway of the same file
            names=KEYS,
            login_command=login_command,
        )
        return run(work, if_stopped=DONE)
    work = partial(
        _serve_http,
        settings,
        options.trace,
        is_lasting=True,
        shown=endpoints.endpoint_of_all(settings) if options.all else "",
        is_quiet=options.quiet_start,
        login_command=login_command,
    )
    return run(work, if_stopped=DONE)


def serve_wrapped(options: argparse.Namespace, command: list[str]) -> int:
    targets = targets_of(options, command)
    names = OPTIONS if len(targets) == 1 else OPTIONS_OF_SEVERAL
    is_inspected = not options.no_inspect
    if options.listen == STDIO and given(options):
        if options.no_inspect:
            raise ConfigError("got --no-inspect with --listen stdio, expected it with HOST:PORT only")
        if options.allow_host or options.allow_origin:
            raise ConfigError(
                "got --allow-host or --allow-origin with --listen stdio, expected them with HOST:PORT only"
            )
        if options.pass_header:
            raise ConfigError("got --pass-header with --listen stdio, expected it with HOST:PORT only")
        wrap.tls_of(options, has_port=False)
        core = Core(max_request_bytes=options.max_request_bytes)
        settings = with_ui(wrap.to_settings(options, targets, core, is_inspected=True), options)
        is_lasting = options.storage is not None
        work = partial(
            _serve_stdio,
            settings,
            endpoints.endpoint_of_all(settings),
            options.trace,
            is_lasting=is_lasting,
            names=names,
            login_of=partial(wrap.login_of, opens=options.open, is_stdio=True),
        )
        return run(work, if_stopped=DONE)
    if options.log_level is None:
        logs.set_up("warning", options.log_format, requests=True)
    host, port, path, is_lines = address_of(options)
    hosts, origins = tuple(options.allow_host), tuple(options.allow_origin)
    for option, check, values in (("host", check_host, hosts), ("origin", check_origin, origins)):
        for value in values:
            for problem in check(f"--allow-{option}", value):
                raise ConfigError(f"got {problem.key} {value!r}, expected {problem.expected}")
    http_path, lines_path = (None, path) if is_lines else (path, None)
    core = Core(
        host=host,
        port=port,
        unix_socket=http_path,
        tls=wrap.tls_of(options, has_port=port is not None),
        allowed_hosts=hosts,
        allowed_origins=origins,
        max_request_bytes=options.max_request_bytes,
        shutdown_delay_seconds=0.0,
        management=Management(token=token_of(None)),
    )
    settings = wrap.to_settings(options, targets, core, is_inspected=is_inspected, unix_socket=lines_path)
    is_lasting = options.storage is not None
    settings, token = _closed(answered(settings, options))
    settings = with_ui(settings, options)
    work = partial(
        _serve_http,
        settings,
        options.trace,
        is_lasting=is_lasting,
        shown=endpoints.endpoint_of_all(settings) if len(targets) > 1 else "",
        is_quiet=options.quiet_start,
        token=token,
        names=names,
        login_of=partial(wrap.login_of, opens=options.open, is_stdio=False),
    )
    return run(work, if_stopped=DONE)


def _closed(settings: Settings) -> tuple[Settings, str]:
    """Lets only a token into a wrapped server that other machines reach, unless the settings say who may call.

    Returns the settings, and the token if one is made now; "" if the environment has it, or none is asked for.
    """
    if not who_may(settings):
        return settings, ""
    if any(AUTHORIZATION in map(str.lower, pair) for pair in settings.servers[0].upstream.passes):
        raise ConfigError(
            f"got --pass-header Authorization with {settings.core.host}, which other machines reach: that header holds "
            "the token for isthmus itself there, so expected --allow-anonymous too, for a server that asks its callers"
        )
    known = token_of(None)
    token = known or new_token(os.urandom)
    entry = Token(name="wrap", sha256=digest_of(token).hex(), groups=(ADMIN,))
    auth = msgspec.structs.replace(settings.auth, tokens=(entry,))
    management = msgspec.structs.replace(settings.core.management, token=None)
    core = msgspec.structs.replace(settings.core, management=management)
    return msgspec.structs.replace(settings, auth=auth, core=core), "" if known else token


async def _serve_http(
    settings: Settings,
    trace: str | None,
    stop: Stop,
    *,
    is_lasting: bool,
    is_quiet: bool,
    shown: str = "",
    token: str = "",
    names: SettingNames = KEYS,
    login_command: Callable[[str], tuple[str, ...]] = lambda id: ("isthmus", "login", id),
    login_of: Callable[[Settings], wrap.WrapLogin] | None = None,
) -> int:
    """Serves all servers over HTTP. `shown`: the endpoint that the banner shows alone; "": it shows all."""
    login = None if login_of is None else login_of(settings)
    async with running(
        settings,
        listen=True,
        is_lasting=is_lasting,
        trace_path=trace,
        names=names,
        login_command=login_command,
        tokens=None if login is None else login.tokens,
    ) as service:
        if service.certificate is not None:
            stop.reload = service.certificate.reload
        if is_quiet:
            reports = [
                ServerReport(id=server.id, is_unasked=True, is_transparent=not server.inspect)
                for server in settings.servers
            ]
        else:
            reports = await probe_all(service)
        try:
            screen = banner.listening(service, reports, is_wrapped=names is not KEYS, shown=shown, token=token)
            output.say(screen, painted)
        except output.OutputClosed as error:
            _log.warning("nobody sees the banner: %s", error)
        collect_rarely()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stop_in_order, stop, service, tasks.cancel_scope)
            if login is not None:
                tasks.start_soon(login.open_browser)
            await return_free_memory()
    return DONE


async def _serve_stdio(
    settings: Settings,
    endpoint: str,
    trace: str | None,
    stop: Stop,
    *,
    is_lasting: bool,
    names: SettingNames,
    login_command: Callable[[str], tuple[str, ...]] = lambda id: ("isthmus", "login", id),
    login_of: Callable[[Settings], wrap.WrapLogin] | None = None,
) -> int:
    """Serves one client on stdin and stdout, with the server or profile `endpoint`."""
    login = None if login_of is None else login_of(settings)
    async with running(
        settings,
        listen=False,
        is_lasting=is_lasting,
        trace_path=trace,
        names=names,
        login_command=login_command,
        tokens=None if login is None else login.tokens,
    ) as service:
        if service.page_url:
            logs.say(f"what crosses is shown at {service.page_url}")
        collect_rarely()
        is_stopping = anyio.Event()
        stop.order = is_stopping.set
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_drain_when, is_stopping, service, tasks.cancel_scope)
            tasks.start_soon(return_free_memory)
            if login is not None:
                tasks.start_soon(login.open_browser)
            opening = PipeOpening(server=endpoint)
            hub = service.hub
            await serve_pipe(
                hub, opening, service.limits, wait_answered=hub.wait_answered, protocols=hub.drive.protocols
            )
            tasks.cancel_scope.cancel()
    return DONE


async def _drain_when(is_stopping: anyio.Event, service: Gateway, scope: anyio.CancelScope) -> None:
    """Drains once `is_stopping` is set, while stdout is still served: it carries the responses in flight."""
    await is_stopping.wait()
    await service.hub.drain(service.limits.drain_s)
    await anyio.sleep(service.limits.stop_grace_s)  # for a client that is slow to read them
    scope.cancel()
