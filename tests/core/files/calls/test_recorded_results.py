"""Tests of recorded results of released servers: each file that they made becomes an artifact, no file of their own
does, and no path of theirs is left in the results.

The disk is made up from the changes of each call. The survey of it, and the choice of files, are as plain as possible.
"""

from __future__ import annotations

import json
import posixpath
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
from isthmus.core.base.plan import AutoFiles
from isthmus.core.base.storage import SeenFile
from isthmus.core.files.calls.claims import claims_of
from isthmus.core.files.calls.path_rewriter import KnownPath, reword_result
from isthmus.core.files.calls.workspace_files import KnownFiles, is_finished

SAMPLES = sorted((Path(__file__).parents[2] / "samples").glob("*.jsonl"))
ROOT = "/srv/isthmus/w1"
CWD, AREAS = f"{ROOT}/ws", (f"{ROOT}/ws", f"{ROOT}/out", f"{ROOT}/in")


class Disk:
    """The files at each path: their sizes, and the number of the call that wrote each last."""

    def __init__(self) -> None:
        self.files: dict[str, tuple[int, int]] = {
            f"{ROOT}/{name}": (9, 0) for name in ("ws/in2.txt", "ws/logo.png", "in/in.txt", "in/t.csv", "in/a.md")
        }

    def write(self, number: int, changed: dict[str, int], found: list[str]) -> None:
        for path in found:  # files written between two calls, or folders
            self.files[path if "." in posixpath.basename(path) else f"{path}/held.jpeg"] = (1, number)
        self.files.update((path, (size, number)) for path, size in changed.items())

    def seen(self, path: str) -> SeenFile:
        size, number = self.files[path]
        return SeenFile(path, size, f"{number}-{size}")

    def at(self, path: str) -> list[SeenFile]:
        return [self.seen(file) for file in sorted(self.files) if file == path or file.startswith(path + "/")]

    def listed(self) -> list[SeenFile]:
        return [file for area in AREAS for file in self.at(area)]


def steps_of(sample: Path) -> list[dict[str, Any]]:
    lines = sample.read_text(encoding="utf-8").replace("$DIR", ROOT).splitlines()
    return [step for line in lines if "result" in (step := json.loads(line))]


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.stem)
def test_each_file_of_real_servers_is_taken_and_no_path_is_shown(sample: Path) -> None:
    disk, known_files = Disk(), KnownFiles(1000)
    known_files.begin(disk.listed())
    uris: dict[str, str] = {}
    for number, step in enumerate(steps_of(sample), 1):
        disk.write(number, step["changed"], step["found"])
        result = json.dumps(step["result"]).encode()
        arguments = json.dumps(step["args"]).encode()
        claims = claims_of(result, AutoFiles(), arguments=arguments, allocated=None, limit=64)
        named: list[SeenFile] = []
        for spellings, is_guess in zip(claims.named, claims.is_guess, strict=True):
            places = [disk.at(posixpath.normpath(posixpath.join(CWD, path))) for path in spellings]
            found = next((files for files in places if files), [])
            assert found or is_guess, f"{spellings} would be missed"
            named += found
        listed = known_files.changed(disk.listed(), AREAS) if claims.wants_areas else []
        new = [file for file in named if not known_files.knows(file) and is_finished(file)]
        taken = dict.fromkeys(file.path for file in [*new, *listed])
        for path in taken:
            assert path.startswith(AREAS)
            assert disk.files[path][0] > 0
            known_files.note(disk.seen(path), aid=str(number))
            uris[path] = f"artifact://sessions/s/{number}/x"
        for pattern in step["expect"]:
            assert any(fnmatchcase(path, pattern) or path.startswith(f"{pattern}/") for path in taken), pattern
        known = [KnownPath((path,), uri) for path, uri in uris.items()]
        reworded = reword_result(result, known, CWD, (*AREAS, ROOT), None)
        assert ROOT.encode() not in reworded
        for path in taken:
            assert posixpath.basename(path).encode() not in result or uris[path].encode() in reworded
        assert reword_result(reworded, known, CWD, (*AREAS, ROOT), None) == reworded


def test_the_samples_are_those_of_all_servers() -> None:
    steps = [step for sample in SAMPLES for step in steps_of(sample)]
    assert len(steps) == 55
    assert sum(len(step["expect"]) for step in steps) == 19
