"""Tests of blobs in S3 against the laws, with one opener and with several, on both event loops and a real server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import laws
import pytest
import shared_blob_laws
from hypothesis import HealthCheck, given, settings
from s3_server import OpenedS3, S3Server, server_fixture  # noqa: F401 (a fixture)

pytestmark = pytest.mark.real

EXAMPLES = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))


@EXAMPLES
@given(operations=laws.blob_operations)
def test_blobs_are_a_dict(
    server: S3Server,
    tmp_path_factory: pytest.TempPathFactory,
    operations: list[tuple[object, ...]],
) -> None:
    opener = OpenedS3(server, tmp_path_factory.mktemp("blobs"))
    anyio.run(laws.blobs_are_a_dict, opener, operations)


@EXAMPLES
@given(operations=shared_blob_laws.shared_operations)
def test_shared_blobs_are_a_dict(
    server: S3Server,
    tmp_path_factory: pytest.TempPathFactory,
    operations: list[tuple[object, ...]],
) -> None:
    opener = OpenedS3(server, tmp_path_factory.mktemp("blobs"))
    anyio.run(shared_blob_laws.shared_blobs_are_a_dict, opener, operations)


@pytest.mark.parametrize("law", laws.BLOB_LAWS)
@pytest.mark.anyio
async def test_law_of_blobs(
    law: Callable[[laws.OpensBlobs], Awaitable[None]], server: S3Server, tmp_path: Path
) -> None:
    with anyio.fail_after(60):
        await law(OpenedS3(server, tmp_path))


@pytest.mark.parametrize("law", shared_blob_laws.SHARED_BLOB_LAWS)
@pytest.mark.anyio
async def test_law_of_shared_blobs(
    law: Callable[[shared_blob_laws.OpensShared], Awaitable[None]], server: S3Server, tmp_path: Path
) -> None:
    with anyio.fail_after(60):
        await law(OpenedS3(server, tmp_path))
