"""The official conformance suites, one an era: which packages they are, what they check, and one scenario's outcome."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

HERE: Final = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "real"))
import rig  # noqa: E402 (it lies beside the tests that share it)

INSTALL_TIMEOUT_S: Final = 300.0
SCENARIO_TIMEOUT_S: Final = 60.0
CLIENT_TIMEOUT_MS: Final = 30_000
"""How long the suite gives its client; less than a scenario has."""


class Suite(NamedTuple):
    """A release of the suite that speaks one era, and our peers in that era.

    Attributes:
        revision: the newest that it speaks.
        folder: below `.real`: where the packages are.
        packages: the suite and the SDK that the peers are made of.
        selecting: arguments that have the suite speak this revision.
    """

    revision: str
    folder: str
    packages: Sequence[str]
    server: Path
    client: Path
    selecting: Sequence[str] = ()

    @property
    def node_modules(self) -> Path:
        return rig.REAL / self.folder / "node_modules"

    @property
    def command(self) -> list[str | Path]:
        script = self.node_modules / "@modelcontextprotocol/conformance/dist/index.js"
        return ["node", "--import", HERE / "preload.mjs", script]


LEGACY: Final = Suite(
    revision="2025-11-25",
    folder="conformance",
    packages=("@modelcontextprotocol/conformance@0.1.16", "@modelcontextprotocol/sdk@1.32.2"),
    server=HERE / "server.mjs",
    client=HERE / "client.mjs",
)
MODERN: Final = Suite(
    revision="2026-07-28",
    folder="conformance2",
    packages=(
        "@modelcontextprotocol/conformance@0.2.0-alpha.12",
        "@modelcontextprotocol/client@2.4.0",
        "@modelcontextprotocol/server@2.4.0",
        "@modelcontextprotocol/node@2.1.2",
    ),
    server=HERE / "server2.mjs",
    client=HERE / "client2.mjs",
    selecting=("--spec-version", "2026-07-28"),
)
OTHER: Final = {LEGACY.revision: MODERN, MODERN.revision: LEGACY}


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def install(suite: Suite) -> None:
    """The suite and the SDK, in the versions named above, unless they are there."""
    stamp, wanted = rig.REAL / f"{suite.folder}.installed", " ".join(suite.packages)
    if stamp.exists() and stamp.read_text(encoding="utf-8").strip() == wanted:
        return
    folder = rig.REAL / suite.folder
    say(f"installing {wanted} into {folder} …")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "package.json").write_text('{"private": true}\n', encoding="utf-8")
    command = ["npm", "install", "--no-fund", "--no-audit", "--silent", "--save-exact", *suite.packages]
    subprocess.run(command, cwd=folder, check=True, timeout=INSTALL_TIMEOUT_S, stdout=sys.stderr)
    stamp.write_text(f"{wanted}\n", encoding="utf-8")


def scenarios(suite: Suite, mode: str) -> list[str]:
    """Every scenario the suite has for `server` or `client`."""
    command = [*map(str, suite.command), "list", f"--{mode}", *suite.selecting]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=SCENARIO_TIMEOUT_S)
    return re.findall(r"^ +- (\S+)", done.stdout, re.MULTILINE)


class Cell(NamedTuple):
    """What came of one scenario in one arrangement.

    Attributes:
        succeeded: ids of the checks that passed, at least once.
        passed: how many passed.
        total: how many were made: passed, failed or warned of.
        complaints: what speaks against a pass. A warning does: it is a SHOULD that was not met.
    """

    succeeded: frozenset[str] = frozenset()
    passed: int = 0
    total: int = 0
    complaints: tuple[str, ...] = ()

    def __str__(self) -> str:
        verdict = "FAIL" if self.complaints else "pass" if self.total else "n/a"
        return f"{verdict} {self.passed}/{self.total}"


def run_scenario(suite: Suite, name: str, arguments: Sequence[str | Path], folder: Path) -> Cell:
    """One scenario. The suite and all it started have ended when this returns.

    Args:
        arguments: who is checked: a mode of the suite, and where the peer is.
    """
    command = [*suite.command, *arguments, *suite.selecting, "--scenario", name, "--output-dir", folder]
    process = rig.Process(command, folder=folder)
    complaints = []
    try:
        code = process.wait_exit(timeout_s=SCENARIO_TIMEOUT_S)
    except rig.RigError:
        complaints.append(f"timed out after {SCENARIO_TIMEOUT_S:g} s")
        code = 0
    finally:
        process.clean_up()
        (folder / "suite.txt").write_text("\n".join([*process.lines, process.stderr]), encoding="utf-8")
    checks = [check for path in folder.glob("*/checks.json") for check in json.loads(path.read_text(encoding="utf-8"))]
    wrong = [check for check in checks if check["status"] in ("FAILURE", "WARNING")]
    right = [check for check in checks if check["status"] == "SUCCESS"]
    complaints += [" ".join(_complaint(check).split()) for check in wrong]
    if not complaints and code != 0:
        complaints.append(f"the suite's exit code is {code}, as when its client fails")
    return Cell(frozenset(check["id"] for check in right), len(right), len(right) + len(wrong), tuple(complaints))


def _complaint(check: Mapping[str, str]) -> str:
    return f"{check['id']} ({check['status']}): {check.get('errorMessage', check['description'])}"
