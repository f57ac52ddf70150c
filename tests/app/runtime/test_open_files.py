"""Tests of the limits of connections that follow from the system's limit of open files."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st
from isthmus.app.runtime.open_files import FEW_FILES, OPEN_FILES_MAX, open_files_for, within_open_files
from isthmus.core.base.limits import Limits

LIMITS = Limits()


@given(open_files=st.integers(64, 100_000))
def test_streams_leave_files_for_calls(open_files: int) -> None:
    fitted = within_open_files(LIMITS, open_files)
    streams = fitted.upstream_streams_max
    assert fitted.connections_max + streams <= open_files - min(open_files // 8, 2048), "for calls up, and all else"
    assert fitted.connections_max >= streams, "each is one to its client, too"
    assert fitted.connections_max - streams >= min(open_files // 8 - 1, 2048), "for calls of clients"
    assert fitted.connections_max <= LIMITS.connections_max and streams <= LIMITS.upstream_streams_max


def test_limits_stay_where_there_are_files_enough(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    assert LIMITS.upstream_streams_max >= LIMITS.sessions_max and LIMITS.connections_max > LIMITS.sessions_max
    enough = open_files_for(LIMITS)
    assert enough <= OPEN_FILES_MAX
    assert within_open_files(LIMITS, None) == within_open_files(LIMITS, enough) == LIMITS
    assert not caplog.messages
    within_open_files(LIMITS, FEW_FILES)
    assert not caplog.messages, "so many are enough for most, and nobody has to act"
    within_open_files(LIMITS, 1024)
    assert caplog.messages == [
        "1024 files may be open, so at most 512 client connections and 384 streams of servers are: raise the hard "
        f"limit of open files (ulimit -Hn, LimitNOFILE=) to {enough} for as many as the limits allow"
    ]
    assert caplog.records[0].levelno == logging.WARNING
