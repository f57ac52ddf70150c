"""The command line: `isthmus serve | wrap | check | ps | start | stop | restart | tasks | files | demo | schema`."""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NoReturn, TypeVar

import anyio
import msgspec

from ..core.effects import PipeOpening
from ..transports.child_ends import LAST_WORDS, last_words
from ..transports.http_endpoint import Endpoint
from ..transports.pipe import serve_pipe
from . import banner, file_command, local_files, logs, remote, remote_tasks, screen, translations, wrapping
from .addresses import scheme_of
from .arguments import CONFIG_NAMES, TOKEN_VARIABLE, parser, why_unknown
from .config import ConfigError, load, schema
from .documents import without_credentials
from .driving import loop_of
from .errors import StartError
from .fitting import awaits_clients, misfits
from .planning import era_of
from .probe import ServerReport, probe
from .remote_files import RemoteFiles
from .service import Service, running
from .settings import Core, Management, Server, Settings
from .stopping import Stop, stoppable
from .targets import address_of, target_of
from .value_checks import check_host, check_origin, check_token
from .version import VERSION

DONE, FAILED, USAGE = 0, 1, 2
T = TypeVar("T")

WAITING_LINE_S = 2
PROBE_TIMEOUT_S = 600.0
"""A bound beyond every server's own start time limit, which is what normally ends a wait."""


_log = logging.getLogger("isthmus.cli")


def main(argv: Sequence[str] | None = None) -> NoReturn:
    screen.set_up()
    try:
        sys.exit(_run_command(argv))
    finally:
        screen.finish()  # also after `--help`


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
    except (StartError, screen.Unheard, remote.Failed) as error:
        _complain(str(error))
        return FAILED
    except KeyboardInterrupt:
        return FAILED


# --- serve and wrap -------------------------------------------------------------------------------------------------


def _serve(options: argparse.Namespace, command: list[str]) -> int:
    _no_command(command, "serve")
    settings = load(_config_path(options.config))
    logs.set_up(options.log_level or settings.core.log_level, options.log_format)
    return _run(partial(_serve_http, settings, options.trace, is_lasting=True, is_logged=True), if_stopped=DONE)


def _wrap(options: argparse.Namespace, command: list[str]) -> int:
    upstream, id = target_of(options, command)
    is_inspected = not options.no_inspect
    if options.listen == "stdio":
        if options.no_inspect:
            raise ConfigError("got --no-inspect with --listen stdio, expected it with HOST:PORT only")
        if options.allow_host or options.allow_origin:
            raise ConfigError(
                "got --allow-host or --allow-origin with --listen stdio, expected them with HOST:PORT only"
            )
        settings = wrapping.to_settings(options, upstream, id, Core(), is_inspected=True)
        is_lasting = options.storage is not None
        return _run(partial(_wrap_stdio, settings, options.trace, is_lasting=is_lasting), if_stopped=DONE)
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
        allowed_hosts=hosts,
        allowed_origins=origins,
        management=Management(token=_token(None)),
    )
    settings = wrapping.to_settings(options, upstream, id, core, is_inspected=is_inspected, unix_socket=lines_path)
    is_lasting = options.storage is not None
    work = partial(_serve_http, settings, options.trace, is_lasting=is_lasting, is_logged=False)
    return _run(work, if_stopped=DONE)


async def _serve_http(settings: Settings, trace: str | None, stop: Stop, *, is_lasting: bool, is_logged: bool) -> int:
    async with running(settings, listen=True, is_lasting=is_lasting, trace_path=trace) as service:
        reports = await _probe_all(service, is_logged=is_logged)
        try:
            screen.say(banner.listening(service, reports))
        except screen.Unheard as error:
            _log.warning("nobody sees the banner: %s", error)
        await anyio.sleep_forever()
    return DONE


async def _wrap_stdio(settings: Settings, trace: str | None, stop: Stop, *, is_lasting: bool) -> int:
    async with running(settings, listen=False, is_lasting=is_lasting, trace_path=trace) as service:
        is_stopping = anyio.Event()
        stop.order = is_stopping.set
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_drain_when, is_stopping, service, tasks.cancel_scope)
            opening = PipeOpening(server=service.server_ids[0])
            hub = service.hub
            await serve_pipe(
                hub, opening, service.limits, wait_answered=hub.wait_answered, protocols=hub.drive.protocols
            )
            tasks.cancel_scope.cancel()
    return DONE


