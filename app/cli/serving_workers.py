"""`isthmus serve --workers N`: the supervisor, and each of its workers."""

from __future__ import annotations

import argparse
import logging
import socket
import sys
from functools import partial

import anyio

from ...core.base.setting_names import KEYS
from ..base import logs, output
from ..base.errors import ConfigError, StartError
from ..commands import banner
from ..commands.server_table import painted
from ..config.access import who_may
from ..config.settings import Settings
from ..gateway import running
from ..runtime.allocator import return_free_memory
from ..runtime.certificates import listener_certificate
from ..runtime.garbage_collector import collect_rarely
from ..runtime.probe import ServerReport
from ..runtime.signals import Stop
from ..workers.messages import Probed, Serving
from ..workers.supervisor import Supervisor
from ..workers.worker import Worker
from . import config_files, endpoints
from .probe_servers import probe_all
from .run import DONE, run
from .serving_settings import login_command_of, settled
from .stopping import stop_in_order

_log = logging.getLogger("isthmus.cli")


def serve_workers(options: argparse.Namespace) -> int:
    """Runs the supervisor."""
    if options.stdio is not None:
        raise ConfigError("got --workers with --stdio, which serves one client, expected one of them")
    if options.trace is not None:
        raise ConfigError("got --trace with --workers, expected one of them: a trace is of one process")
    source = config_files.open_given(options)
    settings = _checked(settled(source.settings(), options))
    logs.set_up(options.log_level or settings.core.log_level, options.log_format)
    for note in source.notes:
        logs.say(f"{source.path}: {note}")

    def reread() -> Settings:
        again = config_files.open_again(source.path, options)
        return _checked(settled(again.settings(), options))

    supervisor = Supervisor(
        settings, reread, count=options.workers, arguments=sys.argv[1:], show=_show, storage_name=KEYS.storage
    )

    async def work(stop: Stop) -> int:
        await supervisor.run(stop)
        return DONE

    return run(work, if_stopped=DONE)


def serve_worker(options: argparse.Namespace, channel: socket.socket) -> int:
    """Runs one worker."""
    try:
        worker = Worker(channel)
    except EOFError as error:
        raise StartError(str(error)) from None
    level = options.log_level or worker.handover.settings.core.log_level
    logs.set_up(level, options.log_format, worker=worker.tag)
    return run(partial(_serve, options, worker), if_stopped=DONE)


async def _serve(options: argparse.Namespace, worker: Worker, stop: Stop) -> int:
    settings = worker.handover.settings
    async with anyio.create_task_group() as tasks:
        async with running(
            settings,
            listen=True,
            is_lasting=True,
            login_command=login_command_of(options),
            worker=worker,
        ) as service:
            await worker.tell(Serving())
            if worker.handover.probes:
                if options.quiet_start:
                    reports = [
                        ServerReport(id=server.id, is_unasked=True, is_transparent=not server.inspect)
                        for server in settings.servers
                    ]
                else:
                    reports = await probe_all(service)
                shown = endpoints.endpoint_of_all(settings) if options.all else ""
                count = worker.handover.count
                screen = banner.listening(service, reports, is_wrapped=False, shown=shown, workers=count)
                await worker.tell(Probed(screen))
            collect_rarely()
            tasks.start_soon(return_free_memory)
            async with anyio.create_task_group() as serving:
                serving.start_soon(stop_in_order, stop, service, serving.cancel_scope)
                if await worker.wait_retired():
                    await service.retire()
                serving.cancel_scope.cancel()
        tasks.cancel_scope.cancel()
    return DONE


def _checked(settings: Settings) -> Settings:
    """Returns the settings if workers can start with them.

    Raises:
        ConfigError, StartError: they cannot.
    """
    if problem := who_may(settings):
        raise StartError(problem)
    if settings.ui.listen is not None:
        raise ConfigError("got --workers and a live page (--ui, ui.listen), expected one of them: it shows one process")
    listener_certificate(settings)
    return settings


def _show(screen: str) -> None:
    try:
        output.say(screen, painted)
    except output.OutputClosed as error:
        _log.warning("nobody sees the banner: %s", error)
