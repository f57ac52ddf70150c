"""Runs the official MCP conformance suite through isthmus and prints a table: `make conformance`.

Each scenario runs directly and with isthmus in between. In server mode the suite is the client, and what it talks to is
server.mjs; in client mode it is the server, and what it starts is client.mjs. So a scenario that passes directly and
not through isthmus is isthmus's doing, and then the exit code is 1. What the suite and isthmus said is kept in
`.real/conformance/last`, one folder a scenario and cell.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final, NamedTuple

HERE: Final = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "real"))
import rig  # noqa: E402 (it lies beside the tests that share it)

PACKAGES: Final = ("@modelcontextprotocol/conformance@0.1.16", "@modelcontextprotocol/sdk@1.32.2")
FOLDER: Final = rig.REAL / "conformance"
NODE_MODULES: Final = FOLDER / "node_modules"
LAST: Final = FOLDER / "last"
SUITE: Final = (
    "node",
    "--import",
    HERE / "preload.mjs",
    NODE_MODULES / "@modelcontextprotocol/conformance/dist/index.js",
)

INSTALL_TIMEOUT_S: Final = 300.0
SCENARIO_TIMEOUT_S: Final = 60.0
CLIENT_TIMEOUT_MS: Final = 30_000
"""How long the suite gives its client; less than a scenario has."""

NEEDS_OAUTH: Final = "auth/"
"""What the names of the scenarios begin with that check how a client gets itself a token."""

UNCHECKED: Final = {
    ("server-sse-polling", "stdio upstream"): "over stdio a server cuts nobody off, so a call is answered at once, as "
    "JSON, where the suite looks for nothing",
}
"""Where it is right that the suite finds nothing to check, and why."""


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


# --- The suite ------------------------------------------------------------------------------------------------------


def install() -> None:
    """The suite and the SDK, in the versions named above, unless they are there."""
    stamp, wanted = rig.REAL / "conformance.installed", " ".join(PACKAGES)
    if stamp.exists() and stamp.read_text(encoding="utf-8").strip() == wanted:
        return
    say(f"installing {wanted} into {FOLDER} …")
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / "package.json").write_text('{"private": true}\n', encoding="utf-8")
    command = ["npm", "install", "--no-fund", "--no-audit", "--silent", "--save-exact", *PACKAGES]
    subprocess.run(command, cwd=FOLDER, check=True, timeout=INSTALL_TIMEOUT_S, stdout=sys.stderr)
    stamp.write_text(f"{wanted}\n", encoding="utf-8")


def scenarios(mode: str) -> list[str]:
    """Every scenario the suite has for `server` or `client`."""
    command = [*map(str, SUITE), "list", f"--{mode}"]
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


def run_suite(arguments: Sequence[str | Path], folder: Path) -> Cell:
    """One scenario. The suite and all it started have ended when this returns."""
    process = rig.Process([*SUITE, *arguments, "--output-dir", folder], folder=folder)
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
    complaints += [" ".join(complaint_of(check).split()) for check in wrong]
    if not complaints and code != 0:
        complaints.append(f"the suite's exit code is {code}, as when its client fails")
    return Cell(frozenset(check["id"] for check in right), len(right), len(right) + len(wrong), tuple(complaints))


def complaint_of(check: Mapping[str, str]) -> str:
    return f"{check['id']} ({check['status']}): {check.get('errorMessage', check['description'])}"


# --- Arrangements ---------------------------------------------------------------------------------------------------

Arrangement = Callable[[Path], AbstractContextManager[Sequence[str | Path]]]
"""Sets a cell up, with a folder for its logs, and gives the suite's arguments for it."""


def to_server(url: str) -> list[str | Path]:
    return ["server", "--url", url]


def to_client(*command: str | Path) -> list[str | Path]:
    """The suite hands the command to a shell, followed by the URL of its server."""
    line = " ".join(shlex.quote(str(part)) for part in command)
    return ["client", "--timeout", str(CLIENT_TIMEOUT_MS), "--command", line]


def server_arrangements(url: str) -> Mapping[str, Arrangement]:
    """The suite as client.

    Args:
        url: where server.mjs serves over HTTP. Over stdio isthmus starts it.
    """

    @contextlib.contextmanager
    def direct(folder: Path) -> Iterator[Sequence[str | Path]]:
        yield to_server(url)

    @contextlib.contextmanager
    def http(folder: Path) -> Iterator[Sequence[str | Path]]:
        with rig.wrap(url, folder=folder) as proxy:
            yield to_server(proxy.url)

    @contextlib.contextmanager
    def stdio(folder: Path) -> Iterator[Sequence[str | Path]]:
        with rig.wrap("node", HERE / "server.mjs", NODE_MODULES, "stdio", folder=folder) as proxy:
            yield to_server(proxy.url)

    return {"direct": direct, "HTTP upstream": http, "stdio upstream": stdio}


def client_arrangements() -> Mapping[str, Arrangement]:
    """The suite as server."""
    client = ("node", HERE / "client.mjs", NODE_MODULES)

    @contextlib.contextmanager
    def direct(folder: Path) -> Iterator[Sequence[str | Path]]:
        yield to_client(*client)

    @contextlib.contextmanager
    def http(folder: Path) -> Iterator[Sequence[str | Path]]:
        yield to_client(sys.executable, HERE / "through.py", folder, *client)

    @contextlib.contextmanager
    def stdio(folder: Path) -> Iterator[Sequence[str | Path]]:
        yield to_client(*client, rig.ISTHMUS, "wrap", "--listen", "stdio")

    return {"direct": direct, "HTTP downstream": http, "stdio downstream": stdio}


