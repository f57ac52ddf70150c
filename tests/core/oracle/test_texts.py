"""The texts of the oracle's violations, word for word, with the observations that show them.

The lines are in `samples/oracle_texts.txt`, in the order of the cases. After a change of a text, read them as prose,
and write them anew with `python tests/core/oracle/test_texts.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from isthmus.core.oracle import RULES
from oracle_cases import CASES, found

TEXTS = Path(__file__).parents[1] / "samples" / "oracle_texts.txt"


def lines() -> Iterator[str]:
    """Yields each violation once for all revisions in which it is the same."""
    for number, case in enumerate(CASES):
        revisions_by_line: dict[str, list[str]] = {}
        for revision in RULES[case.rule].clauses:
            _, violations = found(case, revision, is_broken=True)
            for one in violations:
                shown = ",".join(map(str, one.observations))
                text = "got what is no JSON: …" if one.rule == "not-json" else one.text  # the parser has its own words
                line = f"{one.rule} ({one.who.value}, {shown}): {text}"
                revisions_by_line.setdefault(line, []).append(revision)
        for line, revisions in revisions_by_line.items():
            yield f"{number} {' '.join(revisions)} {line}"


def test_each_case_has_its_text() -> None:
    assert list(lines()) == TEXTS.read_text(encoding="utf-8").splitlines()


if __name__ == "__main__":
    TEXTS.write_text("".join(f"{line}\n" for line in lines()), encoding="utf-8")
