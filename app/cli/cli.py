"""The command line: reads arguments, sets up the log, and runs `serve`, `wrap`, `check` and the other commands."""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import NoReturn, TypeVar

import anyio
import msgspec

from ...core.access.static_tokens import digest_of, new_token
from ...core.base.events import PipeOpening
from ...core.base.setting_names import KEYS, OPTIONS, SettingNames
from ...core.wire.http.admin_routes import ADMIN
from ...core.wire.http.header_forwarding import AUTHORIZATION
from ...transports.stdio.client import serve_pipe
from ...transports.stdio.exit_reason import LAST_WORDS, last_words
from ..base import logs, output
from ..base.errors import ConfigError, Failed, StartError
from ..base.version import VERSION
from ..commands import banner
from ..commands.check_adapters import awaits_clients, misfits, names_tools
from ..config.access import who_may
from ..config.access_settings import Token
from ..config.plan import answers_early, era_of
from ..config.profiles import profiles_of
from ..config.settings import Core, Management, Server, Settings
from ..config.value_checks import check_host, check_origin
from ..gateway import Gateway, running
from ..runtime.allocator import return_free_memory
from ..runtime.certificates import unusable_certificate
from ..runtime.event_loop import loop_of
from ..runtime.garbage_collector import collect_rarely
from ..runtime.probe import ServerReport, probe, probe_addresses
from ..runtime.signals import Stop, stoppable
from . import config_files, endpoints, wrap
from .arguments import parser, token_of, why_unknown
from .targets import address_of, targets_of

DONE, FAILED, USAGE = 0, 1, 2
T = TypeVar("T")

WAITING_LINE_S = 2
PROBE_TIMEOUT_S = 600.0
"""Longer than any server's own start timeout, which normally ends the wait."""


_log = logging.getLogger("isthmus.cli")


def main(argv: Sequence[str] | None = None) -> NoReturn:
    output.set_up()
    try:
        sys.exit(_run_command(argv))
    finally:
        output.finish()  # also after `--help`, which leaves by SystemExit


def _run_command(argv: Sequence[str] | None) -> int:
    arguments = list(sys.argv[1:] if argv is None else argv)
    command: list[str] = []
    if "--" in arguments:
        at = arguments.index("--")
        arguments, command = arguments[:at], arguments[at + 1 :]
    before = argparse.Namespace(log_level=None, log_format="text")
    options, unknown = parser().parse_known_args(arguments, before)
    if unknown:
        options.complain(why_unknown(options, unknown, arguments))
    logs.set_up(options.log_level or "warning", options.log_format)
    try:
        return _COMMANDS[options.command](options, command)
    except ConfigError as error:
        _complain(str(error))
        return USAGE
    except (StartError, output.OutputClosed, Failed) as error:
        _complain(str(error))
        return FAILED
    except KeyboardInterrupt:
        return FAILED


# --- serve and wrap -------------------------------------------------------------------------------------------------


def _serve(options: argparse.Namespace, command: list[str]) -> int:
    _no_command(command, "serve")
    endpoints.settle_stdio(options)
    settings = _answered(config_files.open_given(options).settings(), options)
    logs.set_up(options.log_level or settings.core.log_level, options.log_format)
    given = () if options.config is None else (options.config,)

    def login_command(id: str) -> tuple[str, ...]:
        return ("isthmus", "login", *given, id)

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
        return _run(work, if_stopped=DONE)
    work = partial(
        _serve_http,
        settings,
        options.trace,
        is_lasting=True,
        shown=endpoints.endpoint_of_all(settings) if options.all else "",
        is_logged=True,
        is_quiet=options.quiet_start,
        login_command=login_command,
    )
    return _run(work, if_stopped=DONE)


