"""Runs `isthmus conform` on released servers, and prints the results: `make conform-released`.

Broken rules are compared with the records in released/, one file for each server and transport. A broken rule without a
record is new, and the exit code is then 1. `--keep` rewrites the records, `--replay` plays them again.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import socket
import subprocess
import sys
import venv
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, NamedTuple

from released_servers import ENVIRONMENTS, HOME, SERVERS, WORK, Server, rig

RECORDS: Final = Path(__file__).resolve().parent / "released"
FOUND: Final = HOME / "found"
INSTALL_TIMEOUT_S: Final = 900.0
RUN_TIMEOUT_S: Final = 4 * 3600.0
"""The limit for 200 conversations with a server that takes seconds to start."""
SETTLED: Final = ("kept", "broken", "broken at times")
"""States of a rule that was tried."""

Finding = dict[str, Any]


class Row(NamedTuple):
    """The result of a server over one transport, for all seeds together.

    Attributes:
        tried: the rules that the conversations tested.
        broken: rule → the finding with the shortest conversation.
    """

    server: Server
    revisions: list[str]
    conversations: int
    tried: set[str]
    broken: dict[str, Finding]

    def rules(self, severity: str) -> str:
        return ", ".join(f"`{rule}`" for rule, found in self.broken.items() if found["severity"] == severity)

    def __str__(self) -> str:
        cells = (
            f"`{self.server.package}`",
            self.server.version,
            self.server.transport,
            ", ".join(self.revisions),
            str(self.conversations),
            str(len(self.tried)),
            self.rules("must"),
            self.rules("should"),
        )
        return f"| {' | '.join(cells)} |"


def main() -> int:
    options = _options()
    chosen = [server for server in SERVERS if not options.only or server.id in options.only]
    if options.table:
        rows = [row for server in chosen if (row := _row(server)) is not None]
    else:
        for name in dict.fromkeys(server.on for server in chosen):
            _install(name)
        _lay_out()
        with ThreadPoolExecutor(options.jobs) as pool:
            codes = list(pool.map(lambda server: _run(server, options), chosen))
        if options.replay:
            return max(codes, default=0)
        rows = [row for server in chosen if (row := _row(server)) is not None]
    print("\n".join(_table(rows)))
    if options.keep:
        for row in rows:
            _keep(row)
    new_rules = [f"{row.server.id}: {rule}" for row in rows for rule in row.broken if rule not in _recorded(row.server)]
    for each in new_rules:
        print(f"new: {each}")
    return 1 if new_rules else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", default=[], choices=[server.id for server in SERVERS])
    parser.add_argument("--examples", type=int, default=200, help="conversations of each run")
    parser.add_argument("--seconds", type=float, help="of each run, at most")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3], help="a run for each")
    parser.add_argument("--jobs", type=int, default=2, help="servers at once")
    parser.add_argument("--keep", action="store_true", help="write the records anew")
    parser.add_argument("--replay", action="store_true", help="only play the records again")
    parser.add_argument("--table", action="store_true", help="run nothing, and tell of the runs before")
    return parser.parse_args()


# --- Installing -----------------------------------------------------------------------------------------------------


def _install(name: str) -> None:
    """Installs the packages of an environment, unless they are there."""
    environment, folder = ENVIRONMENTS[name], HOME / name
    stamp, wanted = HOME / f"{name}.installed", " ".join(environment.packages)
    if stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
        return
    print(f"installing {wanted} …", file=sys.stderr, flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if environment.is_node:
        (folder / "package.json").write_text('{"private": true}\n', encoding="utf-8")
        command = ["npm", "install", "--no-fund", "--no-audit", "--silent", "--save-exact"]
    else:
        venv.create(folder, with_pip=True)
        command = [str(folder / "bin/python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command += environment.packages
    subprocess.run(command, cwd=folder, check=True, timeout=INSTALL_TIMEOUT_S, stdout=sys.stderr)
    stamp.write_text(wanted, encoding="utf-8")


def _lay_out() -> None:
    """Makes the folder that servers work in: a git repository with one file."""
    FOUND.mkdir(parents=True, exist_ok=True)
    WORK.mkdir(exist_ok=True)
    (WORK / "a").write_text("the only line\n", encoding="utf-8")
    if not (WORK / ".git").exists():
        git = ["git", "-c", "user.name=nobody", "-c", "user.email=nobody@localhost"]
        for words in (["init", "-q"], ["add", "a"], ["commit", "-q", "-m", "Begin"]):
            subprocess.run([*git, *words], cwd=WORK, check=True, timeout=60)


# --- Running --------------------------------------------------------------------------------------------------------


def _run(server: Server, options: argparse.Namespace) -> int:
    """Runs one server, or replays its record. Returns the highest exit code."""
    codes = [0]
    with _target(server) as target:
        if options.replay:
            if (RECORDS / f"{server.id}.jsonl").exists():
                words = ["--replay", str(RECORDS / f"{server.id}.jsonl"), "--timeout", str(server.timeout_s)]
                codes.append(_conform([*words, *target], server.id))
            return max(codes)
        for seed in options.seeds:
            stem = f"{server.id}.{seed}"
            words = ["--examples", str(options.examples), "--seed", str(seed), "--json", str(FOUND / f"{stem}.json")]
            words += ["--timeout", str(server.timeout_s)]
            words += ["--seconds", str(options.seconds)] if options.seconds else []
            codes.append(_conform([*words, *(["--safe"] if server.is_safe else []), *target], stem))
    return max(codes)


def _conform(words: Sequence[str], stem: str) -> int:
    with (FOUND / f"{stem}.out").open("wb") as out:
        command = [str(rig.ISTHMUS), "conform", *words]
        done = subprocess.run(command, check=False, timeout=RUN_TIMEOUT_S, stdout=out, stderr=subprocess.STDOUT)
    last = (FOUND / f"{stem}.out").read_text(encoding="utf-8").splitlines()[-1:]
    print(f"{stem}: {''.join(last)}", file=sys.stderr, flush=True)
    return done.returncode


@contextlib.contextmanager
def _target(server: Server) -> Iterator[list[str]]:
    """Yields the target for `isthmus conform`: a command, or the URL of a server that runs until the block ends."""
    port = _free_port() if server.takes_port else 0
    words, env = server.words(port), server.surroundings(port)
    if server.path is None:
        given = [word for name, value in env.items() for word in ("--env", f"{name}={value}")]
        yield [*given, "--cwd", str(WORK), "--", *words]
        return
    with rig.launched(words, folder=FOUND, env=env, cwd=WORK, code=None) as process:
        if not port:
            port = int(process.wait_line(r"127\.0\.0\.1:([0-9]+)")[1])
        rig.until(lambda: _is_listening(port), f"{server.id} to listen")
        yield [f"http://127.0.0.1:{port}{server.path}"]


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def _is_listening(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


# --- Results --------------------------------------------------------------------------------------------------------


def _row(server: Server) -> Row | None:
    """Returns the result of all runs of a server, or None if there are none."""
    row = Row(server, [], 0, set(), {})
    for path in sorted(FOUND.glob(f"{server.id}.*.json")):
        report = json.loads(path.read_bytes())
        row = row._replace(revisions=report["revisions"], conversations=row.conversations + report["conversations"])
        for rule in report["rules"]:
            if rule["state"] in SETTLED:
                row.tried.add(rule["rule"])
            if rule["state"].startswith("broken") and _is_better(rule, row.broken.get(rule["rule"])):
                row.broken[rule["rule"]] = rule
    return row if row.revisions else None


def _is_better(rule: Finding, known: Finding | None) -> bool:
    return known is None or _weight(rule) < _weight(known)


def _weight(rule: Finding) -> tuple[bool, bool, int, int]:
    """Returns a sort key: MUST before SHOULD, rules that are always broken before others, short conversations before
    long."""
    conversation = rule["conversation"]
    return (
        rule["severity"] != "must",
        rule["state"] != "broken",
        len(conversation["steps"]),
        len(json.dumps(conversation)),
    )


def _table(rows: Sequence[Row]) -> Iterator[str]:
    yield "| Server | Version | Transport | Revisions | Conversations | Rules tried | Broken | Only SHOULD |"
    yield "| --- | --- | --- | --- | ---: | ---: | --- | --- |"
    yield from map(str, rows)


def _keep(row: Row) -> None:
    """Writes the record of broken rules. Rules that were not broken this time keep their line: some are broken at
    times."""
    path = RECORDS / f"{row.server.id}.jsonl"
    kept = _recorded(row.server)
    for rule, found in row.broken.items():
        record = {name: found[name] for name in ("rule", "text", "clause", "conversation")}
        kept[rule] = json.dumps(record, ensure_ascii=False)
    if kept:
        RECORDS.mkdir(exist_ok=True)
        path.write_text("".join(f"{line}\n" for line in kept.values()), encoding="utf-8")


def _recorded(server: Server) -> dict[str, str]:
    """Returns rule → the line of the record."""
    path = RECORDS / f"{server.id}.jsonl"
    if not path.exists():
        return {}
    lines = path.read_text(encoding="utf-8").splitlines()
    return {json.loads(line)["rule"]: line for line in lines}


if __name__ == "__main__":
    sys.exit(main())
