"""Probes all servers of a gateway at once, and says which ones have not answered yet."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

import anyio
import msgspec

from ...transports.stdio.exit_reason import LAST_WORDS, last_words
from ..base import logs
from ..base.version import VERSION
from ..commands.check_adapters import names_tools
from ..commands.server_table import WIDTH, joined
from ..config.plan import answers_early, era_of
from ..config.settings import Server
from ..gateway import Gateway
from ..runtime.hub import Hub
from ..runtime.probe import ServerReport, probe, probe_addresses

SHOWN_EVERY_S = 1
LINE_EVERY_S = 2
"""Seconds between two lines where they cannot be overwritten in place."""
FIRST_CLIENT_S = 0.2
"""Seconds that a summary waits for a client. One that waited for the port, as after a restart, comes within a few
milliseconds."""
CLIENTS_FIRST_MAX_S = 30.0
"""Seconds that a summary waits for the servers of clients to start. Most take up to five. At it: the servers are asked
beside them."""
PROBE_TIMEOUT_S = 600.0
"""Longer than any server's own start timeout, which normally ends the wait."""


async def probe_all(service: Gateway, *, is_thorough: bool = False) -> list[ServerReport]:
    """Probes every server at once, and shows which ones have not answered yet.

    The reports contain failures, so warnings of them are kept out of the log.

    Args:
        is_thorough: probe every server in both eras, unless its configuration names one, and wait for its tools. Else
            they are waited for only if its configuration names some.
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
            needs_tools=is_thorough or names_tools(server),
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

    with without_warnings():
        async with anyio.create_task_group() as waiting:
            waiting.start_soon(_say_waiting, service, reports)
            if not is_thorough:
                await _let_clients_first(service.hub)
            async with anyio.create_task_group() as tasks:
                for server in service.settings.servers:
                    tasks.start_soon(probe_server, server)
            waiting.cancel_scope.cancel()
    return [reports[id] for id in service.server_ids]


async def _let_clients_first(hub: Hub) -> None:
    """Waits while servers start for clients. A process of ours beside theirs would make both slower."""
    with anyio.move_on_after(FIRST_CLIENT_S):
        await hub.wait_until(lambda: any(status.sessions for status in hub.engine.report()))
    with anyio.move_on_after(CLIENTS_FIRST_MAX_S):
        await hub.wait_until(
            lambda: not any(status.sessions and status.state == "starting" for status in hub.engine.report())
        )


@contextlib.contextmanager
def without_warnings() -> Iterator[None]:
    """Keeps warnings of the hub out of the log, unless that shows everything."""
    log = logging.getLogger("isthmus.hub")
    if not log.isEnabledFor(logging.DEBUG):
        log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(logging.NOTSET)


async def _say_waiting(service: Gateway, reports: dict[str, ServerReport]) -> None:
    every_s = SHOWN_EVERY_S if logs.can_overwrite() else LINE_EVERY_S
    seconds = 0
    try:
        while len(reports) < len(service.server_ids):
            await anyio.sleep(every_s)
            seconds += every_s
            waiting = [id for id in service.server_ids if id not in reports]
            if waiting:
                head, tail = "starting ", f" … {seconds} s"
                logs.show(f"{head}{joined(waiting, WIDTH - 1 - len(head) - len(tail))}{tail}")
    finally:
        logs.end_shown()
