"""Resources that a result links to are read for its client: all of them, in time, and what is wrong is said."""

from __future__ import annotations

import json
from typing import Any

import pytest
from disk import Disk
from driving import FORGOTTEN, driver, error, result
from file_scenes import Scene, names
from isthmus.core.base.effects import Connected
from isthmus.core.base.plan import ArtifactProducer, Kind, LocatorMode, OutputLocator, ServerPlan
from stateless_driving import REVISION, K, emerge, modern

LINKS = json.dumps({"content": [{"type": "resource_link", "uri": f"x://{name}", "name": name} for name in "ab"]})


def plan(kind: Kind) -> ServerPlan:
    locator = OutputLocator(mode=(LocatorMode.RESOURCE_LINK,))
    return ServerPlan(id="s", kind=kind, producers=(ArtifactProducer(tools=("*",), output_locator=locator),))


def linking(kind: Kind = Kind.PIPE) -> tuple[Scene, Any, dict[str, Any]]:
    """A call whose result links to two resources, and the requests to read them."""
    scene = Scene(plan(kind))
    channel, _ = scene.begin("t")
    scene.world.answer(scene.heard, LINKS)
    reads = {}
    for _ in "ab":
        heard = scene.world.hear("resources/read")
        reads[heard.frame["params"]["uri"]] = heard
    return scene, channel, reads


def contents(uri: str, text: str = "hello") -> str:
    return json.dumps({"contents": [{"uri": uri, "mimeType": "text/plain", "text": text}]})


@pytest.mark.parametrize("kind", [Kind.PIPE, Kind.HTTP])
def test_each_is_asked_for_once_and_taken_in(kind: Kind) -> None:
    scene, channel, reads = linking(kind)
    assert list(reads) == ["x://a", "x://b"]
    assert [heard.frame["params"] for heard in reads.values()] == [{"uri": uri} for uri in reads]
    scene.world.answer(reads["x://b"], contents("x://b"))
    scene.disk.settle()
    assert not list(scene.world.frames(channel)) or kind is Kind.PIPE
    scene.world.answer(reads["x://a"], contents("x://a"))
    scene.disk.settle()
    said = scene.said(channel)
    assert len(names(said)) == 2
    assert "artifact_error" not in said["_meta"]
    assert not scene.world.hears("resources/read")
    before = len(scene.world.log)
    scene.world.wait(scene.world.engine._desk.limits.lookup_s + 1)
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
def test_what_cannot_be_read_is_said_and_the_rest_taken_in(answer: tuple[str, str], why: str) -> None:
    scene, channel, reads = linking()
    kind, text = answer
    heard = reads["x://a"]
    scene.world.reply(heard, (result if kind == "result" else error)(str(heard.id), text))
    scene.world.answer(reads["x://b"], contents("x://b"))
    scene.disk.settle()
    said = scene.said(channel)
    assert len(names(said)) == 1
    assert why in said["_meta"]["artifact_error"]
    assert "y" * 161 not in said["_meta"]["artifact_error"]


def test_what_takes_too_long_is_not_waited_for() -> None:
    """What came is taken in, and what comes late is dropped."""
    scene, channel, reads = linking()
    scene.world.answer(reads["x://a"], contents("x://a"))
    scene.world.wait(scene.world.engine._desk.limits.lookup_s - 0.1)
    assert scene.world.engine.exchange_count == 1
    scene.world.wait(0.2)
    scene.disk.settle()
    said = scene.said(channel)
    assert len(names(said)) == 1
    assert said["_meta"]["artifact_error"] == "x://b could not be read in time"
    before = len(scene.world.sent[channel])
    scene.world.answer(reads["x://b"], contents("x://b"))
    scene.disk.settle()
    assert len(scene.world.sent[channel]) == before


def test_a_server_without_sessions_is_told_who_asks() -> None:
    world = driver(plan(Kind.HTTP))
    disk = Disk(world)
    client = modern(world, "s")
    channel = client.call("t")
    disk.settle()
    emerge(world)
    if world.hears("tools/list"):
        world.answer(world.hear("tools/list"), '{"resultType":"complete","tools":[]}')
    disk.settle()
    world.answer(world.hear("tools/call"), '{"resultType":"complete",' + LINKS[1:])
    disk.settle()
    for _ in "ab":
        heard = world.hear("resources/read")
        params = heard.frame["params"]
        uri = params["uri"]
        assert params["_meta"][K + "protocolVersion"] == REVISION
        assert K + "clientCapabilities" in params["_meta"]
        assert heard.post is not None
        assert dict(heard.post.mirrored)["mcp-name"] == uri
        world.answer(heard, '{"resultType":"complete",' + contents(uri)[1:])
    disk.settle()
    assert len(names(client.answered(channel)["result"])) == 2


def test_a_server_that_is_gone_is_not_asked() -> None:
    """Its answer came on its own connection, when the session was lost already."""
    scene = Scene(plan(Kind.HTTP))
    channel, _ = scene.begin("t")
    heard, world = scene.heard, scene.world
    world.open(heard.channel, Connected())
    scene.client.request("77", "tools/list")
    world.end(world.hear("tools/list").channel, FORGOTTEN)
    world.say(heard.channel, result(str(heard.id), LINKS))
    world.end(heard.channel)
    scene.disk.settle()
    said = scene.said(channel)
    assert "x://a: the server is gone" in said["_meta"]["artifact_error"]
    assert "x://b: the server is gone" in said["_meta"]["artifact_error"]
    assert not world.hears("resources/read")
