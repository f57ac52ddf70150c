"""Runs the official MCP conformance suites through isthmus and prints tables: `make conformance`.

Each era has one suite, and tasks of 2026-07-28, where they are an extension, have one more. Each scenario runs directly
and with isthmus between. In server mode the suite is the client, and its peer is server.mjs or server2.mjs (for tasks
tasks.mjs or tasks2.py). In client mode the suite is the server, and starts client.mjs or client2.mjs. Through isthmus
the peer is of the suite's own era, or of the other one, and the way leads through its own path, or through a profile of
it alone. So a scenario that passes directly and not through isthmus is isthmus's fault, and the exit code is then 1,
unless differences.py has a reason. The logs of suites and isthmus are kept in `.real/conformance/last`, one folder for
each scenario and cell.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

from arrangements import (
    DIRECT,
    Arrangement,
    client_arrangements,
    login_arrangements,
    reference_server,
    server_arrangements,
)
from differences import HURRIED, NOT_YET, UNCHECKED, UNTRANSLATABLE, reason
from suites import (
    LEGACY,
    LEGACY_TASKS,
    MODERN,
    MODERN_LOGINS,
    MODERN_TASKS,
    Cell,
    Suite,
    install,
    rig,
    run_scenario,
    say,
    scenarios,
)

SUITES: Final = {suite.name: suite for suite in (LEGACY, MODERN, MODERN_TASKS, MODERN_LOGINS)}
PEERS: Final = (LEGACY, MODERN, MODERN_TASKS, LEGACY_TASKS)
LAST: Final = rig.REAL / "conformance" / "last"

NEEDS_OAUTH: Final = "auth/"
"""The beginning of the names of scenarios about a client's authorization."""

Row = dict[str, Cell]


class Table(NamedTuple):
    """The results of a suite in one mode: a row for each scenario, a cell for each arrangement."""

    suite: Suite
    mode: str
    rows: dict[str, Row]

    def reason_for(self, table: dict[tuple[str, str, str, str], str], scenario: str, column: str) -> str | None:
        return reason(table, self.suite.name, self.mode, scenario, column)

    def expected(self, scenario: str, column: str) -> str | None:
        """Returns the reason why this cell may fail, if there is one."""
        found = (self.reason_for(table, scenario, column) for table in (UNTRANSLATABLE, NOT_YET, HURRIED))
        return next((text for text in found if text is not None), None)

    def __str__(self) -> str:
        """Markdown, with aligned columns."""
        role = {"server": "client", "client": "server"}[self.mode]
        titles = list(next(iter(self.rows.values())))
        lines = [[f"{self.suite.name}, suite as {role}", *titles]]
        lines += [[name, *(str(row[title]) for title in titles)] for name, row in self.rows.items()]
        widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
        lines.insert(1, ["-" * width for width in widths])
        return "\n".join(
            "| " + " | ".join(word.ljust(width) for word, width in zip(line, widths, strict=True)) + " |"
            for line in lines
        )

    def notes(self) -> Iterator[str]:
        """Yields the remarks below the table: why a cell fails, and what isthmus keeps the suite from checking."""
        for name, row in self.rows.items():
            for title, cell in row.items():
                where = f"{self.suite.name} {name}, {title}"
                yield from (f"{where}: {complaint}" for complaint in cell.complaints)
                expected = self.expected(name, title)
                if cell.complaints and expected is not None and title != DIRECT:
                    yield f"{where}: expected, for {expected}"
                unreached = row[DIRECT].succeeded - cell.succeeded if DIRECT in row else frozenset()
                if not cell.complaints and not cell.total:
                    yield f"{where}: {self.reason_for(UNCHECKED, name, title)}"
                elif not cell.complaints and unreached:
                    yield f"{where}: passes without {', '.join(sorted(unreached))}"

    def regressions(self) -> Iterator[str]:
        """Yields the cells that fail through isthmus although the direct run passes, without a reason."""
        for name, row in self.rows.items():
            if DIRECT in row and row[DIRECT].complaints:
                continue
            for title, cell in row.items():
                if cell.complaints and self.expected(name, title) is None:
                    yield f"{self.suite.name} {name}, {title}"

    def surprises(self) -> Iterator[str]:
        """Yields the lines of `UNTRANSLATABLE` that are no longer true: the cell passes."""
        for name, row in self.rows.items():
            for title, cell in row.items():
                if (
                    title != DIRECT
                    and cell.total
                    and not cell.complaints
                    and self.reason_for(UNTRANSLATABLE, name, title)
                ):
                    yield f"{self.suite.name} {name}, {title}"


