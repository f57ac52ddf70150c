"""The command `check`: validates a configuration, and asks every server of it."""

from __future__ import annotations

import argparse
import shlex
from functools import partial

import msgspec

from ..base import output
from ..commands.check_adapters import awaits_clients, misfits
from ..config.access import shared_address, who_may
from ..config.profiles import profiles_of
from ..config.settings import Settings
from ..gateway import running
from ..runtime.certificates import unusable_certificate
from ..runtime.signals import Stop
from . import config_files
from .probe_servers import PROBE_TIMEOUT_S, probe_all, without_warnings
from .run import DONE, FAILED, no_command, run


def check(options: argparse.Namespace, command: list[str]) -> int:
    no_command(command, "check")
    source = config_files.open_given(options)
    if source.title:
        output.say(f"{source.path}: taken for a file of {source.title}")
    settings = source.settings()
    for note in source.notes:
        output.say(f"  {note}")
    output.say(f"{source.path}: valid, {len(settings.servers)} server{'s' if len(settings.servers) != 1 else ''}")
    path = "" if options.config is None else shlex.quote(options.config)
    return run(partial(_check_upstreams, settings, path, options.eras), if_stopped=FAILED)


async def _check_upstreams(settings: Settings, path: str, with_eras: bool, stop: Stop) -> int:
    from ..cluster.taken import taken_by
    from ..commands import check_screen, describe_profiles, describe_stores  # late: only `check` needs them
    from ..stores.report import examine

    waiting = tuple(
        msgspec.structs.replace(profile, list_wait_seconds=PROBE_TIMEOUT_S) for profile in profiles_of(settings)
    )
    profile_lines: list[str] = []
    async with running(msgspec.structs.replace(settings, profiles=waiting), listen=False, is_lasting=False) as service:
        reports = await probe_all(service, is_thorough=True)
        with without_warnings():
            for profile in profiles_of(settings):
                profile_lines += ["", *await describe_profiles.describe(service.hub, settings, profile, reports)]
        problems = await service.issuer_problems()
    stores = await examine(settings.storage)
    is_good = has_stores = all(store.is_usable for store in stores)
    for server, report in zip(settings.servers, reports, strict=True):
        is_answered = not report.problem or awaits_clients(server, report)
        is_reached = all(address.state != "ill" for address in report.addresses)
        is_good = is_good and is_answered and is_reached and not misfits(server, report)
    problems = [one for one in (who_may(settings), unusable_certificate(settings), *problems) if one]
    is_good = is_good and not problems
    problems += [shared] if (shared := shared_address(settings)) else []
    warned = check_screen.all_warnings(settings.servers, reports, problems) + describe_stores.warnings(stores)
    holder = await taken_by(settings) if has_stores else ""
    store_lines = [*describe_stores.lines_of(stores), *([holder] if holder else [])]
    lines = [
        "",
        *store_lines,
        *([""] if store_lines else []),
        *check_screen.lines_of(settings, settings.servers, reports, path, with_eras=with_eras),
        *profile_lines,
        "",
    ]
    lines += [*warned, ""] if warned else []
    lines += check_screen.ending(path, reports, is_good=is_good, with_eras=with_eras)
    output.say("\n".join(lines), check_screen.painted)
    return DONE if is_good else FAILED