@contextlib.contextmanager
def reference_server() -> Iterator[str]:
    """server.mjs over HTTP: its URL."""
    folder = LAST / "server.mjs"
    folder.mkdir(parents=True)
    with rig.launched(["node", HERE / "server.mjs", NODE_MODULES, "http"], folder=folder) as process:
        yield process.wait_line(r"listening on (\S+)")[1]


# --- Tables ---------------------------------------------------------------------------------------------------------

Row = dict[str, Cell]


def run_rows(mode: str, names: Sequence[str], arrangements: Mapping[str, Arrangement]) -> dict[str, Row]:
    """Every scenario in every arrangement, one after the other."""
    rows: dict[str, Row] = {}
    for number, name in enumerate(names, 1):
        row = rows[name] = Row()
        for title, arrangement in arrangements.items():
            folder = LAST / mode / name / title.replace(" ", "-")
            folder.mkdir(parents=True)
            started_at = time.monotonic()
            try:
                with arrangement(folder) as arguments:
                    cell = run_suite([*arguments, "--scenario", name], folder)
            except AssertionError as error:  # isthmus did not start, or did not end well
                (folder / "error.txt").write_text(str(error), encoding="utf-8")
                cell = Cell(complaints=(f"isthmus: {str(error).splitlines()[-1].lstrip(': ')}",))
            if not cell.total and not cell.complaints and (name, title) not in UNCHECKED:
                cell = Cell(complaints=("nothing was checked",))
            row[title] = cell
            say(f"{mode} {number}/{len(names)} {name}, {title}: {cell} ({time.monotonic() - started_at:.1f} s)")
    return rows


def table(heading: str, rows: Mapping[str, Row]) -> str:
    """Markdown, its columns aligned."""
    titles = list(next(iter(rows.values())))
    lines = [[heading, *titles], *([name, *(str(row[title]) for title in titles)] for name, row in rows.items())]
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    lines.insert(1, ["-" * width for width in widths])
    texts = [
        "| " + " | ".join(word.ljust(width) for word, width in zip(line, widths, strict=True)) + " |" for line in lines
    ]
    return "\n".join(texts)


def notes(rows: Mapping[str, Row]) -> list[str]:
    """What the table has no room for: why a cell is no pass, and what isthmus keeps the suite from checking."""
    found = []
    for name, row in rows.items():
        for title, cell in row.items():
            found += [f"{name}, {title}: {complaint}" for complaint in cell.complaints]
            unreached = row["direct"].succeeded - cell.succeeded
            if not cell.complaints and not cell.total:
                found.append(f"{name}, {title}: {UNCHECKED[name, title]}")
            elif not cell.complaints and unreached:
                found.append(f"{name}, {title}: passes without {', '.join(sorted(unreached))}")
    return found


def regressions(rows: Mapping[str, Row]) -> list[str]:
    """The scenarios that pass directly and not through isthmus."""
    return [
        name
        for name, row in rows.items()
        if not row["direct"].complaints and any(cell.complaints for cell in row.values())
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description="The official MCP conformance suite, through isthmus.")
    parser.add_argument("--mode", choices=("server", "client"), help="what the suite checks; default: both")
    parser.add_argument("--scenario", action="append", metavar="NAME", help="only this one; may be repeated")
    options = parser.parse_args()
    if shutil.which("npm") is None:
        sys.exit("the conformance suite needs Node.js with npm")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what was started is ended on the way out

    install()
    names = {mode: scenarios(mode) for mode in ("server", "client") if options.mode in (None, mode)}
    unknown = set(options.scenario or ()) - {name for some in names.values() for name in some}
    if unknown:
        parser.error(f"no such scenario: {', '.join(sorted(unknown))}")
    chosen = {
        mode: [name for name in some if options.scenario is None or name in options.scenario]
        for mode, some in names.items()
    }
    left_out = [name for name in chosen.get("client", ()) if name.startswith(NEEDS_OAUTH)]
    shutil.rmtree(LAST, ignore_errors=True)

    rows: dict[str, Row] = {}
    if server_names := chosen.get("server"):
        with reference_server() as url:
            server_rows = run_rows("server", server_names, server_arrangements(url))
        print(table("suite as client", server_rows), end="\n\n")
        rows |= server_rows
    if client_names := [name for name in chosen.get("client", ()) if name not in left_out]:
        client_rows = run_rows("client", client_names, client_arrangements())
        print(table("suite as server", client_rows), end="\n\n")
        rows |= client_rows

    for note in notes(rows):
        print(f"- {note}")
    if left_out:
        print(f"- left out, for they check how a client gets itself a token: {', '.join(left_out)}")
    worse = regressions(rows)
    direct = sum(not row["direct"].complaints for row in rows.values())
    print(
        f"\n{len(rows)} scenarios, {direct} pass directly; of these fail through isthmus: {', '.join(worse) or 'none'}"
    )
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
