"""Runs `make fuzz`: every target in turn, with equal shares of the time, each in a process of its own.

    python fuzz/harness/campaign.py --seconds 600
    python fuzz/harness/campaign.py --only http_rules --own
    python fuzz/harness/campaign.py --again fuzz/findings/http_rules/crash-…

It uses atheris if that is installed, else `guided`. Inputs that reach new code go to `build/fuzz/<name>/`, where the
next run finds them, and inputs that fail go to `fuzz/findings/<name>/`. The exit code is 1 if any input failed.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import importlib.util
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType, FunctionType
from typing import Final, NamedTuple

from guided import CORPUS_MAX, INPUT_MAX_BYTES, Tracer, search

FUZZ: Final = Path(__file__).parent.parent
ROOT: Final = FUZZ.parent
TARGETS: Final = sorted(path.stem for path in FUZZ.glob("*.py"))

INPUT_MAX_S: Final = 30
"""The time after which an input counts as failed; the whole corpus takes milliseconds."""
MEMORY_MAX_MIB: Final = 1024
"""The memory above which an input counts as failed; a process with a target in it takes 60."""


class Outcome(NamedTuple):
    executions: int
    kept: int
    findings: list[Path]


def main() -> int:
    parser = argparse.ArgumentParser(description="Search for inputs that break the fuzz targets.")
    parser.add_argument("--seconds", type=float, default=60 * len(TARGETS), help="for all targets together")
    parser.add_argument("--only", action="append", choices=TARGETS, help="this target; may be given several times")
    parser.add_argument("--own", action="store_true", help="without atheris, even if it is installed")
    parser.add_argument("--again", type=Path, metavar="FILE", help="run a finding's target on it, and nothing else")
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    options, further = parser.parse_known_args()
    if further and not options.alone:
        parser.error(f"unrecognized arguments: {' '.join(further)}")
    if options.again is not None:
        load(options.again.parent.name)(options.again.read_bytes())
        print("no failure")
        return 0
    names = options.only or TARGETS
    if options.alone:
        return run_own(names[0], options.seconds) if options.own else run_atheris(names[0], further)
    is_own = options.own or importlib.util.find_spec("atheris") is None
    print(
        f"{len(names)} targets, {options.seconds / len(names):.0f} s each, {'our own search' if is_own else 'atheris'}"
    )
    print(f"{'target':<18} {'executions':>10} {'seconds':>8} {'new inputs':>10} {'findings':>8}", flush=True)
    found: list[Path] = []
    for name in names:
        began = time.monotonic()
        outcome = attack(name, options.seconds / len(names), is_own=is_own)
        took = time.monotonic() - began
        counts = f"{outcome.executions:>10,} {took:>8.0f} {outcome.kept:>10} {len(outcome.findings):>8}"
        print(f"{name:<18} {counts}", flush=True)
        found += outcome.findings
    for path in found:
        print(f"\n{path.with_suffix('.txt').read_text()}")
    return 1 if found else 0


def load(name: str) -> Callable[[bytes], None]:
    """Returns the function of a target. It is loaded by path: targets are named like the modules they attack."""
    spec = importlib.util.spec_from_file_location(f"fuzz_{name}", FUZZ / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look up their module there
    spec.loader.exec_module(module)
    test_one_input: Callable[[bytes], None] = module.test_one_input
    return test_one_input


def attack(name: str, seconds: float, *, is_own: bool) -> Outcome:
    """Runs one target in a process, and collects the inputs that it kept and those that failed."""
    kept_in, findings_in = ROOT / "build" / "fuzz" / name, FUZZ / "findings" / name
    for folder in (kept_in, findings_in):
        folder.mkdir(parents=True, exist_ok=True)
    kept, known = set(kept_in.iterdir()), set(findings_in.iterdir())
    command = [sys.executable, __file__, "--alone", "--only", name]
    if is_own:
        command += ["--own", "--seconds", str(seconds)]
    else:
        command += [f"-max_total_time={max(1, round(seconds))}", f"-max_len={INPUT_MAX_BYTES}"]
        command += [f"-timeout={INPUT_MAX_S}", f"-rss_limit_mb={MEMORY_MAX_MIB}", "-print_final_stats=1"]
        command += [f"-artifact_prefix={findings_in}/", str(kept_in), str(FUZZ / "corpus" / name)]
    done = subprocess.run(  # noqa: PLW1510  it is judged by the files that it leaves
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )
    new = sorted(path for path in set(findings_in.iterdir()) - known if path.suffix != ".txt")
    if not new and done.returncode:  # it died for another reason, or did not start
        new = [findings_in / "died"]
        new[0].touch()
    for path in new:
        again = f"python fuzz/harness/campaign.py --again {path.relative_to(ROOT)}"
        report = done.stdout[max(0, done.stdout.find(" === Uncaught")) :] if not is_own else done.stdout
        path.with_suffix(".txt").write_text(f"{name} failed. To repeat:\n  {again}\n\n{report[-8000:]}")
    count = re.search(r"number_of_executed_units: *([0-9]+)", done.stdout) or re.search(r"#([0-9]+)\t", done.stdout)
    added = prune(kept_in, kept)
    return Outcome(0 if count is None else int(count[1]), added, new)


def prune(folder: Path, before: set[Path]) -> int:
    """Keeps the `CORPUS_MAX` smallest inputs, and returns how many of them are new."""
    paths = sorted(folder.iterdir(), key=lambda path: (path.stat().st_size, path.name))
    for path in paths[CORPUS_MAX:]:
        path.unlink()
    return len(set(paths[:CORPUS_MAX]) - before)


def run_atheris(name: str, arguments: list[str]) -> int:
    """Runs one target with atheris, in this process. Only our own code is instrumented: all of it takes a minute."""
    import atheris  # type: ignore[import-not-found]

    call = load(name)
    for function in gc.get_objects():
        if isinstance(function, FunctionType) and str(function.__module__).startswith(
            ("isthmus.", "fuzz_", "multipart")
        ):
            atheris.instrument_func(function)
    atheris.Setup([sys.argv[0], *arguments], call)
    atheris.Fuzz()
    return 0


def timed(call: Callable[[bytes], None]) -> Callable[[bytes], None]:
    """Returns a function that also raises TimeoutError if an input takes longer than `INPUT_MAX_S`."""

    def ring(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"it took {INPUT_MAX_S} s")

    def timed_call(data: bytes) -> None:
        signal.alarm(INPUT_MAX_S)
        try:
            call(data)
        finally:
            signal.alarm(0)

    signal.signal(signal.SIGALRM, ring)
    return timed_call


def run_own(name: str, seconds: float) -> int:
    """Runs one target with our own search, in this process."""
    folders = (FUZZ / "corpus" / name, ROOT / "build" / "fuzz" / name)
    seeds = [path.read_bytes() for folder in folders for path in sorted(folder.glob("*")) if path.is_file()]
    tracer = Tracer(ROOT, but=(ROOT / ".venv", FUZZ / "harness"))
    result = search(timed(load(name)), seeds, tracer, seconds=seconds, seed=len(seeds))
    for data in result.kept:
        (folders[1] / hashlib.sha1(data).hexdigest()).write_bytes(data)
    for finding in result.findings:
        path = FUZZ / "findings" / name / f"crash-{hashlib.sha1(finding.data).hexdigest()}"
        path.write_bytes(finding.data)
        print(finding.report)
    print(f"number_of_executed_units: {result.executions}")
    return 1 if result.findings else 0


if __name__ == "__main__":
    sys.exit(main())
