"""The checks of `cluster`: what it needs beside it, and no secret in any message."""

from __future__ import annotations

import json
from typing import Any

import pytest
from each_row import each_row
from isthmus.app.base.errors import ConfigError
from isthmus.app.config.load import loads
from isthmus.app.config.settings import Settings

KEY = "k" * 16
SECRET = "a-secret-of-nobody"
SHARED = {"records": "redis://db/0", "blobs": "s3://bucket/prefix"}


def load(cluster: dict[str, Any], storage: dict[str, Any] = SHARED) -> Settings:
    document = {
        "servers": [{"id": "a", "upstream": {"command": ["x"]}}],
        "core": {"link_keys": [KEY]},
        "sessions": {"request_state_keys": [KEY]},
        "storage": storage,
        "cluster": cluster,
    }
    return loads(json.dumps(document), "json", "/", {})


def test_a_replica_has_an_address() -> None:
    for given, address in (
        ({}, ""),
        ({"replica": "a"}, ""),
        ({"listen": "10.0.0.3:8933", "secret": SECRET}, "http://10.0.0.3:8933"),
        ({"listen": "[::1]:8933", "secret": SECRET}, "http://[::1]:8933"),
        ({"listen": "0.0.0.0:8933", "advertise": "http://a.local:80", "secret": SECRET}, "http://a.local:80"),
        ({"socket": "/run/a.sock"}, "unix:/run/a.sock"),
    ):
        cluster = load(given).cluster
        assert cluster.address == address
        assert SECRET not in repr(cluster)


FAULTS = [
    ({"replica": "A"}, "cluster.replica", "1 to 8 of a-z and 0-9"),
    ({"replica": "eu-west-1a"}, "cluster.replica", "1 to 8 of a-z and 0-9"),
    ({"replica": ""}, "cluster.replica", "1 to 8 of a-z and 0-9"),
    ({"listen": "10.0.0.3:8933"}, "cluster.secret", "a secret beside cluster.listen"),
    ({"listen": "10.0.0.3:8933", "secret": "short-one"}, "cluster.secret", "a secret of 16 bytes or more"),
    ({"listen": "8933", "secret": SECRET}, "cluster.listen", "HOST:PORT"),
    ({"listen": "10.0.0.3:0", "secret": SECRET}, "cluster.listen", "HOST:PORT"),
    ({"listen": "0.0.0.0:8933", "secret": SECRET}, "cluster.advertise", "other replicas need one address"),
    ({"listen": "[::]:8933", "secret": SECRET}, "cluster.advertise", "other replicas need one address"),
    (
        {"listen": "10.0.0.3:8933", "advertise": "https://10.0.0.3:8933", "secret": SECRET},
        "cluster.advertise",
        "http://HOST:PORT",
    ),
    ({"advertise": "http://10.0.0.3:8933"}, "cluster.advertise", "cluster.listen beside it"),
    ({"listen": "10.0.0.3:8933", "socket": "/run/a.sock", "secret": SECRET}, "cluster.socket", "one of them"),
]


@each_row("given, key, right", FAULTS)
def test_faults_name_their_key(given: dict[str, Any], key: str, right: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(given)
    assert f"{key}:" in caught.value.message
    assert right in caught.value.message
    assert SECRET not in caught.value.message
    assert "short-one" not in caught.value.message


def test_replicas_share_their_stores() -> None:
    with pytest.raises(ConfigError, match=r"cluster: .*no storage.records.*records: postgresql://"):
        load({"replica": "a"}, {})
