"""A server of records of each kind, which the tests of a file may stop and kill, if they start it again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from record_servers import KINDS, NotInstalled, RecordServer, running
from s3_server import S3Server, running_server


@pytest.fixture(scope="module", params=KINDS)
def record_server(request: pytest.FixtureRequest) -> Iterator[RecordServer]:
    try:
        with running(request.param) as server:
            yield server
    except NotInstalled as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with running_server(tmp_path_factory.mktemp("moto")) as server:
        yield server
