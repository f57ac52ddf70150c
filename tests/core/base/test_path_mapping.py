"""Tests of path mapping: paths of a server that sees shared folders under other names."""

from __future__ import annotations

import pytest
from isthmus.core.base.path_mapping import to_here, to_there
from isthmus.core.base.plan import SharedFolder

SHARED = (SharedFolder(here="/srv/files", there="/data"), SharedFolder(here="/srv/deep", there="/data/deep/"))


@pytest.mark.parametrize(
    "here, there",
    [
        ("/srv/files", "/data"),
        ("/srv/files/a.txt", "/data/a.txt"),
        ("/srv/deep/a.txt", "/data/deep/a.txt"),  # the innermost folder counts
        ("/srv/files/deeper/a.txt", "/data/deeper/a.txt"),
    ],
)
def test_a_path_in_a_shared_folder_has_two_names(here: str, there: str) -> None:
    assert (to_there(here, SHARED), to_here(there, SHARED)) == (there, here)


@pytest.mark.parametrize("path", ["/database/a.txt", "/dat", "/srv/files.txt", "/srv/filesystem/a", "data/a.txt", "/"])
def test_a_path_that_only_begins_like_one_is_outside_and_stays(path: str) -> None:
    assert (to_there(path, SHARED), to_here(path, SHARED)) == (path, path)


def test_a_whole_disk_may_be_shared() -> None:
    shared = (SharedFolder(here="/mnt/disk", there="/"),)
    assert (to_here("/a.txt", shared), to_there("/mnt/disk/a.txt", shared)) == ("/mnt/disk/a.txt", "/a.txt")
    assert to_there("/mnt/disk", shared) == "/"


@pytest.mark.parametrize(
    ("here", "there"), [("/srv/Q", "/data/Q"), ("/srv/Q/", "/data/Q/"), ("/srv/QQ//", "/data/Q"), ("/Q", "/Q/Q")]
)
def test_slashes_at_the_end_of_a_folder_do_not_count_and_nothing_else_is_taken_off(here: str, there: str) -> None:
    shared = (SharedFolder(here=here, there=there),)
    outer, inner = here.rstrip("/"), there.rstrip("/")
    for rest in ("", "/a", "/Q", "/a/Q/"):
        assert to_there(outer + rest, shared) == inner + rest
        assert to_here(inner + rest, shared) == outer + rest
    for other in (outer[:-1] + "/a", outer + "Q/a", outer + "x"):
        assert to_there(other, shared) == other