async def _drain_when(is_stopping: anyio.Event, service: Service, scope: anyio.CancelScope) -> None:
    """Only while stdout is still served can it carry the answers of the calls in flight."""
    await is_stopping.wait()
    await service.hub.drain(service.limits.drain_s)
    await anyio.sleep(service.limits.stop_grace_s)  # for a client that does not read them
    scope.cancel()


async def _probe_all(service: Service, *, is_logged: bool, in_both_eras: bool = False) -> list[ServerReport]:
    """Ask every upstream; say what is slow to answer while it is.

    Args:
        is_logged: whether the log warns of failures, which are in the reports as well.
        in_both_eras: whether those that may have two are asked in either.
    """
    reports: dict[str, ServerReport] = {}

    async def ask(server: Server) -> None:
        if not server.inspect:
            problem = await service.forwarder.probe(server.id)
            reports[server.id] = ServerReport(id=server.id, problem=problem, is_transparent=True)
            return
        wired = [tool for adapter in server.adapters for tool in adapter.tools]
        is_asked_twice = in_both_eras and era_of(server.upstream) is None
        report = await probe(
            service.hub,
            server.id,
            VERSION,
            with_schemas=["*"] if server.auto_files is not None else wired,
            in_both_eras=is_asked_twice,
            timeout_s=PROBE_TIMEOUT_S,
        )
        stderr = service.stderr.get(server.id)
        if report.problem and stderr and LAST_WORDS not in report.problem:  # it went on running
            report = msgspec.structs.replace(report, problem=f"{report.problem}; {last_words(stderr)}")
        if report.problem and server.upstream.era != "auto":
            said = f"{report.problem}; its era is said to be {server.upstream.era}, so no other was tried"
            report = msgspec.structs.replace(report, problem=said)
        if not report.problem:
            service.tool_counts[server.id] = sum(map(server.tools.selection.admits, report.tools))
        reports[server.id] = report

    with contextlib.nullcontext() if is_logged else _without_warnings():
        async with anyio.create_task_group() as waiting:
            waiting.start_soon(_say_waiting, service, reports)
            async with anyio.create_task_group() as tasks:
                for server in service.settings.servers:
                    tasks.start_soon(ask, server)
            waiting.cancel_scope.cancel()
    return [reports[id] for id in service.server_ids]


@contextlib.contextmanager
def _without_warnings() -> Iterator[None]:
    """Whoever asked for more than warnings gets them all the same."""
    log = logging.getLogger("isthmus.hub")
    if not log.isEnabledFor(logging.INFO):
        log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(logging.NOTSET)


async def _say_waiting(service: Service, reports: dict[str, ServerReport]) -> None:
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
    path = _config_path(options.config)
    settings = load(path)
    screen.say(f"{path}: valid, {len(settings.servers)} server{'s' if len(settings.servers) != 1 else ''}")
    return _run(partial(_check_upstreams, settings), if_stopped=FAILED)


async def _check_upstreams(settings: Settings, stop: Stop) -> int:
    async with running(settings, listen=False, is_lasting=False) as service:
        reports = await _probe_all(service, is_logged=False, in_both_eras=True)
    is_good, is_translated = True, False
    for server, report in zip(settings.servers, reports, strict=True):
        crossing = translations.describe(report)
        screen.say("\n".join([*banner.describe(settings, server, report), *crossing]))
        is_translated = is_translated or bool(crossing)
        is_answered = not report.problem or awaits_clients(server, report)
        is_good = is_good and is_answered and not misfits(server, report)
    if is_translated:
        screen.say("what becomes of each thing that is not carried as it is: docs/eras.md")
    screen.say("all is wired" if is_good else "not all is wired: see above")
    return DONE if is_good else FAILED


def _demo(options: argparse.Namespace, command: list[str]) -> int:
    from .demo import demonstrate  # what it needs is needed by nothing else

    _no_command(command, "demo")
    return _run(demonstrate, if_stopped=FAILED)


def _schema(options: argparse.Namespace, command: list[str]) -> int:
    _no_command(command, "schema")
    screen.say(msgspec.json.format(msgspec.json.encode(schema()), indent=2).decode())
    return DONE


# --- A running isthmus ----------------------------------------------------------------------------------------------


