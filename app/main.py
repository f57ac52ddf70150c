"""The command `isthmus`, loaded without the garbage collector."""

from __future__ import annotations

import gc
from typing import NoReturn


def main() -> NoReturn:
    """Run the command line. What loading makes stays: there is nothing to collect in it, now or later."""
    gc.disable()
    from .cli import cli

    gc.freeze()
    gc.enable()
    cli.main()


if __name__ == "__main__":
    main()
