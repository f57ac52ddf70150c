"""A server of records of each kind, which the tests of a file may stop and kill, if they start it again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from record_servers import KINDS, NotInstalled, RecordServer, running


@pytest.fixture(scope="module", params=KINDS)
def record_server(request: pytest.FixtureRequest) -> Iterator[RecordServer]:
    try:
        with running(request.param) as server:
            yield server
    except NotInstalled as missing:
        pytest.skip(str(missing))
