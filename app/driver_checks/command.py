"""The command `isthmus check-driver`."""

from __future__ import annotations

import argparse
import importlib
import sys

from ..base import output
from ..base.errors import ConfigError
from .checks import CHECKS
from .run import Verdict, run
from .target import Start


def check_driver(options: argparse.Namespace) -> bool:
    """Plays the chosen checks, and prints each result. True if none is broken.

    Raises:
        ConfigError: there is no such check, or no such function.
    """
    names = [check.name for check in CHECKS]
    for name in options.check:
        if name not in names:
            raise ConfigError(f"got the check {name}, expected some of {', '.join(names)}")
    start = _start_of(options.start)
    is_kept = True
    for outcome in run(start, [check for check in CHECKS if not options.check or check.name in options.check]):
        is_kept = is_kept and outcome.verdict is not Verdict.BROKEN
        output.say(str(outcome))
    return is_kept


def _start_of(where: str) -> Start:
    module, _, name = where.partition(":")
    if not module or not name:
        raise ConfigError(f"got {where}, expected MODULE:FUNCTION")
    sys.path.insert(0, "")  # as `python -m` does: the module stands in this folder, most likely
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ConfigError(f"got {where}, expected a module that can be imported from this folder: {error}") from error
    start: Start | None = getattr(found, name, None)
    if not callable(start):
        raise ConfigError(f"got {where}, expected a function of {module}")
    return start