def _wrap(options: argparse.Namespace, command: list[str]) -> int:
    targets = targets_of(options, command)
    is_inspected = not options.no_inspect
    if options.listen == "stdio":
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
        settings = wrap.to_settings(options, targets, core, is_inspected=True)
        is_lasting = options.storage is not None
        work = partial(
            _serve_stdio,
            settings,
            endpoints.endpoint_of_all(settings),
            options.trace,
            is_lasting=is_lasting,
            names=OPTIONS,
            login_of=partial(wrap.login_of, opens=options.open, is_stdio=True),
        )
        return _run(work, if_stopped=DONE)
    host, port, path, is_lines = address_of(options.listen)
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
        management=Management(token=token_of(None)),
    )
    settings = wrap.to_settings(options, targets, core, is_inspected=is_inspected, unix_socket=lines_path)
    is_lasting = options.storage is not None
    settings, token = _closed(_answered(settings, options))
    work = partial(
        _serve_http,
        settings,
        options.trace,
        is_lasting=is_lasting,
        shown=endpoints.endpoint_of_all(settings) if len(targets) > 1 else "",
        is_logged=False,
        is_quiet=options.quiet_start,
        token=token,
        names=OPTIONS,
        login_of=partial(wrap.login_of, opens=options.open, is_stdio=False),
    )
    return _run(work, if_stopped=DONE)


def _answered(settings: Settings, options: argparse.Namespace) -> Settings:
    """Returns the settings with what the options say about callers who are not recognised."""
    if not options.allow_anonymous:
        return settings
    return msgspec.structs.replace(settings, auth=msgspec.structs.replace(settings.auth, anonymous="allow"))


def _closed(settings: Settings) -> tuple[Settings, str]:
    """Lets only a token into a wrapped server that other machines reach, unless the settings say who may call.

    Returns the settings, and the token: that of the environment, or one that is made now; "" if none is asked for.
    """
    if not who_may(settings):
        return settings, ""
    if any(AUTHORIZATION in map(str.lower, pair) for pair in settings.servers[0].upstream.passes):
        raise ConfigError(
            f"got --pass-header Authorization with {settings.core.host}, which other machines reach: that header holds "
            "the token for isthmus itself there, so expected --allow-anonymous too, for a server that asks its callers"
        )
    token = token_of(None) or new_token(os.urandom)
    entry = Token(name="wrap", sha256=digest_of(token).hex(), groups=(ADMIN,))
    auth = msgspec.structs.replace(settings.auth, tokens=(entry,))
    management = msgspec.structs.replace(settings.core.management, token=None)
    core = msgspec.structs.replace(settings.core, management=management)
    return msgspec.structs.replace(settings, auth=auth, core=core), token


