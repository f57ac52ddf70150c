"""Tests of the search for inputs that break a target: it finds planted faults, keeps promising inputs, and is
bounded."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

HARNESS = Path(__file__).parent.parent / "fuzz" / "harness"

TARGET = """
def test_one_input(data):
    if data[:1] == b"a":
        if data[1:2] == b"b":
            if data[2:3] == b"c":
                raise ValueError("planted")
"""

LENGTHS = """
def test_one_input(data):
    if len(data) > 5:
        if len(data) > 50:
            if len(data) > 500:
                return
"""


@pytest.fixture(scope="module")
def guided() -> ModuleType:
    spec = importlib.util.spec_from_file_location("guided", HARNESS / "guided.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def planted(folder: Path, source: str = TARGET) -> ModuleType:
    path = folder / "planted.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location("planted", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_search_is_guided_step_by_step(guided: ModuleType, tmp_path: Path) -> None:
    """Each byte that leads further is kept, so three of them are found in thousands of runs, not in millions."""
    call = planted(tmp_path).test_one_input
    found = [
        guided.search(call, [b"xyz"], guided.Tracer(tmp_path), seconds=60.0, seed=3, executions_max=20_000)
        for _ in range(2)
    ]
    assert found[0] == found[1], "equal seeds give equal searches"
    (finding,) = found[0].findings
    assert finding.data.startswith(b"abc")
    assert "planted" in finding.report
    assert any(data.startswith(b"ab") for data in found[0].kept)
    assert len(found[0].kept) <= found[0].arcs


def test_code_elsewhere_is_not_traced(guided: ModuleType, tmp_path: Path) -> None:
    call = planted(tmp_path).test_one_input
    tracer = guided.Tracer(tmp_path, but=(tmp_path,))
    assert tracer.run(call, b"ab") is None
    assert not tracer.arcs
    tracer = guided.Tracer(tmp_path / "else")
    assert "planted" in (tracer.run(call, b"abc") or "")


def test_mutated_inputs_are_bounded(guided: ModuleType) -> None:
    chance = guided.random.Random(1)
    corpus = [b"", b"x" * guided.INPUT_MAX_BYTES]
    sizes = {len(guided.mutated(chance, corpus)) for _ in range(500)}
    assert max(sizes) == guided.INPUT_MAX_BYTES and len(sizes) > 10


def test_the_oldest_of_a_full_corpus_makes_room(
    guided: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The given inputs stay, and so does the newest finding."""
    monkeypatch.setattr(guided, "CORPUS_MAX", 2)
    seen: list[list[bytes]] = []
    make = guided.mutated

    def mutated(chance: object, corpus: list[bytes]) -> bytes:
        seen.append(list(corpus))
        return bytes(make(chance, corpus))

    monkeypatch.setattr(guided, "mutated", mutated)
    call = planted(tmp_path, LENGTHS).test_one_input
    found = guided.search(call, [b"x"], guided.Tracer(tmp_path), seconds=60.0, seed=3, executions_max=2000)
    assert len(found.kept) >= 2
    assert all(corpus[0] == b"x" and len(corpus) <= 2 for corpus in seen)
    assert seen[-1] == [b"x", found.kept[-1]]


def test_a_finding_can_be_repeated(tmp_path: Path) -> None:
    """The command that a finding names runs its target on it, and fails, or reports that nothing does."""
    folder = tmp_path / "ndjson"
    folder.mkdir()
    (folder / "crash-1").write_bytes(b"\x05abc\n")
    command = [sys.executable, str(HARNESS / "campaign.py"), "--again", str(folder / "crash-1")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "no failure\n"
