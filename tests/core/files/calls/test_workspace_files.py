"""Tests of the known files of a workspace: each is known as it was noted last, the oldest are forgotten first, and
unknown files are new."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from isthmus.core.base.storage import SeenFile
from isthmus.core.files.calls.workspace_files import KnownFile, KnownFiles, is_finished

ROOTS = ("/w/ws", "/w/out", "/w")


def seen(path: str, stamp: str = "1", size_bytes: int = 1, *, is_busy: bool = False) -> SeenFile:
    return SeenFile(path, size_bytes, stamp, is_busy=is_busy)


def test_a_file_is_known_by_path_and_stamp() -> None:
    known_files = KnownFiles(8)
    assert not known_files.knows(seen("/w/ws/a"))
    known_files.note(seen("/w/ws/a"), "aid")
    assert known_files.knows(seen("/w/ws/a"))
    assert not known_files.knows(seen("/w/ws/a", "2"))
    assert not known_files.knows(seen("/w/ws/b"))
    assert known_files.find("/w/ws/a") == KnownFile("1", "aid", "", 1, version=1)
    assert known_files.find("/w/ws/b") is None


def test_noting_again_replaces_what_was_known() -> None:
    known_files = KnownFiles(8)
    known_files.note(seen("/w/ws/a"), "aid")
    known_files.note(seen("/w/ws/a", "2"), uri="upload://u")
    assert known_files.find("/w/ws/a") == KnownFile("2", "", "upload://u", 2, version=1)
    assert len(known_files) == 1


def test_artifacts_of_one_path_are_counted() -> None:
    """A file that is noted without an artifact changes neither the count nor the last URI."""
    known_files = KnownFiles(8)
    made = []
    for stamp, uri in (("1", "artifact://1"), ("2", ""), ("3", "artifact://3"), ("4", "artifact://4")):
        known_files.note(seen("/w/ws/a", stamp), uri[-1:], uri)
        known_files.note(seen("/w/ws/b", stamp))
        entry = known_files.find("/w/ws/a")
        assert entry is not None
        made.append((entry.version, entry.latest, entry.replaces))
    assert made == [
        (1, "artifact://1", ""),
        (1, "artifact://1", ""),
        (2, "artifact://3", "artifact://1"),
        (3, "artifact://4", "artifact://3"),
    ]
    assert known_files.find("/w/ws/b") == KnownFile("4", number=8)


def test_a_baseline_keeps_what_is_known_already() -> None:
    known_files = KnownFiles(8)
    known_files.note(seen("/w/ws/a"), "aid")
    known_files.begin([seen("/w/ws/a"), seen("/w/ws/b")])
    assert known_files.is_begun
    assert known_files.find("/w/ws/a") == KnownFile("1", "aid", number=1, version=1)
    assert known_files.find("/w/ws/b") == KnownFile("1", number=2)


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
def test_files_with_these_names_are_no_outputs(path: str, is_output: bool) -> None:
    assert KnownFiles(8).changed([seen(path)], ROOTS) == ([seen(path)] if is_output else [])


def test_folders_above_a_root_hide_nothing() -> None:
    file = seen("/home/.cache/node_modules/ws/a")
    assert KnownFiles(8).changed([file], ("/home/.cache/node_modules/ws/",)) == [file]
    assert KnownFiles(8).changed([file], ("/home/.cache",)) == []
    dotted = seen("/w/etc./a")
    assert KnownFiles(8).changed([dotted], ("/w/etc.",)) == [dotted]


def test_an_unfinished_file_is_new_later() -> None:
    known_files = KnownFiles(8)
    empty, busy = seen("/w/ws/a", size_bytes=0), seen("/w/ws/b", is_busy=True)
    assert not is_finished(empty)
    assert not is_finished(busy)
    assert known_files.changed([empty, busy], ROOTS) == []
    done = [seen("/w/ws/a", "2"), seen("/w/ws/b", "2")]
    assert known_files.changed(done, ROOTS) == done


def test_awaited_paths_are_kept_in_order_until_they_are_settled_or_too_many() -> None:
    known_files = KnownFiles(8)
    known_files.awaits("/w/ws/a")
    known_files.awaits("/w/ws/b")
    known_files.awaits("/w/ws/a")
    assert known_files.awaited() == ["/w/ws/b", "/w/ws/a"]
    known_files.note(seen("/w/ws/b"))
    known_files.settle("/w/ws/never")
    assert known_files.awaited() == ["/w/ws/a"]
    for number in range(64):
        known_files.awaits(f"/w/ws/{number}")
    assert known_files.awaited() == [f"/w/ws/{number}" for number in range(64)]


PATHS = st.sampled_from([f"/w/ws/{name}" for name in "abcdef"])
FILES = st.builds(seen, PATHS, st.sampled_from("12"))


@given(limit=st.integers(1, 4), noted=st.lists(FILES, max_size=12), listed=st.lists(FILES, max_size=6))
def test_the_files_noted_last_are_known(limit: int, noted: list[SeenFile], listed: list[SeenFile]) -> None:
    """The model is a list of what was noted, read from its end."""
    known_files = KnownFiles(limit)
    for file in noted:
        known_files.note(file)
    last = {file.path: file.stamp for file in noted}
    kept = list(dict.fromkeys(file.path for file in reversed(noted)))[:limit]
    assert len(known_files) == len(kept)
    for path in last:
        entry = known_files.find(path)
        assert (entry is not None) == (path in kept)
        assert entry is None or entry.stamp == last[path]
    assert {path: entry.stamp for path, entry in known_files.entries()} == {path: last[path] for path in kept}
    new = [file for file in listed if file.path not in kept or last[file.path] != file.stamp]
    assert known_files.changed(listed, ("/w/ws",)) == new


def test_files_in_a_folder_with_a_copy_under_way_are_not_new() -> None:
    """Files in a folder are not new until all copies under way there have arrived. A folder with a longer name is
    another."""
    known_files = KnownFiles(8)
    inside, beside, longer = seen("/w/in/u1/a"), seen("/w/in/u2/a"), seen("/w/in/u11/a")
    assert known_files.is_new(inside)
    known_files.begin_placing("/w/in/u1")
    known_files.begin_placing("/w/in/u1")
    known_files.end_placing("/w/in/u1")
    assert [known_files.is_new(file) for file in (inside, beside, longer)] == [False, True, True]
    known_files.begin([inside, beside, longer])
    assert [path for path, _ in known_files.entries()] == [beside.path, longer.path]
    known_files.end_placing("/w/in/u1")
    assert known_files.is_new(inside)


def test_a_placed_copy_is_known_and_a_later_change_is_kept() -> None:
    known_files = KnownFiles(8)
    known_files.place("/w/in/u1/a", "1", "upload://a")
    assert known_files.find("/w/in/u1/a") == KnownFile("1", "", "upload://a", 1)
    changed = seen("/w/in/u1/a", "2")
    known_files.note(changed)
    known_files.place("/w/in/u1/a", "1", "upload://a")
    assert known_files.knows(changed)


def kept_names(known_files: KnownFiles) -> str:
    """The names of the known files, in the order in which they would be forgotten."""
    return "".join(path.removeprefix("/w/ws/") for path, _ in known_files.entries())


def test_the_file_noted_or_seen_last_is_forgotten_last() -> None:
    """Noting a file again counts. Being listed counts when more than half of the limit is known."""
    known_files = KnownFiles(4)
    for name in "ab":
        known_files.note(seen(f"/w/ws/{name}"))
    known_files.changed([seen("/w/ws/a")], ROOTS)
    assert kept_names(known_files) == "ab"
    known_files.note(seen("/w/ws/a", "2"))
    assert kept_names(known_files) == "ba"
    known_files.note(seen("/w/ws/c"))
    known_files.changed([seen("/w/ws/x"), seen("/w/ws/b"), seen("/w/ws/a", "3")], ROOTS)
    assert kept_names(known_files) == "cba"
    for name in "de":
        known_files.note(seen(f"/w/ws/{name}"))
    assert kept_names(known_files) == "bade"
    assert [entry.number for _, entry in known_files.entries()] == [2, 3, 5, 6]


@pytest.mark.parametrize("root", ["/w/FAQ", "/w/FAQ/", "/w/FAQ//"])
def test_a_root_hides_nothing_by_its_own_name(root: str) -> None:
    """The spelling of the root does not matter. Hidden folders below it have no outputs."""
    for below, is_output in (("a", True), (".git/a", False), ("b/.git/a", False), ("b/a", True)):
        file = seen(f"/w/FAQ/{below}")
        assert KnownFiles(8).changed([file], (root,)) == ([file] if is_output else [])
