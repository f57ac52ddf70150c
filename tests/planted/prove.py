"""Plants each bug in a copy of the tree, and reports which test notices: `prove.py [NUMBER …] [--seconds N]`.

The copy is made once, with an interpreter of its own that finds the product in it and nowhere else. First the tests
that the patches name have to pass without any bug. Then each bug is run against the tests that its patch names, against
the others of `make quick`, and against new worlds of `make simulate` for ten minutes; the first failure ends that. A
failing test that no patch names has to pass without the bug.

Prints a line for each. The exit code is 1 if a bug is not noticed, or cannot be planted any more.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from planting import ROOT, Bug, DoesNotApply, read_bugs

LEFT_OUT: Final = (
    ".*",
    "__pycache__",
    "*.egg-info",
    "build",
    "dist",
    "findings",
    "node_modules",
)
"""Folders and files that are not copied."""
MARKS: Final = "not real and not chaos"
"""The marks of the tests of `make quick`."""
LIKELY_MAX_S: Final = 900.0
REST_MAX_S: Final = 3600.0
"""Tests that take longer are ended, and count as a failure: they end without the bug."""
EXTRA_S: Final = 120.0
"""The additional time of a simulation, which ends with a world."""

_FAILED: Final = re.compile(r"^(?:FAILED|ERROR) ([^ \n]+)", re.MULTILINE)
_SEED: Final = re.compile(r"^seed [^ ,:]+", re.MULTILINE)


class Ended(NamedTuple):
    """The result of a run.

    Attributes:
        is_failed: True by the exit code, or if it took too long.
        where: the first failure.
    """

    is_failed: bool
    where: str
    output: str


class Ground:
    """A copy of the tree, with its own interpreter.

    Args:
        folder: a path that does not exist yet.
    """

    def __init__(self, folder: Path) -> None:
        self.tree = folder / "tree"
        shutil.copytree(ROOT, self.tree, ignore=shutil.ignore_patterns(*LEFT_OUT), symlinks=True)
        shutil.rmtree(self.tree / "tests" / "planted")  # its patches do not apply to a tree with a bug
        packages = folder / "packages" / "isthmus"
        packages.mkdir(parents=True)
        for name in ("core", "transports", "storage", "app"):
            (packages / name).symlink_to(self.tree / name)
        venv.create(folder / "venv", symlinks=True)
        self._python = folder / "venv" / "bin" / "python"
        paths = sysconfig.get_paths(vars={"base": str(folder / "venv"), "platbase": str(folder / "venv")})
        # A path in such a file is searched, and further such files there are not read. So none leads back to the tree.
        (Path(paths["purelib"]) / "planted.pth").write_text(f"{packages.parent}\n{sysconfig.get_paths()['purelib']}\n")
        script = Path(sys.executable).with_name("isthmus")
        _, _, body = script.read_text(encoding="utf-8").partition("\n")
        command = self._python.with_name("isthmus")
        command.write_text(f"#!{self._python}\n{body}", encoding="utf-8")
        command.chmod(0o755)

    def check(self) -> None:
        """Checks that the tests will run the code of the copy.

        Raises:
            RuntimeError: they would run something else.
        """
        found = self._run(["-c", "import isthmus.core.engine as e; print(e.__file__)"], EXTRA_S).output.strip()
        if Path(found).resolve() != (self.tree / "core" / "engine.py").resolve():
            raise RuntimeError(f"the copy at {self.tree} would run {found}")

    @contextmanager
    def planted(self, bug: Bug) -> Iterator[None]:
        """Puts the bug into the copy, until the block ends.

        Raises:
            DoesNotApply: the files are not what they were.
        """
        patched = bug.patched(self.tree)
        sound = {path: (self.tree / path).read_text(encoding="utf-8") for path in patched}
        self._write(patched)
        try:
            yield
        finally:
            self._write(sound)

    def _write(self, files: Mapping[str, str]) -> None:
        for name, text in files.items():
            path = self.tree / name
            path.write_text(text, encoding="utf-8")
            # Python recognizes a changed file by size and second, which may be the same.
            Path(importlib.util.cache_from_source(str(path))).unlink(missing_ok=True)

    def test(self, tests: Sequence[str], *, jobs: int, max_s: float, ignored: Sequence[str] = ()) -> Ended:
        """Runs these tests up to the first failure."""
        arguments = ["-m", "pytest", "-x", "-q", "--tb=no", "-p", "no:cacheprovider", "-m", MARKS]
        arguments += ["-n", str(jobs), "--dist", "loadfile", f"--basetemp={self.tree.parent / 'temporary'}"]
        ended = self._run([*arguments, *(f"--ignore={path}" for path in ignored), *tests], max_s)
        found = _FAILED.search(ended.output)
        return ended._replace(where=found[1] if found else ended.where)

    def simulate(self, seconds: float, *, jobs: int) -> Ended:
        """Runs new worlds, all of them: the simulation reports each failure as it comes."""
        program = "tests/simulation/simulating.py"
        ended = self._run([program, "--seconds", f"{seconds:g}", "--jobs", str(jobs)], seconds + EXTRA_S)
        found = _SEED.search(ended.output)
        return ended._replace(where=f"make simulate, {found[0]}" if found else ended.where)

    def _run(self, arguments: Sequence[str], max_s: float) -> Ended:
        process = subprocess.Popen(
            [self._python, *arguments],
            cwd=self.tree,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=max_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            return Ended(True, f"no end within {max_s:g} s", output)
        return Ended(process.returncode != 0, f"exit code {process.returncode}", output)


def noticed(ground: Ground, bug: Bug, options: argparse.Namespace) -> str:
    """Returns the test that fails with the bug; "" if none does.

    Raises:
        RuntimeError: it fails without the bug too.
    """
    jobs, where = options.jobs, ""
    with ground.planted(bug):
        ended = ground.test(bug.likely, jobs=jobs, max_s=LIKELY_MAX_S)
        if ended.is_failed:
            return ended.where
        rest = ground.test(options.within, jobs=jobs, max_s=REST_MAX_S, ignored=bug.likely)
        if rest.is_failed:
            where = rest.where
        elif options.seconds:
            world = ground.simulate(options.seconds, jobs=jobs)
            return world.where if world.is_failed else ""
    if where.startswith("tests/") and (again := ground.test([where], jobs=0, max_s=LIKELY_MAX_S)).is_failed:
        raise RuntimeError(f"{where} fails without the bug:\n{again.output}")
    return where


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("only", nargs="*", help="numbers of bugs")
    parser.add_argument("--seconds", type=float, default=600.0, help="of simulation; 0: none")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--within", nargs="+", default=["tests"], help="the tests after those that a patch names")
    options = parser.parse_args()
    bugs = [bug for bug in read_bugs() if not options.only or bug.number in options.only]
    unknown = set(options.only) - {bug.number for bug in bugs}
    if unknown:
        parser.error(
            f"got {' '.join(sorted(unknown))}, expected numbers of bugs, of two digits: 01 to {len(read_bugs())}"
        )
    failed = 0
    with tempfile.TemporaryDirectory(prefix="planted") as folder:
        ground = Ground(Path(folder))
        ground.check()
        sound = ground.test(sorted({path for bug in bugs for path in bug.likely}), jobs=options.jobs, max_s=REST_MAX_S)
        if sound.is_failed:
            print(f"without any bug: {sound.where}\n{sound.output}")
            return 1
        print("| Bug | Noticed by | Seconds |\n| --- | --- | ---: |", flush=True)
        for bug in bugs:
            began_at = time.monotonic()
            try:
                where = noticed(ground, bug, options)
            except DoesNotApply as error:
                where = ""
                print(error)
            failed += not where
            shown = f"`{where}`" if where else "nobody"
            print(f"| {bug.number} {bug.name} | {shown} | {time.monotonic() - began_at:.0f} |", flush=True)
    print(f"{len(bugs) - failed} of {len(bugs)} are noticed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
