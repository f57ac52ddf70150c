"""The servers of the session, one of each kind in each process of tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from record_servers import KINDS, RecordServer, running


@pytest.fixture(scope="session", params=KINDS, name="record_server")
def _record_server(request: pytest.FixtureRequest) -> Iterator[RecordServer]:
    with running(request.param) as server:
        yield server
