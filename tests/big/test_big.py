"""Test of a file larger than the proxy's memory may grow. `make big` moves a far larger one."""

from __future__ import annotations

import moving


def test_a_large_file_goes_in_and_out_in_little_memory() -> None:
    grown = moving.move(64 * moving.MIB)
    assert set(grown) == {"POST", "PUT", "tus"}
    assert max(grown.values()) < moving.GROWTH_MAX_BYTES, grown
