"""Tests of released servers that are tried by hand, as `docs/trying.md` says."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import rig
from preloaded import ISTHMUS

pytestmark = pytest.mark.real

PEERS = Path(__file__).parent / "peers"
PATIENCE_S = 120.0


def run(*arguments: str, cwd: Path | None = None) -> tuple[int, str, str]:
    """Runs the command to its end: exit code, stdout, stderr."""
    command = [str(ISTHMUS), *arguments]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    return done.returncode, done.stdout.rstrip("\n"), done.stderr.rstrip("\n")


def test_an_image_is_saved_a_task_is_waited_for_and_a_question_is_declined(tmp_path: Path) -> None:
    everything = ("--", str(rig.require(rig.EVERYTHING)), "stdio")
    code, _, err = run("call", "--save", "made", "get-tiny-image", *everything, cwd=tmp_path)
    assert code == 0
    assert err.endswith("saved made/get-tiny-image.png (image/png, 3.9 KiB)")
    assert (tmp_path / "made" / "get-tiny-image.png").stat().st_size == 4033
    code, out, err = run("call", "simulate-research-query", "topic=tides", *everything)
    assert code == 0
    assert out.startswith("# Research Report: tides")
    assert "Generating report" in err
    code, out, err = run("call", "trigger-elicitation-request", *everything)
    assert code == 0
    assert "declined, as there is no terminal to ask on" in err
    assert '"action": "decline"' in out


def test_a_document_is_uploaded_and_comes_back_as_markdown(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("name,size\na,1\n")
    command = ("--", str(rig.require(rig.MARKITDOWN)))
    code, out, err = run("call", "--files", "convert_to_markdown", "uri=@t.csv", *command, cwd=tmp_path)
    assert (code, out) == (0, "| name | size |\n| --- | --- |\n| a | 1 |")
    assert "uri: t.csv is uploaded, the tool gets its handle" in err


def test_a_server_of_both_eras_is_tried_in_the_newer_one() -> None:
    command = ("--", str(rig.require(rig.PYTHON_2)), str(PEERS / "workshop_python2.py"), "stdio")
    code, out, err = run("call", "count", "to=2", *command)
    assert (code, out) == (0, "counted to 2")
    assert "2 of 2" in err
    code, out, err = run("call", "form", *command)
    assert (code, out) == (0, "decline None")
    assert "asks: Which colour?: declined" in err