async def _serve_http(
    settings: Settings,
    trace: str | None,
    stop: Stop,
    *,
    is_lasting: bool,
    is_logged: bool,
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
            reports = await _probe_all(service, is_logged=is_logged)
        try:
            output.say(banner.listening(service, reports, is_wrapped=names is OPTIONS, shown=shown, token=token))
        except output.OutputClosed as error:
            _log.warning("nobody sees the banner: %s", error)
        collect_rarely()
        async with anyio.create_task_group() as tasks:
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


async def _probe_all(service: Gateway, *, is_logged: bool, is_thorough: bool = False) -> list[ServerReport]:
    """Probes every server at once, and prints which ones have not answered yet every `WAITING_LINE_S`.

    Args:
        is_logged: if false, warnings of failures, which the reports contain as well, are kept out of the log.
        is_thorough: list the tools of every server, and probe it in both eras, unless its configuration names one. Else
            a server is asked for its handshake, and for its tools only if its configuration names some.
    """
    reports: dict[str, ServerReport] = {}

    async def probe_server(server: Server) -> None:
        if not server.inspect:
            problem = await service.forwarder.probe(server.id)
            reports[server.id] = ServerReport(id=server.id, problem=problem, is_transparent=True)
            return
        wired = [tool for adapter in server.adapters for tool in adapter.tools]
        is_asked_twice = is_thorough and era_of(server.upstream) is None
        report = await probe(
            service.hub,
            server.id,
            VERSION,
            lists_tools=is_thorough or names_tools(server),
            with_schemas=["*"] if server.auto_files is not None else wired,
            is_brief=not is_thorough,
            in_both_eras=is_asked_twice,
            learns_lists=not is_thorough and answers_early(server),
            timeout_s=PROBE_TIMEOUT_S,
        )
        if is_thorough and server.upstream.urls is not None:
            addresses = await probe_addresses(service.hub, server.id, VERSION, timeout_s=PROBE_TIMEOUT_S)
            report = msgspec.structs.replace(report, addresses=addresses)
        stderr = service.stderr.get(server.id)
        if report.problem and stderr and LAST_WORDS not in report.problem:  # its process went on running
            report = msgspec.structs.replace(report, problem=f"{report.problem}; {last_words(stderr)}")
        if report.problem and server.upstream.era != "auto":
            problem = f"{report.problem}; its era is said to be {server.upstream.era}, so no other was tried"
            report = msgspec.structs.replace(report, problem=problem)
        if report.tools is not None:
            service.tool_counts[server.id] = sum(map(server.tools.selection.admits, report.tools))
        reports[server.id] = report

    with contextlib.nullcontext() if is_logged else _without_warnings():
        async with anyio.create_task_group() as waiting:
            waiting.start_soon(_say_waiting, service, reports)
            async with anyio.create_task_group() as tasks:
                for server in service.settings.servers:
                    tasks.start_soon(probe_server, server)
            waiting.cancel_scope.cancel()
    return [reports[id] for id in service.server_ids]


@contextlib.contextmanager
def _without_warnings() -> Iterator[None]:
    """Keeps warnings of the hub out of the log, unless its level shows more than warnings anyway."""
    log = logging.getLogger("isthmus.hub")
    if not log.isEnabledFor(logging.INFO):
        log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(logging.NOTSET)


async def _say_waiting(service: Gateway, reports: dict[str, ServerReport]) -> None:
    seconds = 0
    while len(reports) < len(service.server_ids):
        await anyio.sleep(WAITING_LINE_S)
        seconds += WAITING_LINE_S
        waiting = [id for id in service.server_ids if id not in reports]
        if waiting:
            logs.say(f"starting {', '.join(waiting)} … {seconds} s")


# --- check, demo, schema --------------------------------------------------------------------------------------------


def _check(options: argparse.Namespace, command: list[str]) -> int:
    _no_command(command, "check")
    source = config_files.open_given(options)
    if source.title:
        output.say(f"{source.path}: taken for a file of {source.title}")
    settings = source.settings()
    for note in source.notes:
        output.say(f"  {note}")
    output.say(f"{source.path}: valid, {len(settings.servers)} server{'s' if len(settings.servers) != 1 else ''}")
    return _run(partial(_check_upstreams, settings), if_stopped=FAILED)


async def _check_upstreams(settings: Settings, stop: Stop) -> int:
    from ..commands import describe_eras, describe_profiles  # late: only `check` needs them

    waiting = tuple(
        msgspec.structs.replace(profile, list_wait_seconds=PROBE_TIMEOUT_S) for profile in profiles_of(settings)
    )
    profile_lines: list[str] = []
    async with running(msgspec.structs.replace(settings, profiles=waiting), listen=False, is_lasting=False) as service:
        reports = await _probe_all(service, is_logged=False, is_thorough=True)
        with _without_warnings():
            for profile in profiles_of(settings):
                profile_lines += await describe_profiles.describe(service.hub, settings, profile, reports)
        problems = await service.issuer_problems()
    is_good, is_translated = True, False
    for problem in filter(None, (who_may(settings), unusable_certificate(settings), *problems)):
        output.say(f"WARNING {problem}")
        is_good = False
    for server, report in zip(settings.servers, reports, strict=True):
        era_lines = describe_eras.describe(report)
        output.say("\n".join([*banner.describe(settings, server, report), *era_lines]))
        is_translated = is_translated or bool(era_lines)
        is_answered = not report.problem or awaits_clients(server, report)
        is_reached = all(address.state != "ill" for address in report.addresses)
        is_good = is_good and is_answered and is_reached and not misfits(server, report)
    for line in profile_lines:
        output.say(line)
    if is_translated:
        output.say("what becomes of each thing that is not carried as it is: docs/eras.md")
    output.say("all is wired" if is_good else "not all is wired: see above")
    return DONE if is_good else FAILED


def _convert(options: argparse.Namespace, command: list[str]) -> int:
    from .convert import convert  # late: only this command writes YAML

    _no_command(command, "convert")
    convert(options)
    return DONE


def _demo(options: argparse.Namespace, command: list[str]) -> int:
    from ..commands.demo import demonstrate  # late: its imports would slow every other command

    _no_command(command, "demo")
    return _run(demonstrate, if_stopped=FAILED)


def _conform(options: argparse.Namespace, command: list[str]) -> int:
    from ..conform.command import conform  # late: its imports would slow every other command

    return DONE if conform(options, command) else FAILED


def _replay(options: argparse.Namespace, command: list[str]) -> int:
    from .replay import replay  # late: its imports would slow every other command

    return DONE if replay(options, command) else FAILED


def _vendor(options: argparse.Namespace, command: list[str]) -> int:
    from ..commands.vendor import vendor, verify  # late: no other command needs them

    _no_command(command, "vendor")
    if not options.verify:
        vendor(options.folder, without=options.without)
        return DONE
    if options.without is not None:
        raise ConfigError("got --without with --verify, expected it when a copy is made")
    return DONE if verify(options.folder) else FAILED


def _check_driver(options: argparse.Namespace, command: list[str]) -> int:
    from ..driver_checks.command import check_driver  # late: no other command needs it

    _no_command(command, "check-driver")
    return DONE if check_driver(options) else FAILED


def _token(options: argparse.Namespace, command: list[str]) -> int:
    from ..commands import tokens  # late: no other command needs it

    _no_command(command, "token")
    tokens.new(options)
    return DONE


def _pin(options: argparse.Namespace, command: list[str]) -> int:
    from ..commands.pins import pin  # late: no other command needs it

    _no_command(command, "pin")
    settings = config_files.open_given(options).settings()

    async def work(stop: Stop) -> int:
        return DONE if await pin(settings, shows_diff=options.diff, approved=options.approve) else FAILED

    return _run(work, if_stopped=FAILED)


def _schema(options: argparse.Namespace, command: list[str]) -> int:
    _no_command(command, "schema")
    from ..config.load import schema  # late: `wrap` reads no file

    output.say_json(schema())
    return DONE


def _ask_running(options: argparse.Namespace, command: list[str]) -> int:
    from .remote import answer  # late: a proxy needs no HTTP client of the standard library

    _no_command(command, options.command)
    return DONE if answer(options) else FAILED


def _login(options: argparse.Namespace, command: list[str]) -> int:
    from . import login  # late: no other command needs it

    _no_command(command, "login")
    return _run(login.log_in(options), if_stopped=FAILED)


def _logout(options: argparse.Namespace, command: list[str]) -> int:
    from . import login  # late: no other command needs it

    _no_command(command, "logout")
    return _run(login.log_out(options), if_stopped=FAILED)


def _auth(options: argparse.Namespace, command: list[str]) -> int:
    from . import login  # late: no other command needs it

    _no_command(command, "auth")
    if options.verb == "revoke":
        return _ask_running(options, command)
    return _run(login.look_after_logins(options), if_stopped=FAILED)


_COMMANDS: dict[str, Callable[[argparse.Namespace, list[str]], int]] = {
    "serve": _serve,
    "wrap": _wrap,
    "check": _check,
    "convert": _convert,
    "ps": _ask_running,
    "start": _ask_running,
    "stop": _ask_running,
    "restart": _ask_running,
    "tasks": _ask_running,
    "files": _ask_running,
    "conform": _conform,
    "replay": _replay,
    "token": _token,
    "pin": _pin,
    "vendor": _vendor,
    "check-driver": _check_driver,
    "demo": _demo,
    "schema": _schema,
    "login": _login,
    "logout": _logout,
    "auth": _auth,
}


# --- Arguments ------------------------------------------------------------------------------------------------------


def _no_command(command: list[str], name: str) -> None:
    if command:
        raise ConfigError(f"got a command after --, which `isthmus {name}` does not take")


def _run(work: Callable[[Stop], Awaitable[int]], if_stopped: int) -> int:
    try:
        return anyio.run(stoppable, work, if_stopped, **loop_of(os.environ))
    except* (ConfigError, StartError, Failed, output.OutputClosed) as group:
        raise _first(group) from None


def _first(group: BaseExceptionGroup[Exception]) -> Exception:
    error = group.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error


def _complain(text: str) -> None:
    output.complain(f"isthmus: {text}")


if __name__ == "__main__":
    main()
