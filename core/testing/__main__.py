"""Checks a driver from the command line: `python -m acme.mcp_engine.testing MODULE:START [CHECK …]`."""

import importlib
import sys

from .checks import CHECKS
from .run import Verdict, run


def main() -> int:
    where, *names = sys.argv[1:] or [""]
    module, _, name = where.partition(":")
    known = [check.name for check in CHECKS]
    if not module or not name or not set(names) <= set(known):
        print(f"usage: MODULE:START [CHECK …], where a check is one of {', '.join(known)}", file=sys.stderr)
        return 2
    start = getattr(importlib.import_module(module), name)
    is_broken = False
    for outcome in run(start, [check for check in CHECKS if not names or check.name in names]):
        is_broken = is_broken or outcome.verdict is Verdict.BROKEN
        print(outcome, flush=True)
    return int(is_broken)


if __name__ == "__main__":
    sys.exit(main())