def run_table(
    suite: Suite, mode: str, names: Sequence[str], arrangements: Mapping[str, Arrangement], jobs: int
) -> Table:
    """Runs every scenario in every arrangement, `jobs` at once."""
    table = Table(suite, mode, {})
    with ThreadPoolExecutor(jobs) as pool:
        cells = {
            (name, title): pool.submit(run_cell, table, name, title, arrangement)
            for name in names
            for title, arrangement in arrangements.items()
        }
        for number, name in enumerate(names, 1):
            row = table.rows[name] = Row()
            for title in arrangements:
                row[title] = cells[name, title].result()
                say(f"{suite.name} {mode} {number}/{len(names)} {name}, {title}: {row[title]}")
    return table


def run_cell(table: Table, name: str, title: str, arrangement: Arrangement) -> Cell:
    suite = table.suite
    folder = LAST / suite.name.replace(" ", "-") / table.mode / name / title.replace(", ", "-").replace(" ", "-")
    folder.mkdir(parents=True)
    try:
        with arrangement(folder) as arguments:
            cell = run_scenario(suite, name, arguments, folder)
    except AssertionError as error:  # isthmus did not start, or did not end well
        (folder / "error.txt").write_text(str(error), encoding="utf-8")
        cell = Cell(complaints=(f"isthmus: {str(error).splitlines()[-1].lstrip(': ')}",))
    if not cell.total and not cell.complaints and table.reason_for(UNCHECKED, name, title) is None:
        return Cell(complaints=("nothing was checked",))
    return cell


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="The official MCP conformance suites, through isthmus.")
    parser.add_argument("--suite", choices=tuple(SUITES), help="this suite only; default: all")
    parser.add_argument("--mode", choices=("server", "client"), help="what the suite checks; default: both")
    parser.add_argument("--scenario", action="append", metavar="NAME", help="only this one; may be repeated")
    parser.add_argument(
        "--column", action="append", metavar="TITLE", help="only columns that begin so; may be repeated"
    )
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="scenarios at once; default: 2")
    return parser.parse_args()


def main() -> int:
    options = parse_options()
    if shutil.which("npm") is None:
        sys.exit("the conformance suites need Node.js with npm")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # processes are ended on the way out
    for suite in SUITES.values():
        install(suite)
    modes = [mode for mode in ("server", "client") if options.mode in (None, mode)]
    chosen = {
        (name, mode): scenarios(suite, mode)
        for name, suite in SUITES.items()
        if options.suite in (None, name)
        for mode in modes
    }
    if unknown := set(options.scenario or ()) - {name for names in chosen.values() for name in names}:
        sys.exit(f"no such scenario: {', '.join(sorted(unknown))}")
    shutil.rmtree(LAST, ignore_errors=True)

    tables = list(run_chosen(chosen, options))
    for table in tables:
        for note in table.notes():
            print(f"- {note}")
    return summary(tables)


def run_chosen(chosen: Mapping[tuple[str, str], Sequence[str]], options: argparse.Namespace) -> Iterator[Table]:
    with contextlib.ExitStack() as stack:
        urls = {suite.name: stack.enter_context(reference_server(suite, LAST / suite.server.name)) for suite in PEERS}
        for (of_suite, mode), every in chosen.items():
            suite = SUITES[of_suite]
            wanted = [name for name in every if options.scenario is None or name in options.scenario]
            if not wanted:
                continue
            logins = [name for name in wanted if name.startswith(NEEDS_OAUTH)]
            others = [name for name in wanted if not name.startswith(NEEDS_OAUTH)]
            all_of = server_arrangements(suite, urls) if mode == "server" else client_arrangements(suite)
            for names, arrangements in ((others, all_of), (logins, login_arrangements(suite))):
                titles = tuple(options.column or ("",))
                chosen_ones = {title: one for title, one in arrangements.items() if title.startswith(titles)}
                if names and chosen_ones:
                    table = run_table(suite, mode, names, chosen_ones, options.jobs)
                    print(table, end="\n\n")
                    yield table


def summary(tables: Sequence[Table]) -> int:
    """Prints the totals. Returns the exit code."""
    worse = [cell for table in tables for cell in table.regressions()]
    stale = [cell for table in tables for cell in table.surprises()]
    cells = [cell for table in tables for row in table.rows.values() for cell in row.values()]
    print(f"\n{sum(not cell.complaints for cell in cells)} of {len(cells)} cells pass")
    print(f"through isthmus these do not, and nothing says why: {'; '.join(worse) or 'none'}")
    if stale:
        print(f"differences.py is wrong about these, which pass: {'; '.join(stale)}")
    return 1 if worse or stale else 0


if __name__ == "__main__":
    sys.exit(main())
