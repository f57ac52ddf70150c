"""The official conformance suites: their packages, their scenarios, and the outcome of one scenario."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
import venv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

HERE: Final = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
sys.path.insert(0, str(HERE.parent / "real"))
import rig  # noqa: E402 (it lies beside the tests that share it)

INSTALL_TIMEOUT_S: Final = 300.0
SCENARIO_TIMEOUT_S: Final = 60.0
CLIENT_TIMEOUT_MS: Final = 30_000
"""The suite's limit for its client, less than that of a scenario."""


class Suite(NamedTuple):
    """A release of the suite that speaks one era, and our peers in that era.

    Attributes:
        name: the newest revision that it speaks, and its extension if any.
        folder: the folder of the packages, below `.real`.
        packages: the suite, and the SDK of the peers.
        selecting: arguments that make the suite speak this revision.
        prefix: the beginnings of the names of an extension's scenarios. Empty for all scenarios of no extension.
        requirements: the packages of a server in Python. Without them the server runs on Node.
        tasks: the setting of Isthmus for the tasks of its peers.
    """

    name: str
    folder: str
    packages: Sequence[str]
    server: Path
    client: Path
    selecting: Sequence[str] = ()
    prefix: str | tuple[str, ...] = ""
    requirements: Sequence[str] = ()
    tasks: Mapping[str, object] | None = None

    @property
    def node_modules(self) -> Path:
        return rig.REAL / self.folder / "node_modules"

    @property
    def python(self) -> Path:
        return rig.REAL / f"{self.folder}-python/bin/python"  # of its own: `make peers` changes other environments

    @property
    def server_command(self) -> list[str | Path]:
        """The command of the server. A transport is to follow."""
        return [self.python, self.server] if self.requirements else ["node", self.server, self.node_modules]

    @property
    def command(self) -> list[str | Path]:
        script = self.node_modules / "@modelcontextprotocol/conformance/dist/index.js"
        return ["node", "--import", HERE / "preload.mjs", script]


LEGACY: Final = Suite(
    name="2025-11-25",
    folder="conformance",
    packages=("@modelcontextprotocol/conformance@0.1.16", "@modelcontextprotocol/sdk@1.32.2"),
    server=HERE / "server.mjs",
    client=HERE / "client.mjs",
)
MODERN: Final = Suite(
    name="2026-07-28",
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
MODERN_TASKS: Final = MODERN._replace(
    name="2026-07-28 tasks",
    server=HERE / "tasks2.py",
    selecting=("--force", *MODERN.selecting),
    prefix="tasks-",
    requirements=("fastmcp==4.1.2", "fastmcp-tasks==4.1.2"),
    tasks={"offer": "auto", "strict": True},
)
MODERN_LOGINS: Final = MODERN._replace(
    name="2026-07-28 logins",
    selecting=("--force", *MODERN.selecting),
    prefix=("auth/client-credentials-", "auth/enterprise-managed-"),
)
LEGACY_TASKS: Final = LEGACY._replace(name="2025-11-25 tasks", server=HERE / "tasks.mjs")
"""A peer only: in that revision the suite has no scenarios for tasks."""

OTHER: Final = {LEGACY.name: MODERN, MODERN.name: LEGACY, MODERN_TASKS.name: LEGACY_TASKS, MODERN_LOGINS.name: LEGACY}


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def install(suite: Suite) -> None:
    """Installs the suite and the packages of the peers, in the versions named above, unless they are there."""
    folder = rig.REAL / suite.folder
    with _missing(folder, suite.packages) as is_missing:
        if is_missing:
            (folder / "package.json").write_text('{"private": true}\n', encoding="utf-8")
            npm = ["npm", "install", "--no-fund", "--no-audit", "--silent", "--save-exact", *suite.packages]
            subprocess.run(npm, cwd=folder, check=True, timeout=INSTALL_TIMEOUT_S, stdout=sys.stderr)
    if suite.requirements:
        with _missing(suite.python.parents[1], suite.requirements) as is_missing:
            if is_missing:
                venv.create(suite.python.parents[1], with_pip=True, symlinks=True)
                pip = [suite.python, "-m", "pip", "install", "--quiet", *suite.requirements]
                subprocess.run(pip, check=True, timeout=INSTALL_TIMEOUT_S, stdout=sys.stderr)


@contextlib.contextmanager
def _missing(folder: Path, packages: Sequence[str]) -> Iterator[bool]:
    """Yields True if the packages have to be installed into the folder. A clean end of the block marks them as
    installed."""
    stamp, wanted = folder.with_name(f"{folder.name}.installed"), " ".join(packages)
    is_missing = not stamp.exists() or stamp.read_text(encoding="utf-8").strip() != wanted
    if is_missing:
        say(f"installing {wanted} into {folder} …")
        folder.mkdir(parents=True, exist_ok=True)
    yield is_missing
    if is_missing:
        stamp.write_text(f"{wanted}\n", encoding="utf-8")


def scenarios(suite: Suite, mode: str) -> list[str]:
    """Returns the scenarios of the suite for `server` or `client`. Those of extensions belong to no revision."""
    selecting = () if suite.prefix else suite.selecting
    command = [*map(str, suite.command), "list", f"--{mode}", *selecting]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=SCENARIO_TIMEOUT_S)
    names = re.findall(r"^ +- (\S+)", done.stdout, re.MULTILINE)
    return [name for name in names if name.startswith(suite.prefix)]


class Cell(NamedTuple):
    """The result of one scenario in one arrangement.

    Attributes:
        succeeded: ids of the checks that passed at least once.
        passed: the number of passed checks.
        total: the number of checks that passed, failed or warned.
        complaints: the reasons against a pass. Warnings count: each is a SHOULD that was not met.
    """

    succeeded: frozenset[str] = frozenset()
    passed: int = 0
    total: int = 0
    complaints: tuple[str, ...] = ()

    def __str__(self) -> str:
        verdict = "FAIL" if self.complaints else "pass" if self.total else "n/a"
        return f"{verdict} {self.passed}/{self.total}"


def run_scenario(suite: Suite, name: str, arguments: Sequence[str | Path], folder: Path) -> Cell:
    """Runs one scenario. The suite and all its processes have ended when this returns.

    Args:
        arguments: a mode of the suite, and the address or command of the peer.
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
    checks = [check for path in folder.rglob("checks.json") for check in json.loads(path.read_text(encoding="utf-8"))]
    wrong = [check for check in checks if check["status"] in ("FAILURE", "WARNING")]
    right = [check for check in checks if check["status"] == "SUCCESS"]
    complaints += [" ".join(_complaint(check).split()) for check in wrong]
    if not complaints and code != 0:
        complaints.append(f"the suite's exit code is {code}, as when its client fails")
    return Cell(frozenset(check["id"] for check in right), len(right), len(right) + len(wrong), tuple(complaints))


def _complaint(check: Mapping[str, str]) -> str:
    return f"{check['id']} ({check['status']}): {check.get('errorMessage', check['description'])}"
