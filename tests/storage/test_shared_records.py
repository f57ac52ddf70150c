"""Tests of records on servers against the laws, with one opener and with two, on both event loops and real servers."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable

import anyio
import laws
import pytest
import shared_record_laws
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from record_servers import OpenedShared, RecordServer

pytestmark = pytest.mark.real

EXAMPLES = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))


@EXAMPLES
@given(operations=laws.record_operations)
def test_records_are_a_dict(record_server: RecordServer, operations: list[tuple[object, ...]]) -> None:
    anyio.run(laws.records_are_a_dict, OpenedShared(record_server), operations)


@EXAMPLES
@given(operations=laws.record_operations, choices=st.lists(st.booleans(), min_size=1, max_size=24))
def test_two_openers_are_one_dict(
    record_server: RecordServer, operations: list[tuple[object, ...]], choices: list[bool]
) -> None:
    """Whichever of two openers is asked each time, both answer as one dictionary does."""
    opener = shared_record_laws.OpensSpread(OpenedShared(record_server), itertools.cycle(choices))
    anyio.run(laws.records_are_a_dict, opener, operations)


@pytest.mark.parametrize("law", laws.RECORD_LAWS)
@pytest.mark.anyio
async def test_law_of_records(law: Callable[[laws.OpensRecords], Awaitable[None]], record_server: RecordServer) -> None:
    with anyio.fail_after(120):
        await law(OpenedShared(record_server))


@pytest.mark.parametrize("law", shared_record_laws.SHARED_RECORD_LAWS)
@pytest.mark.anyio
async def test_law_of_shared_records(
    law: Callable[[shared_record_laws.OpensShared], Awaitable[None]], record_server: RecordServer
) -> None:
    with anyio.fail_after(120):
        await law(OpenedShared(record_server))
