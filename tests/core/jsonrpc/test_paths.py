"""Dotted paths: keys with dots between, which may be empty, and marks for the items of lists."""

from __future__ import annotations

import pytest
from isthmus.core.jsonrpc.paths import EACH, parse_path


@pytest.mark.parametrize(
    ("path", "steps"),
    [
        ("", ("",)),
        ("a", ("a",)),
        ("a.b", ("a", "b")),
        ("a..b", ("a", "", "b")),
        (".a", ("", "a")),
        (EACH, (EACH,)),
        (f"a{EACH}", ("a", EACH)),
        (f"a{EACH}{EACH}.b", ("a", EACH, EACH, "b")),
        (f"{EACH}.b", (EACH, "b")),
    ],
)
def test_the_steps_of_a_path(path: str, steps: tuple[str, ...]) -> None:
    assert parse_path(path) == steps
