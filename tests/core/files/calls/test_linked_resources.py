"""Tests of linked resources: the resources that a result links to are read for its client, and failures are
reported."""

from __future__ import annotations

import json
from typing import Any

import pytest
from disk import Disk
from driving import FORGOTTEN, driver, error, result
from file_scenes import Scene, names
from isthmus.core.base.events import Connected
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import ArtifactProducer, Kind, LocatorMode, OutputLocator, ServerPlan
from stateless_driving import REVISION, K, modern, start_stateless_server

LINKS = json.dumps({"content": [{"type": "resource_link", "uri": f"x://{name}", "name": name} for name in "ab"]})


def plan(kind: Kind) -> ServerPlan:
    locator = OutputLocator(mode=(LocatorMode.RESOURCE_LINK,))
    return ServerPlan(id="s", kind=kind, producers=(ArtifactProducer(tools=("*",), output_locator=locator),))


def linking(kind: Kind = Kind.PIPE) -> tuple[Scene, Any, dict[str, Any]]:
    """Returns a call whose result links to two resources, and the requests to read them."""
    scene = Scene(plan(kind))
    channel, _ = scene.begin("t")
    scene.world.answer(scene.received, LINKS)
    reads = {}
    for _ in "ab":
        received = scene.world.take_sent("resources/read")
        reads[received.frame["params"]["uri"]] = received
    return scene, channel, reads


def contents(uri: str, text: str = "hello") -> str:
    return json.dumps({"contents": [{"uri": uri, "mimeType": "text/plain", "text": text}]})


@pytest.mark.parametrize("kind", [Kind.PIPE, Kind.HTTP])
def test_each_resource_is_read_once_and_stored(kind: Kind) -> None:
    scene, channel, reads = linking(kind)
    assert list(reads) == ["x://a", "x://b"]
    assert [received.frame["params"] for received in reads.values()] == [{"uri": uri} for uri in reads]
    scene.world.answer(reads["x://b"], contents("x://b"))
    scene.disk.settle()
    assert not list(scene.world.frames(channel)) or kind is Kind.PIPE
    scene.world.answer(reads["x://a"], contents("x://a"))
    scene.disk.settle()
    found = scene.only_message(channel)
    assert len(names(found)) == 2
    assert "artifact_error" not in found["_meta"]
    assert not scene.world.was_sent("resources/read")
    before = len(scene.world.log)
    scene.world.wait(Limits().lookup_s + 1)
    assert not scene.world.log[before:]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (("result", '{"contents":[]}'), "x://a could not be read: it is empty"),
        (("error", '{"code":-32002,"message":"gone"}'), "x://a could not be read: the server said gone"),
        (("error", '{"code":1,"message":"%s"}' % ("y" * 300)), f"the server said {'y' * 160}"),
        (("error", '{"code":1,"message":"a","message":"b"}'), "the server said "),
        (("error", '{"code":1}'), "the server said "),
    ],
)
def test_an_unreadable_resource_is_reported_and_the_rest_stored(answer: tuple[str, str], why: str) -> None:
    scene, channel, reads = linking()
    kind, text = answer
    received = reads["x://a"]
    scene.world.reply(received, (result if kind == "result" else error)(str(received.id), text))
    scene.world.answer(reads["x://b"], contents("x://b"))
    scene.disk.settle()
    found = scene.only_message(channel)
    assert len(names(found)) == 1
    assert why in found["_meta"]["artifact_error"]
    assert "y" * 161 not in found["_meta"]["artifact_error"]


def test_a_slow_resource_is_not_waited_for() -> None:
    """The resources that came are stored, and late ones are dropped."""
    scene, channel, reads = linking()
    scene.world.answer(reads["x://a"], contents("x://a"))
    scene.world.wait(Limits().lookup_s - 0.1)
    assert scene.world.engine.exchange_count == 1
    scene.world.wait(0.2)
    scene.disk.settle()
    found = scene.only_message(channel)
    assert len(names(found)) == 1
    assert found["_meta"]["artifact_error"] == "x://b could not be read in time"
    before = len(scene.world.sent[channel])
    scene.world.answer(reads["x://b"], contents("x://b"))
    scene.disk.settle()
    assert len(scene.world.sent[channel]) == before


def test_a_read_of_a_server_without_sessions_has_meta_and_headers() -> None:
    world = driver(plan(Kind.HTTP))
    disk = Disk(world)
    client = modern(world, "s")
    channel = client.call("t")
    disk.settle()
    start_stateless_server(world)
    if world.was_sent("tools/list"):
        world.answer(world.take_sent("tools/list"), '{"resultType":"complete","tools":[]}')
    disk.settle()
    world.answer(world.take_sent("tools/call"), '{"resultType":"complete",' + LINKS[1:])
    disk.settle()
    for _ in "ab":
        received = world.take_sent("resources/read")
        params = received.frame["params"]
        uri = params["uri"]
        assert params["_meta"][K + "protocolVersion"] == REVISION
        assert K + "clientCapabilities" in params["_meta"]
        assert received.post is not None
        assert dict(received.post.mirrored)["mcp-name"] == uri
        world.answer(received, '{"resultType":"complete",' + contents(uri)[1:])
    disk.settle()
    assert len(names(client.answered(channel)["result"])) == 2


def test_nothing_is_read_from_a_lost_session() -> None:
    """The result came on its own connection after the session was lost."""
    scene = Scene(plan(Kind.HTTP))
    channel, _ = scene.begin("t")
    received, world = scene.received, scene.world
    world.open(received.channel, Connected())
    scene.client.request("77", "tools/list")
    world.end(world.take_sent("tools/list").channel, FORGOTTEN)
    world.send(received.channel, result(str(received.id), LINKS))
    world.end(received.channel)
    scene.disk.settle()
    found = scene.only_message(channel)
    assert "x://a: the server is gone" in found["_meta"]["artifact_error"]
    assert "x://b: the server is gone" in found["_meta"]["artifact_error"]
    assert not world.was_sent("resources/read")
