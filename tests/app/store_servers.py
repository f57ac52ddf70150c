"""Real servers for shared stores. The tests of a file may stop and kill those of records, if they start them again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from record_servers import KINDS, NotInstalled, RecordServer, running
from s3_server import S3Server, running_server


@contextmanager
def _running(kind: str) -> Iterator[RecordServer]:
    try:
        with running(kind) as server:
            yield server
    except NotInstalled as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="module", params=KINDS)
def record_server(request: pytest.FixtureRequest) -> Iterator[RecordServer]:
    """A server of each kind, for what depends on it. Where both keep the laws of `tests/storage`, one is enough."""
    with _running(request.param) as server:
        yield server


@pytest.fixture(scope="module")
def postgres_server() -> Iterator[RecordServer]:
    with _running("postgres") as server:
        yield server


@pytest.fixture(scope="module")
def redis_server() -> Iterator[RecordServer]:
    with _running("redis") as server:
        yield server


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with running_server(tmp_path_factory.mktemp("moto")) as server:
        yield server
