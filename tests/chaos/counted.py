"""The `isthmus` command, which on SIGUSR1 appends a measurement of its memory to the file `$LC_FIGURES`.

The measurement is a line of JSON: Python's allocated blocks after a garbage collection, and the resident bytes after
the C library has returned free memory.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import signal
import sys
from pathlib import Path

from isthmus.app.cli.cli import main


def count(number: int, frame: object) -> None:
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    with open(os.environ["LC_FIGURES"], "a") as file:
        file.write(json.dumps({"blocks": sys.getallocatedblocks(), "bytes": resident}) + "\n")


signal.signal(signal.SIGUSR1, count)
sys.exit(main())
