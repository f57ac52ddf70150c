"""Tests of the tables that screens begin with: they fit 80 columns, and say of each server what there is to say."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st
from isthmus.app.base import output
from isthmus.app.commands import check_screen, server_table
from isthmus.app.commands.server_table import WIDTH, Row, joined, painted, table
from isthmus.app.config.settings import Server, Settings, Upstream
from isthmus.app.runtime.probe import ServerReport

NAMES = st.text(st.characters(min_codepoint=32, max_codepoint=0x2FF), min_size=1, max_size=70)
IDS = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", fullmatch=True)
REPORTS = st.builds(
    ServerReport,
    id=st.just("x"),
    name=NAMES,
    version=NAMES,
    eras=st.sampled_from([{}, {"handshake": "2025-11-25"}, {"handshake": "2025-06-18", "stateless": "2026-07-28"}]),
    tools=st.one_of(st.none(), st.lists(NAMES, max_size=9, unique=True).map(tuple)),
    problem=st.one_of(st.just(""), st.text(st.sampled_from("ab \x1b\n"), max_size=300)),
    is_unasked=st.booleans(),
)


@given(ids=st.lists(IDS, min_size=1, max_size=5, unique=True), reports=st.data())
def test_the_screen_of_check_fits(ids: list[str], reports: st.DataObject) -> None:
    """A line is wider only for a word that is not broken."""
    servers = [Server(id=id, upstream=Upstream(command=("x",))) for id in ids]
    found = [reports.draw(REPORTS) for _ in ids]
    lines = check_screen.lines_of(Settings(), servers, found, with_eras=True)
    for line in output.laid_out("\n".join(lines)).split("\n"):
        assert len(line) <= WIDTH or max(map(len, line.split())) > 30, line
        assert line.isprintable()
    assert all(any(line.startswith(id[: server_table.ID_MIN - 1]) for line in lines) for id in ids)


@given(names=st.lists(NAMES, max_size=30), columns=st.integers(10, 80), tail=st.sampled_from(["", " (3 hidden)"]))
def test_names_that_do_not_fit_are_counted(names: list[str], columns: int, tail: str) -> None:
    line = joined(names, columns, tail)
    more = re.search(r" and (\d+) more( \(3 hidden\))?$", line)
    shown = len(names) - int(more[1]) if more else len(names)
    assert not names or line.startswith(", ".join(names[:shown])[:11])
    assert len(line) <= max(columns, 40)


def test_states_are_painted_and_words_of_peers_are_not() -> None:
    rows = [Row("FAILED", "ready", "stdio", "1", "ready FAILED"), Row("b", "FAILED", "http", "-", "")]
    screen = "\n".join([*table(rows, last=""), "    FAILED  no, FAILED", "WARNING b: WARNING"])
    shown = painted(screen)
    assert re.sub(r"\x1b\[\d*m", "", shown) == screen
    assert re.findall(r"\x1b\[(\d+)m(.*?)\x1b\[0m", shown) == [
        ("1", "SERVER  STATE   SPEAKS  TOOLS"),
        ("32", "ready"),
        ("31", "FAILED"),
        ("31", "FAILED"),
        ("33", "WARNING"),
    ]
