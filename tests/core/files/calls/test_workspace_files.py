"""The ledger knows each file as it was noted last, forgets the oldest first, and calls new what it does not know."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from isthmus.core.base.effects import SeenFile
from isthmus.core.files.calls.workspace_files import Entry, Ledger, is_finished

ROOTS = ("/w/ws", "/w/out", "/w")


def seen(path: str, stamp: str = "1", size_bytes: int = 1, *, is_busy: bool = False) -> SeenFile:
    return SeenFile(path, size_bytes, stamp, is_busy=is_busy)


def test_a_file_is_known_by_path_and_stamp() -> None:
    ledger = Ledger(8)
    assert not ledger.knows(seen("/w/ws/a"))
    ledger.note(seen("/w/ws/a"), "aid")
    assert ledger.knows(seen("/w/ws/a"))
    assert not ledger.knows(seen("/w/ws/a", "2"))
    assert not ledger.knows(seen("/w/ws/b"))
    assert ledger.find("/w/ws/a") == Entry("1", "aid", "", 1)
    assert ledger.find("/w/ws/b") is None


def test_noting_again_replaces_what_was_known() -> None:
    ledger = Ledger(8)
    ledger.note(seen("/w/ws/a"), "aid")
    ledger.note(seen("/w/ws/a", "2"), uri="upload://u")
    assert ledger.find("/w/ws/a") == Entry("2", "", "upload://u", 2)
    assert len(ledger) == 1


def test_a_baseline_keeps_what_is_known_already() -> None:
    ledger = Ledger(8)
    ledger.note(seen("/w/ws/a"), "aid")
    ledger.begin([seen("/w/ws/a"), seen("/w/ws/b")])
    assert ledger.is_begun
    assert ledger.find("/w/ws/a") == Entry("1", "aid", number=1)
    assert ledger.find("/w/ws/b") == Entry("1", number=2)


@pytest.mark.parametrize(
    ("path", "is_output"),
    [
        ("/w/ws/a.png", True),
        ("/w/ws/sub/dir/a", True),
        ("/w/out/Web Data", True),
        ("/w/ws/a.tmpl", True),
        ("/w/ws/lock", True),
        ("/w/ws/part.one", True),
        ("/.hidden/a", True),  # outside the roots the name alone counts
        ("/w/ws/.hidden", False),
        ("/w/ws/.git/config", False),
        ("/w/ws/a/__pycache__/b.pyc", False),
        ("/w/ws/node_modules/x/index.js", False),
        ("/w/out/a.TMP", False),
        ("/w/out/a.part", False),
        ("/w/out/a.partial", False),
        ("/w/out/a.crdownload", False),
        ("/w/out/a.download", False),
        ("/w/out/.a.swp", False),
        ("/w/out/a.swp", False),
        ("/w/out/a.lock", False),
        ("/w/out/a-journal", False),
        ("/w/out/a.db-wal", False),
        ("/w/out/a.db-shm", False),
        ("/w/out/~$report.docx", False),
        ("/w/out/.~lock.report.odt#", False),
    ],
)
def test_what_is_nobodys_output_is_told_by_its_name(path: str, is_output: bool) -> None:
    assert Ledger(8).changed([seen(path)], ROOTS) == ([seen(path)] if is_output else [])


def test_folders_above_a_root_hide_nothing() -> None:
    file = seen("/home/.cache/node_modules/ws/a")
    assert Ledger(8).changed([file], ("/home/.cache/node_modules/ws/",)) == [file]
    assert Ledger(8).changed([file], ("/home/.cache",)) == []
    dotted = seen("/w/etc./a")
    assert Ledger(8).changed([dotted], ("/w/etc.",)) == [dotted]


def test_what_is_not_finished_is_new_later() -> None:
    ledger = Ledger(8)
    empty, busy = seen("/w/ws/a", size_bytes=0), seen("/w/ws/b", is_busy=True)
    assert not is_finished(empty)
    assert not is_finished(busy)
    assert ledger.changed([empty, busy], ROOTS) == []
    done = [seen("/w/ws/a", "2"), seen("/w/ws/b", "2")]
    assert ledger.changed(done, ROOTS) == done


def test_awaited_paths_are_kept_in_order_until_they_are_settled_or_too_many() -> None:
    ledger = Ledger(8)
    ledger.awaits("/w/ws/a")
    ledger.awaits("/w/ws/b")
    ledger.awaits("/w/ws/a")
    assert ledger.awaited() == ["/w/ws/b", "/w/ws/a"]
    ledger.note(seen("/w/ws/b"))
    ledger.settle("/w/ws/never")
    assert ledger.awaited() == ["/w/ws/a"]
    for number in range(64):
        ledger.awaits(f"/w/ws/{number}")
    assert ledger.awaited() == [f"/w/ws/{number}" for number in range(64)]


PATHS = st.sampled_from([f"/w/ws/{name}" for name in "abcdef"])
FILES = st.builds(seen, PATHS, st.sampled_from("12"))


@given(limit=st.integers(1, 4), noted=st.lists(FILES, max_size=12), listed=st.lists(FILES, max_size=6))
def test_it_holds_the_files_noted_last(limit: int, noted: list[SeenFile], listed: list[SeenFile]) -> None:
    """As a list of what was noted, looked through from its end."""
    ledger = Ledger(limit)
    for file in noted:
        ledger.note(file)
    last = {file.path: file.stamp for file in noted}
    kept = list(dict.fromkeys(file.path for file in reversed(noted)))[:limit]
    assert len(ledger) == len(kept)
    for path in last:
        entry = ledger.find(path)
        assert (entry is not None) == (path in kept)
        assert entry is None or entry.stamp == last[path]
    assert {path: entry.stamp for path, entry in ledger.entries()} == {path: last[path] for path in kept}
    new = [file for file in listed if file.path not in kept or last[file.path] != file.stamp]
    assert ledger.changed(listed, ("/w/ws",)) == new


def test_only_what_is_seen_where_a_copy_is_being_laid_is_no_news() -> None:
    """Each folder until as many copies have arrived as were on their way; a folder whose name goes on is another."""
    ledger = Ledger(8)
    inside, beside, longer = seen("/w/in/u1/a"), seen("/w/in/u2/a"), seen("/w/in/u11/a")
    assert ledger.is_new(inside)
    ledger.begin_placing("/w/in/u1")
    ledger.begin_placing("/w/in/u1")
    ledger.end_placing("/w/in/u1")
    assert [ledger.is_new(file) for file in (inside, beside, longer)] == [False, True, True]
    ledger.begin([inside, beside, longer])
    assert [path for path, _ in ledger.entries()] == [beside.path, longer.path]
    ledger.end_placing("/w/in/u1")
    assert ledger.is_new(inside)


def test_a_copy_that_was_laid_is_known_and_one_that_was_changed_since_is_news() -> None:
    ledger = Ledger(8)
    ledger.place("/w/in/u1/a", "1", "upload://a")
    assert ledger.find("/w/in/u1/a") == Entry("1", "", "upload://a", 1)
    changed = seen("/w/in/u1/a", "2")
    ledger.note(changed)
    ledger.place("/w/in/u1/a", "1", "upload://a")
    assert ledger.knows(changed)


def kept_of(ledger: Ledger) -> str:
    """The names of what is known, the one that would be forgotten first before the others."""
    return "".join(path.removeprefix("/w/ws/") for path, _ in ledger.entries())


def test_what_was_noted_or_seen_last_is_forgotten_last() -> None:
    """Noting again counts; being listed does where more than half of what can be kept is known."""
    ledger = Ledger(4)
    for name in "ab":
        ledger.note(seen(f"/w/ws/{name}"))
    ledger.changed([seen("/w/ws/a")], ROOTS)
    assert kept_of(ledger) == "ab"
    ledger.note(seen("/w/ws/a", "2"))
    assert kept_of(ledger) == "ba"
    ledger.note(seen("/w/ws/c"))
    ledger.changed([seen("/w/ws/x"), seen("/w/ws/b"), seen("/w/ws/a", "3")], ROOTS)
    assert kept_of(ledger) == "cba"
    for name in "de":
        ledger.note(seen(f"/w/ws/{name}"))
    assert kept_of(ledger) == "bade"
    assert [entry.number for _, entry in ledger.entries()] == [2, 3, 5, 6]


@pytest.mark.parametrize("root", ["/w/FAQ", "/w/FAQ/", "/w/FAQ//"])
def test_a_root_hides_nothing_by_its_own_name(root: str) -> None:
    """However it is written; below it hidden folders are nobody's output."""
    for below, is_output in (("a", True), (".git/a", False), ("b/.git/a", False), ("b/a", True)):
        file = seen(f"/w/FAQ/{below}")
        assert Ledger(8).changed([file], (root,)) == ([file] if is_output else [])
