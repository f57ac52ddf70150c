"""Tests of what workers are called and where other replicas reach them."""

from __future__ import annotations

import re

import pytest
from isthmus.app.base.errors import StartError
from isthmus.app.config.cluster_settings import Cluster
from isthmus.app.config.settings import Settings, Storage
from isthmus.app.workers.places import NUMBERS_MAX, Places

SHARED = Storage(records="postgresql://db/x", blobs="s3://b")


def places(**cluster: str) -> tuple[Places, Settings]:
    settings = Settings(storage=SHARED, cluster=Cluster(**cluster), servers=())
    return Places(settings), settings


def test_tags_are_numbered_and_begin_anew() -> None:
    found, _ = places(replica="eu1x", listen="10.0.0.3:8933")
    assert [found.tag(()) for _ in range(3)] == ["eu1x1", "eu1x2", "eu1x3"]
    for _ in range(NUMBERS_MAX - 3):
        found.tag(())
    assert found.tag({"eu1x1", "eu1x2"}) == "eu1x3"
    assert Places(Settings(servers=())).tag(()) == "w1"
    drawn, _ = places(socket="/run/a")
    assert re.fullmatch("[a-z]{5}1", drawn.tag(()))


def test_each_worker_has_an_address_of_its_own() -> None:
    found, settings = places(replica="a", listen="[::]:8933", advertise="http://10.0.0.3:9000", secret="x" * 16)
    cluster = found.cluster(settings, "/tmp/private", "a7", 2)
    assert cluster == Cluster(replica="a7", listen="[::]:8935", advertise="http://10.0.0.3:9002", secret="x" * 16)
    found, settings = places(replica="a", socket="/run/a.sock")
    assert found.cluster(settings, "/tmp/private", "a7", 0).address == "unix:/run/a.sock.0"
    local = Settings(servers=())
    assert Places(local).cluster(local, "/tmp/private", "w2", 1).address == "unix:/tmp/private/w2.sock"


@pytest.mark.parametrize(
    ("cluster", "said"),
    [
        ({"replica": "a"}, "without cluster.listen and cluster.socket"),
        ({"replica": "a1", "listen": "h:1"}, "expected 1 to 5 of a-z and 0-9 that end with a letter"),
        ({"replica": "abcdef", "listen": "h:1"}, "expected 1 to 5 of a-z and 0-9 that end with a letter"),
    ],
)
def test_what_other_replicas_could_not_reach_is_refused(cluster: dict[str, str], said: str) -> None:
    with pytest.raises(StartError, match=re.escape(said)):
        places(**cluster)