def _ps(options: argparse.Namespace, command: list[str]) -> int:
    _no_command(command, "ps")
    servers = _isthmus(options).servers()
    _say_told(options, servers, remote.table)
    return DONE


def _order(options: argparse.Namespace, command: list[str]) -> int:
    _no_command(command, options.command)
    _isthmus(options).act(options.command, options.id)
    screen.say(f"{options.id} {remote.DONE[options.command]}")
    return DONE


def _tasks(options: argparse.Namespace, command: list[str]) -> int:
    _no_command(command, "tasks")
    isthmus = _isthmus(options)
    filters = {name: value for name in ("server", "status") if (value := getattr(options, name)) is not None}
    if options.verb == "list":
        _say_told(options, remote_tasks.listed(isthmus, filters), remote_tasks.table)
        return DONE
    if filters:
        raise ConfigError(
            f"got --{next(iter(filters))} with `tasks {options.verb}`, expected it with `tasks list` only"
        )
    if len(options.id) < remote.PREFIX_MIN_CHARS:
        right = f"the task's id, or at least its first {remote.PREFIX_MIN_CHARS} characters"
        raise ConfigError(f"got the id {options.id!r}, expected {right}")
    task = remote_tasks.find(isthmus, options.id)
    if options.verb == "show":
        _say_told(options, task, remote_tasks.description)
        return DONE
    told = remote_tasks.cancel(isthmus, task["id"])
    _say_told(options, told, lambda _: f"{screen.plain(task['id'])} is cancelled")
    return DONE


def _files(options: argparse.Namespace, command: list[str]) -> int:
    _no_command(command, "files")
    say_told = partial(_say_told, options)
    if options.root is None:
        is_done = file_command.run(options, RemoteFiles(_isthmus(options)), say_told)
    else:
        with local_files.held(options.root) as files:
            is_done = file_command.run(options, files, say_told)
    return DONE if is_done else FAILED


def _say_told(options: argparse.Namespace, told: T, for_people: Callable[[T], str]) -> None:
    screen.say(msgspec.json.format(msgspec.json.encode(told), indent=2).decode() if options.json else for_people(told))


def _isthmus(options: argparse.Namespace) -> remote.Isthmus:
    url = options.url
    if url.startswith("unix:") and url.strip("/") != "unix:":
        return remote.Isthmus(url, url.removeprefix("unix:"), _token(options.token))
    shown = without_credentials(url)
    if scheme_of(url) not in ("http", "https") or "?" in url:
        raise ConfigError(f"got --url {shown}, expected http(s)://HOST:PORT or unix:PATH")
    try:
        address = Endpoint(url).address()
    except ValueError as error:
        raise ConfigError(f"got --url {shown}: {error}") from error
    return remote.Isthmus(shown, address, _token(options.token))


def _token(given: str | None) -> str | None:
    token = given or os.environ.get(TOKEN_VARIABLE) or None
    for problem in check_token(TOKEN_VARIABLE if given is None else "--token", token):
        raise ConfigError(f"{problem.key}: {problem.seen}, expected {problem.expected}")
    return token


_COMMANDS: dict[str, Callable[[argparse.Namespace, list[str]], int]] = {
    "serve": _serve,
    "wrap": _wrap,
    "check": _check,
    "ps": _ps,
    "start": _order,
    "stop": _order,
    "restart": _order,
    "tasks": _tasks,
    "files": _files,
    "demo": _demo,
    "schema": _schema,
}


# --- Arguments ------------------------------------------------------------------------------------------------------


def _config_path(given: str | None) -> Path:
    if given is not None:
        return Path(given)
    for name in CONFIG_NAMES:
        if os.path.exists(name):
            return Path(name)
    raise ConfigError(f"no configuration given, and none of {', '.join(CONFIG_NAMES)} is in this folder")


def _no_command(command: list[str], name: str) -> None:
    if command:
        raise ConfigError(f"got a command after --, which `isthmus {name}` does not take")


def _run(work: Callable[[Stop], Awaitable[int]], if_stopped: int) -> int:
    try:
        return anyio.run(stoppable, work, if_stopped, **loop_of(os.environ))
    except* (StartError, screen.Unheard) as group:
        raise _first(group) from None


def _first(group: BaseExceptionGroup[Exception]) -> Exception:
    error = group.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error


def _complain(text: str) -> None:
    screen.complain(f"isthmus: {text}")


if __name__ == "__main__":
    main()
