"""Tests of copied files: which are kept, which are discarded, and what is reported of those."""

from __future__ import annotations

import json
from typing import Any

import pytest
from driving import connect, driver
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import ArtifactProducer, Kind, LocatorMode, OutputLocator, ServerPlan
from isthmus.core.base.storage import Collect, Collected, CollectedFile, Discard, Save, Saved
from stateless_driving import tables

LOCATOR = OutputLocator(mode=(LocatorMode.STRUCTURED,), output_path_key="p")
PLAN = ServerPlan(
    id="s", kind=Kind.PIPE, producers=(ArtifactProducer(tools=("t",), output_locator=LOCATOR, expose_as_resource=True),)
)
FULL = "this session's storage is full"


def taken(limits: Limits, *copied: tuple[str, int]) -> tuple[list[str], list[int], str | None]:
    """Stores the result of a call that names as many files as `copied` has (real path, size), where a size below 0
    stands for a failed copy. Returns the names of the artifacts, the indexes of discarded copies, and the reported
    problem."""
    world = driver(PLAN, limits=limits)
    client = connect(world, "http", "s")
    channel = client.request("1", "tools/call", '{"name":"t","arguments":{}}')
    named = [f"/w/{number}" for number in range(len(copied))]
    world.answer(world.take_sent("tools/call"), json.dumps({"content": [], "structuredContent": {"p": named}}))
    order = world.only(Collect)
    assert len(order.sources) == len(copied)
    files = [
        CollectedFile(path=path, filename=path, size_bytes=size, sha256="0" * 64)
        if size >= 0
        else CollectedFile(problem=f"{path} is gone")
        for path, size in copied
    ]
    world.store(order.ticket, Collected(tuple(files)))
    gone = [order.blobs.index(discard.blob) for discard in world.every(Discard)]
    for save in world.every(Save):
        world.store(save.ticket, Saved())
    meta: dict[str, Any] = world.only_message(channel)["result"].get("_meta", {})
    artifacts = meta.get("artifacts") or ([meta["artifact"]] if "artifact" in meta else [])
    assert not tables(world.engine)["storage"]
    return [artifact["filename"] for artifact in artifacts], gone, meta.get("artifact_error")


@pytest.mark.parametrize(
    ("copied", "kept", "gone", "problem"),
    [
        ([("a", 5), ("b", 5)], ["a", "b"], [], None),
        ([("a", 5), ("b", 6)], ["a"], [1], FULL),
        ([("a", 5), ("b", 6), ("c", 5)], ["a", "c"], [1], FULL),
        ([("a", 11), ("b", 11)], [], [0, 1], FULL),
        ([("a", 5), ("a", 5)], ["a"], [1], None),
        ([("a", 5), ("a", 5), ("a", 5), ("b", 5)], ["a", "b"], [1, 2], None),
        ([("a", 10), ("a", 10)], ["a"], [1], None),
        ([("a", 10), ("a", 10), ("b", 1)], ["a"], [1, 2], FULL),
        ([("a", 11), ("a", 10)], ["a"], [0], FULL),
    ],
)
def test_a_file_is_kept_once_and_only_if_there_is_room(
    copied: list[tuple[str, int]], kept: list[str], gone: list[int], problem: str | None
) -> None:
    """Room may be filled exactly. A second copy of a stored file is discarded silently, whether it would fit or not. A
    file that does not fit takes no room from later ones."""
    assert taken(Limits(session_storage_max_bytes=10), *copied) == (kept, gone, problem)


@pytest.mark.parametrize(
    ("copied", "kept", "gone", "problem"),
    [
        ([("a", 1), ("b", 1)], ["a", "b"], [], None),
        ([("a", 1), ("b", 1), ("c", 1)], ["a", "b"], [2], FULL),
        ([("a", 1), ("b", 1), ("a", 1), ("b", 1)], ["a", "b"], [2, 3], None),
    ],
)
def test_the_number_of_artifacts_of_a_session_is_bounded(
    copied: list[tuple[str, int]], kept: list[str], gone: list[int], problem: str | None
) -> None:
    """The bound itself is within."""
    assert taken(Limits(artifacts_per_session_max=2), *copied) == (kept, gone, problem)


def test_a_failed_copy_is_reported_and_the_others_are_kept() -> None:
    """A failed copy leaves nothing to discard."""
    assert taken(Limits(), ("a", 1), ("b", -1), ("c", 1)) == (["a", "c"], [], "b is gone")
    assert taken(Limits(), ("a", -1), ("b", -1)) == ([], [], "a is gone; b is gone")
