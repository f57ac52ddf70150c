"""Of files that the disk has copied: which are kept, which go again, and what is said of those."""

from __future__ import annotations

import json
from typing import Any

import pytest
from driving import connect, driver
from isthmus.core.base.effects import Collect, Collected, CollectedFile, Discard, Save, Saved
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import ArtifactProducer, Kind, LocatorMode, OutputLocator, ServerPlan

LOCATOR = OutputLocator(mode=(LocatorMode.STRUCTURED,), output_path_key="p")
PLAN = ServerPlan(
    id="s", kind=Kind.PIPE, producers=(ArtifactProducer(tools=("t",), output_locator=LOCATOR, expose_as_resource=True),)
)
FULL = "this session's storage is full"


def taken(limits: Limits, *copied: tuple[str, int]) -> tuple[list[str], list[int], str | None]:
    """A result names as many files, which were copied from these real paths. Returns what its client is told of, the
    places of those that go again, and what is said of that.

    Args:
        copied: the path and size of each; of one that could not be copied, less than 0.
    """
    world = driver(PLAN, limits=limits)
    client = connect(world, "http", "s")
    channel = client.request("1", "tools/call", '{"name":"t","arguments":{}}')
    named = [f"/w/{number}" for number in range(len(copied))]
    world.answer(world.hear("tools/call"), json.dumps({"content": [], "structuredContent": {"p": named}}))
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
    said: dict[str, Any] = world.said(channel)["result"].get("_meta", {})
    told = said.get("artifacts") or ([said["artifact"]] if "artifact" in said else [])
    assert len(world.engine._waiting._thens) == 0
    return [artifact["filename"] for artifact in told], gone, said.get("artifact_error")


@pytest.mark.parametrize(
    ("copied", "told", "gone", "problem"),
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
def test_a_file_is_taken_once_and_as_far_as_there_is_room(
    copied: list[tuple[str, int]], told: list[str], gone: list[int], problem: str | None
) -> None:
    """What fills the room fits. A second copy of one that was taken goes without a word, whether or not it would; and
    what does not fit takes no room from those after it."""
    assert taken(Limits(session_storage_max_bytes=10), *copied) == (told, gone, problem)


@pytest.mark.parametrize(
    ("copied", "told", "gone", "problem"),
    [
        ([("a", 1), ("b", 1)], ["a", "b"], [], None),
        ([("a", 1), ("b", 1), ("c", 1)], ["a", "b"], [2], FULL),
        ([("a", 1), ("b", 1), ("a", 1), ("b", 1)], ["a", "b"], [2, 3], None),
    ],
)
def test_a_session_has_so_many_files(
    copied: list[tuple[str, int]], told: list[str], gone: list[int], problem: str | None
) -> None:
    """The bound itself is within."""
    assert taken(Limits(artifacts_per_session_max=2), *copied) == (told, gone, problem)


def test_one_that_could_not_be_copied_is_told_of_and_the_others_are_taken() -> None:
    """Of it there is nothing to discard."""
    assert taken(Limits(), ("a", 1), ("b", -1), ("c", 1)) == (["a", "c"], [], "b is gone")
    assert taken(Limits(), ("a", -1), ("b", -1)) == ([], [], "a is gone; b is gone")
