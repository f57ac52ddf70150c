"""The command `isthmus`, loaded with the garbage collector off.

Loading makes many objects and no garbage, so collections meanwhile only cost time. They are skipped, and the objects
are frozen, so later collections skip them too. `isthmus --version` loads next to nothing.
"""

from __future__ import annotations

import gc
import sys
from typing import NoReturn


def main() -> NoReturn:
    """Loads and runs the command line. Never returns."""
    gc.disable()
    if sys.argv[1:] == ["--version"]:
        from .cli import version

        version.main()
        sys.exit()
    from .cli import cli

    gc.freeze()
    gc.enable()
    cli.main()


if __name__ == "__main__":
    main()
