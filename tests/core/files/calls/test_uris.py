"""Tests of the names of stored files: their URIs, and download links that begin with the reachable base URL."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import pytest
from driving import LINK_KEY, UNIX_AT_ZERO
from file_scenes import Scene, artifacts
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import (
    ArtifactProducer,
    Deliver,
    Kind,
    LocatorMode,
    OutputLocator,
    ServerPlan,
    UploadConsumer,
)
from isthmus.core.files.store.links import sign_download

NAME = "a b&\u00fc?#.txt"
CONSUMING = ServerPlan(
    id="s",
    kind=Kind.PIPE,
    consumers=(UploadConsumer(tools=("t",), file_path_argument="data", deliver=Deliver.URL),),
)
PRODUCING = ServerPlan(
    id="s",
    kind=Kind.PIPE,
    producers=(ArtifactProducer(tools=("*",), output_locator=OutputLocator(mode=(LocatorMode.CHANGED,))),),
)


def link_of(plan: ServerPlan, **more: Any) -> tuple[Scene, str, str]:
    """Returns a scene, the link that a tool or a client gets, and the URI of the file for clients."""
    scene = Scene(plan, **more)
    if plan is CONSUMING:
        uri = scene.upload(NAME, b"hello")
        _, got = scene.begin("t", data=uri)
        return scene, got["data"], uri
    (artifact,) = artifacts(scene.call("t", "done", writes={NAME: b"hello"}))
    return scene, artifact["download_url"], artifact["artifact_uri"]


@pytest.mark.parametrize("plan", [CONSUMING, PRODUCING], ids=["upload", "artifact"])
@pytest.mark.parametrize(
    ("more", "base"),
    [
        ({}, "http://here"),
        ({"fallback_base_url": "http://last"}, "http://here"),
        ({"public_base_url": "https://pub/x", "fallback_base_url": "http://last"}, "https://pub/x"),
    ],
)
def test_a_link_begins_with_the_public_base_url_or_that_of_the_client(
    plan: ServerPlan, more: dict[str, str], base: str
) -> None:
    """The path has the server, the session, the id and the filename."""
    _, link, uri = link_of(plan, **more)
    assert link.startswith(f"{base}/artifacts/s/")
    server, sid, id, name = urlsplit(link.removeprefix(base)).path.split("/")[2:]
    assert server == "s"
    kind = "upload" if plan is CONSUMING else "artifact"
    assert uri.startswith(f"{kind}://sessions/{sid}/{id}")
    assert unquote(name) == NAME
    assert "/" not in name
    assert "&" not in name


@pytest.mark.parametrize("plan", [CONSUMING, PRODUCING], ids=["upload", "artifact"])
def test_a_link_is_signed_for_its_file_and_as_long_as_that_lives(plan: ServerPlan) -> None:
    limits = Limits(upload_ttl_s=500.0, artifact_ttl_s=700.0)
    scene, link, _ = link_of(plan, limits=limits)
    path = urlsplit(link).path.split("/")
    query = dict(parse_qsl(urlsplit(link).query))
    lives_s = limits.upload_ttl_s if plan is CONSUMING else limits.artifact_ttl_s
    expected = sign_download(
        LINK_KEY,
        server="s",
        sid=path[3],
        artifact=path[4],
        filename=NAME,
        expires_at_unix=int(UNIX_AT_ZERO + scene.world.now + lives_s),
    )
    assert query == {key: str(value) for key, value in dict(expected).items()}


def test_without_downloads_there_is_no_link() -> None:
    """The URI is the same."""
    scene = Scene(PRODUCING, downloads_enabled=False)
    (artifact,) = artifacts(scene.call("t", "done", writes={NAME: b"hello"}))
    assert "download_url" not in artifact or artifact["download_url"] is None
    assert artifact["artifact_uri"].startswith("artifact://sessions/")
    assert artifact["filename"] == NAME
