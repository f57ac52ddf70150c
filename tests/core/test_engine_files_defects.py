"""Files through the engine where orders, cancellations and ends cross: nothing is lost, nor kept for good."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from file_scenes import Scene, artifacts, names, texts
from isthmus.core.effects import Collect, Materialize, StorageFailed, Survey
from isthmus.core.plan import ArtifactProducer, AutoFiles, Kind, LocatorMode, OutputLocator, ServerPlan


def producing(*modes: LocatorMode, **more: Any) -> ServerPlan:
    locator = OutputLocator(mode=modes, output_path_regexes=more.pop("patterns", ()))
    return ServerPlan(
        id="s", kind=Kind.PIPE, producers=(ArtifactProducer(tools=("*",), output_locator=locator, **more),)
    )


AUTO = ServerPlan(id="s", kind=Kind.PIPE, auto_files=AutoFiles())
NAMED = producing(LocatorMode.REGEX, patterns=(r"saved (\S+)",))


def listed(scene: Scene) -> Scene:
    """Its client has asked for the list of tools."""
    channel = scene.client.request('"tools"', "tools/list")
    scene.world.answer(scene.world.hear("tools/list"), '{"tools":[]}')
    assert scene.said(channel)
    return scene


def only_link(scene: Scene) -> Any:
    (link,) = scene.world.engine._servers.links.values()
    return link


# --- Awaited files ----------------------------------------------------------------------------------------------------


def test_a_call_that_is_cancelled_while_the_disk_is_looked_at_takes_no_awaited_file_with_it() -> None:
    scene = Scene(NAMED)
    assert "artifact_error" in scene.call("t", "saved late.txt")["_meta"]
    scene.disk.write(f"{scene.ws}/late.txt", b"done")
    scene.begin("t")
    scene.world.answer(scene.heard, json.dumps({"content": [{"type": "text", "text": "hm"}]}))
    scene.client.notify("notifications/cancelled", f'{{"requestId":{scene._ids}}}')
    scene.disk.settle()
    assert names(scene.call("t", "hm")) == ["late.txt"]


def test_an_awaited_file_that_could_not_be_taken_in_is_awaited_still(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(NAMED)
    scene.call("t", "saved late.txt")
    scene.disk.write(f"{scene.ws}/late.txt", b"done")
    carry_out = scene.disk._carry_out
    monkeypatch.setattr(
        scene.disk,
        "_carry_out",
        lambda order: StorageFailed(reason="busy") if isinstance(order, Collect) else carry_out(order),
    )
    assert not artifacts(scene.call("t", "hm"))
    monkeypatch.undo()
    assert names(scene.call("t", "hm")) == ["late.txt"]


@pytest.mark.parametrize("plan", [AUTO, NAMED])
def test_what_was_finished_between_two_calls_outside_of_the_session_is_taken(plan: ServerPlan) -> None:
    scene = Scene(plan, roots=("/srv",))
    scene.disk.write("/srv/late.txt", b"")
    result = scene.call("t", "saved /srv/late.txt", writes={"/srv/late.txt": b""})
    assert "empty" in result["_meta"]["artifact_error"]
    scene.world.wait(60.0)
    scene.disk.write("/srv/late.txt", b"done")
    scene.world.wait(60.0)
    assert names(scene.call("t", "hm")) == ["late.txt"]


# --- Staged files -----------------------------------------------------------------------------------------------------


def test_a_staged_file_that_is_seen_before_it_is_told_of_is_known_by_its_handle() -> None:
    """The storage may look before it says that the file is laid out."""
    scene = Scene(AUTO)
    handle = scene.upload("a.txt", b"hello")
    channel = scene.client.request("77", "tools/call", json.dumps({"name": "t", "arguments": {"path": handle}}))
    placing, looking = scene.world.last(Materialize), scene.world.last(Survey)
    placed = scene.disk._carry_out(placing)
    seen = scene.disk._carry_out(looking)
    scene.disk._read = len(scene.world.log)
    assert placed is not None
    assert seen is not None
    scene.world.store(looking.ticket, seen)
    scene.world.store(placing.ticket, placed)
    if scene.world.hears("tools/list"):
        scene.world.answer(scene.world.hear("tools/list"), '{"tools":[]}')
    scene.heard = scene.world.hear("tools/call")
    path = scene.heard.frame["params"]["arguments"]["path"]
    found = scene.end(channel, f"read {path}")
    assert texts(found) == f"read {handle}/a.txt" or texts(found) == f"read {handle}"


def test_a_file_that_is_just_being_staged_is_not_the_output_of_a_call_beside() -> None:
    scene = Scene(AUTO)
    handle = scene.upload("a.txt", b"hello")
    first, _ = scene.begin("t")
    heard = scene.heard
    scene.client.request("78", "tools/call", json.dumps({"name": "t", "arguments": {"path": handle}}))
    placing = scene.world.last(Materialize)
    placed = scene.disk._carry_out(placing)
    assert placed is not None
    scene.disk._read = len(scene.world.log)
    scene.heard = heard
    assert not artifacts(scene.end(first, "done"))
    scene.world.store(placing.ticket, placed)


# --- Resources that are read for a call -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Kind.PIPE, Kind.HTTP])
def test_a_linked_resource_that_never_comes_is_not_waited_for_for_good(kind: Kind) -> None:
    plan = producing(LocatorMode.RESOURCE_LINK)
    scene = Scene(msgspec.structs.replace(plan, kind=kind))
    link = only_link(scene)
    block = '{"content":[{"type":"resource_link","uri":"x://a","name":"a"}]}'
    for _ in range(3):
        channel, _ = scene.begin("t")
        scene.world.answer(scene.heard, block)
        scene.world.wait(scene.world.engine._desk.limits.lookup_s + 5)
        scene.disk.settle()
        assert "could not be read in time" in scene.said(channel)["_meta"]["artifact_error"]
    scene.begin("t")
    scene.world.answer(scene.heard, block)
    scene.client.notify("notifications/cancelled", f'{{"requestId":{scene._ids}}}')
    assert not link.pending
