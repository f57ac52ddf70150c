"""The servers of records: one of each kind in each process of tests, and one for a file that stops and kills it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from record_servers import KINDS, NotInstalled, PostgresServer, RecordServer, RedisServer, running


@contextmanager
def _running(kind: str) -> Iterator[RecordServer]:
    try:
        with running(kind) as server:
            yield server
    except NotInstalled as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="session", params=KINDS)
def record_server(request: pytest.FixtureRequest) -> Iterator[RecordServer]:
    with _running(request.param) as server:
        yield server


@pytest.fixture(scope="module", params=KINDS)
def faulty_server(request: pytest.FixtureRequest) -> Iterator[RecordServer]:
    """A server that the tests of a file may stop and kill, if they start it again."""
    with _running(request.param) as server:
        yield server


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    with _running("postgres") as server:
        assert isinstance(server, PostgresServer)
        yield server


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    with _running("redis") as server:
        assert isinstance(server, RedisServer)
        yield server
