"""Prepares the Python that a run measures with: `python bench/interpreter.py [PYTHON]` prints its path.

Without an argument that is this interpreter. Another one gets an environment of its own below `build/`, with the
product and its `fast` extra. The speed of an interpreter depends on its build more than on its version, so a report
names both, and the time of a calibration loop that uses nothing of the product.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import time
from pathlib import Path
from typing import Any, Final

from programs import BUILD, ROOT

LOOPS: Final = 15
"""The number of timed loops. The fastest counts, because other load has slowed the others."""
STEPS: Final = 40_000


def prepared(python: str) -> Path:
    """Returns the path of an interpreter like `python`, a path or a command, that can run the product.

    Raises:
        FileNotFoundError: there is no such command.
        subprocess.CalledProcessError: it has no `venv`, or an installation failed, as printed.
    """
    found = shutil.which(python)
    if found is None:
        raise FileNotFoundError(f"got {python!r}, expected an interpreter's path or command")
    code = "import sys; print('%d.%d' % sys.version_info[:2], sys.base_prefix)"
    output = subprocess.run([found, "-c", code], capture_output=True, text=True, check=True).stdout
    version, _, prefix = output.strip().partition(" ")
    folder = BUILD / f"venv-{version}-{hashlib.sha256(prefix.encode()).hexdigest()[:8]}"
    made = folder / "installed"
    sources = (ROOT / "pyproject.toml", Path(__file__))
    if not made.exists() or any(made.stat().st_mtime < source.stat().st_mtime for source in sources):
        print(f"setting up {found} in {folder} …", file=sys.stderr, flush=True)
        # An incomplete environment is set up again; of two runs that set one up at once, the later one gets it right.
        subprocess.run([found, "-m", "venv", "--clear", folder], stdout=sys.stderr, check=True)
        pip = [folder / "bin/python", "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        subprocess.run([*pip, "-e", f"{ROOT}[fast,auth,s3]"], stdout=sys.stderr, check=True)
        made.touch()
    return folder / "bin/python"


def description() -> dict[str, Any]:
    """Returns the version of this interpreter, its origin, what is known of its build, and its speed."""
    return {
        "version": f"{platform.python_implementation()} {platform.python_version()}",
        "from": sys.base_prefix.replace(os.path.expanduser("~"), "~", 1),
        "says_optimised": says_optimised(sysconfig.get_config_vars()),
        "loop_ms": loop_ms(),
    }


def says_optimised(variables: dict[str, Any]) -> bool:
    """True if the interpreter's configuration says that it was built with profile-guided optimisation.

    It does if `configure` was given that option. A distribution may do the same by its own build rules, as Debian does;
    then only the time of the loop shows it.
    """
    if "--enable-optimizations" in (variables.get("CONFIG_ARGS") or ""):
        return True
    flags = [variables.get(name) or "" for name in ("PY_CFLAGS", "PY_CFLAGS_NODIST", "PY_CORE_CFLAGS")]
    return "-fprofile-use" in " ".join(flags)


def loop_ms() -> float:
    """Returns the CPU time of a loop of calls, attributes, dictionaries and bytes, which a proxy mostly consists of."""
    return min(_timed() for _ in range(LOOPS)) * 1000


def _timed() -> float:
    before = time.process_time()
    counter, kept, pieces = Counter(), {}, []
    for step in range(STEPS):
        key = step & 255
        kept[key] = counter.add(key)
        pieces.append(b"%d" % key)
        if key == 0:
            b"".join(pieces)
            pieces.clear()
    assert kept[255] <= counter.sum == sum(step & 255 for step in range(STEPS))
    return time.process_time() - before


class Counter:
    __slots__ = ("sum",)

    def __init__(self) -> None:
        self.sum = 0

    def add(self, number: int) -> int:
        self.sum += number
        return self.sum


if __name__ == "__main__":
    try:
        print(prepared(sys.argv[1]) if sys.argv[1:] else sys.executable)
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"cannot measure with it: {error}")
