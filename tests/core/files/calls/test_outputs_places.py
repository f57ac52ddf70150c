"""Tests of allocated places: which files get the name and id of a place that the proxy chose for a tool's output."""

from __future__ import annotations

import pytest
from file_scenes import Scene, artifacts
from isthmus.core.base.plan import ArtifactProducer, Kind, LocatorMode, OutputLocator, ServerPlan

PNG = b"\x89PNG\r\n\x1a\n" + b"x" * 20


@pytest.mark.parametrize("writes_there", [True, False])
def test_only_a_file_at_the_allocated_place_has_its_name_and_id(writes_there: bool) -> None:
    """Another file keeps the tool's name for it and has an id of its own, even if it is the only one."""
    locator = OutputLocator(mode=LocatorMode.CHANGED)
    entry = ArtifactProducer(tools=("t",), output_path_argument="out", output_locator=locator)
    files = Scene(ServerPlan(id="s", kind=Kind.PIPE, producers=(entry,)))
    channel, got = files.begin("t", out="shot")
    if writes_there:
        files.disk.write(got["out"], PNG)
    files.disk.write(f"{files.ws}/other", PNG)
    found = {artifact["filename"]: artifact["artifact_id"] for artifact in artifacts(files.end(channel, "done"))}
    assert found.keys() == ({"shot.png", "other"} if writes_there else {"other"})
    assert [name for name, id in found.items() if id in got["out"]] == ["shot.png"] * writes_there
