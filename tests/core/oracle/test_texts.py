"""What the oracle says of each case that breaks a rule: word for word, with the observations that show it.

The lines are in `samples/oracle_texts.txt`, in the order of the cases. Who changes what is said reads them like prose,
and writes them anew with `python tests/core/oracle/test_texts.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from isthmus.core.oracle import RULES
from oracle_cases import CASES, found

TEXTS = Path(__file__).parents[1] / "samples" / "oracle_texts.txt"


def lines() -> Iterator[str]:
    """Each violation once for all revisions in which it is the same."""
    for number, case in enumerate(CASES):
        said: dict[str, list[str]] = {}
        for revision in RULES[case.rule].clauses:
            _, violations = found(case, revision, is_broken=True)
            for one in violations:
                shown = ",".join(map(str, one.observations))
                text = "got what is no JSON: …" if one.rule == "not-json" else one.text  # the parser has its own words
                line = f"{one.rule} ({one.who.value}, {shown}): {text}"
                said.setdefault(line, []).append(revision)
        for line, revisions in said.items():
            yield f"{number} {' '.join(revisions)} {line}"


def test_each_case_is_told_in_its_words() -> None:
    assert list(lines()) == TEXTS.read_text(encoding="utf-8").splitlines()


if __name__ == "__main__":
    TEXTS.write_text("".join(f"{line}\n" for line in lines()), encoding="utf-8")
