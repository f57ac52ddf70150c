"""Takes a file through released clients of MCP, and prints what each of them could do: `make clients`.

The server is mcp-pandoc behind `isthmus wrap --files`. A step that fails without a record in released_clients.py, or
passes in spite of one, makes the exit code 1.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from released_clients import CLIENTS, Client

TESTS: Final = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS), str(TESTS / "real")]

import rig  # noqa: E402
from journey import Journey, NotThere, Skipped, StepError  # noqa: E402

AGENTS: Final = Path(__file__).resolve().parent / "agents"
HOME: Final = rig.REAL / "clients"
INSTALL_TIMEOUT_S: Final = 900.0
ANSWER_TIMEOUT_S: Final = 120.0
START_S: Final = 12
"""The seconds that a late server waits before it answers. Most frameworks wait for less, and many servers need more, as
those that are fetched before they start."""
LATE_STEPS: Final = ("connect", "list", "make")


class Result(NamedTuple):
    """A step: what stands in the table, and the error where it failed."""

    step: str
    mark: str
    error: str = ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("only", nargs="*", metavar="CLIENT", help=", ".join(CLIENTS))
    parser.add_argument("--log", action="store_true", help="print what each step saw")
    options = parser.parse_args()
    unknown = set(options.only) - set(CLIENTS)
    if unknown:
        parser.error(f"there is no client {', '.join(sorted(unknown))}; there are {', '.join(CLIENTS)}")
    names = [name for name in CLIENTS if name in options.only or not options.only]
    surprises: list[str] = []
    print(f"| client | version | {' | '.join(Journey.STEPS)} | late start |")
    print(f"| --- | --- |{' --- |' * (len(Journey.STEPS) + 1)}", flush=True)
    failures: list[str] = []
    for name in names:
        client = CLIENTS[name]
        _install(client.on or name, CLIENTS[client.on or name])
        with tempfile.TemporaryDirectory() as folder:
            versions, results = _travel(name, client, Path(folder), 0, options.log)
            _, late = _travel(name, client, Path(folder), START_S, options.log)
        results += [each._replace(step=f"late {each.step}") for each in late]
        print(_row(name, versions, results), flush=True)
        failures += [f"{name}, {each.step}: {each.error[:400].strip()}" for each in results if each.error]
        surprises += _surprises(name, client, results)
    print("\n".join(("", *failures, "", *surprises)))
    return 1 if surprises else 0


def _row(name: str, versions: dict[str, str], results: list[Result]) -> str:
    marks = {each.step: each.mark for each in results}
    cells = [marks.get(step, "") for step in Journey.STEPS]
    late = [each.step.removeprefix("late ") for each in results if each.step.startswith("late ") and each.error]
    told = ", ".join(f"{package} {version}" for package, version in versions.items())
    return f"| {name} | {told} | {' | '.join(cells)} | {f'**no**: {late[0]}' if late else 'yes'} |"


def _surprises(name: str, client: Client, results: list[Result]) -> list[str]:
    """Returns how results differ from what is recorded of the client."""
    found = []
    for step, _, error in results:
        expected = client.fails.get(step, "")
        if error and not expected:
            found.append(f"new: {name} fails in {step}")
        elif expected and not error:
            found.append(f"better: {name} does not fail in {step}, as released_clients.py says")
        elif expected not in error:
            found.append(f"other: {name} fails in {step} otherwise than with {expected!r}")
    return found


# --- A client -------------------------------------------------------------------------------------------------------


class Agent:
    """A running client, asked through the protocol of README.md."""

    def __init__(self, process: rig.Process) -> None:
        self._process = process
        self._read = 0

    def tell(self, document: object) -> None:
        self._process.write_line(json.dumps(document))

    def answer(self) -> Any:
        self._process.wait_line("", since=self._read, timeout_s=ANSWER_TIMEOUT_S)
        line = json.loads(self._process.lines[self._read])
        self._read += 1
        if line.get("is_missing"):
            raise NotThere
        if "error" in line:
            raise StepError(line["error"])
        return line["value"]

    def ask(self, op: str, **members: Any) -> Any:
        self.tell({"op": op, **members})
        return self.answer()


def _travel(
    name: str, client: Client, folder: Path, start_s: int, has_log: bool
) -> tuple[dict[str, str], list[Result]]:
    """Takes all steps with a server, or some with one that starts late.

    Args:
        start_s: what the server's process waits before it answers.

    Returns:
        The versions of the client's packages, and the steps.
    """
    steps = LATE_STEPS if start_s else Journey.STEPS
    results = []
    with _target(client, folder, start_s) as target, _started(name, client, target, folder) as agent:
        journey = Journey(agent, is_http="url" in target)
        for step in steps:
            error = ""
            try:
                seen, mark = journey.step(step), "yes"
            except NotThere:
                seen = mark = "–"
            except Skipped:
                seen = mark = ""
            except (StepError, rig.RigError) as failure:
                seen, mark = "", "**no**"
                error = str(failure) or type(failure).__name__
            results.append(Result(step, mark, error))
            if has_log:
                print(f"{name} {'late ' * bool(start_s)}{step}: {error or seen}", file=sys.stderr, flush=True)
            if step == "connect" and error:
                break
    return journey.versions, results


@contextlib.contextmanager
def _target(client: Client, folder: Path, start_s: int) -> Iterator[dict[str, Any]]:
    """Yields what a client is told of the proxy: the URL, or the command with which it starts it."""
    server: list[str | Path] = [rig.require(rig.PANDOC)]
    if start_s:
        server = ["sh", "-c", f'sleep {start_s}; exec "$0"', *server]
    options = ["--files", *client.options]
    if client.transport == "stdio":
        command = rig.stdio_wrap(*server, options=options)
        yield {"command": command[0], "args": command[1:], "env": dict(os.environ)}
        return
    with rig.wrap(*server, folder=folder, options=options, asks=True) as proxy:
        yield {"url": proxy.url}


@contextlib.contextmanager
def _started(name: str, client: Client, target: dict[str, Any], folder: Path) -> Iterator[Agent]:
    """Runs a client's script until the block ends. Its log is kept beside the environment."""
    home, script = HOME / (client.on or name), AGENTS / client.script
    if client.is_node:
        for source in (AGENTS / "agent.mjs", script):
            shutil.copy(source, home)  # Node looks for packages beside the script
        own = home / "node_modules/.bin/node"
        command: list[str | Path] = [own if own.exists() else "node", home / client.script, *client.arguments]
    else:
        command = [home / "bin/python", script, *client.arguments]
    process = rig.Process(command, folder=folder, has_stdin=True)
    try:
        agent = Agent(process)
        agent.tell(target)
        yield agent
        process.close_stdin()
        with contextlib.suppress(rig.RigError):
            process.wait_exit(timeout_s=20)
    finally:
        shutil.copy(process.log, HOME / f"{name}.log")
        process.clean_up()


# --- Installing -----------------------------------------------------------------------------------------------------


def _install(name: str, client: Client) -> None:
    """Installs the packages of a client, unless they are there."""
    folder, stamp, wanted = HOME / name, HOME / f"{name}.installed", " ".join(client.packages)
    if stamp.exists() and stamp.read_text(encoding="utf-8").strip() == wanted:
        return
    print(f"installing {wanted} …", file=sys.stderr, flush=True)
    folder.mkdir(parents=True, exist_ok=True)
    if client.is_node:
        (folder / "package.json").write_text('{"private": true}\n', encoding="utf-8")
        command = ["npm", "install", "--no-fund", "--no-audit", "--silent", "--save-exact"]
    else:
        if not (folder / "bin/python").exists():
            venv.create(folder, with_pip=True)
        command = [str(folder / "bin/python"), "-m", "pip", "install", "--no-compile", "--quiet"]
        command.append("--disable-pip-version-check")
    command += client.packages
    subprocess.run(command, cwd=folder, check=True, timeout=INSTALL_TIMEOUT_S, stdout=sys.stderr)
    stamp.write_text(wanted, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
