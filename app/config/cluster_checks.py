"""Checks of `cluster`."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterator
from typing import Final

from ...core.base.replica import is_tag
from ..base.problem import Problem
from .cluster_settings import Cluster
from .settings import Settings
from .value_checks import check_secret, check_socket_path

_HOST: Final = r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)"
_LISTEN: Final = re.compile(rf"(?P<host>{_HOST}):(?P<port>[0-9]{{1,5}})")
_ADVERTISED: Final = re.compile(rf"http://{_HOST}:(?P<port>[0-9]{{1,5}})")


def check_cluster(settings: Settings, is_sound: Callable[[str], bool]) -> Iterator[Problem]:
    """Checks `cluster`, and what it needs beside it."""
    cluster = settings.cluster
    if not is_sound("cluster") or cluster == Cluster():
        return
    if is_sound("storage") and not settings.storage.is_shared:
        key = "storage.records" if settings.storage.records is None else "storage.blobs"
        example = "records: postgresql://isthmus@db/isthmus" if key == "storage.records" else "blobs: s3://my-bucket"
        right = "stores that replicas share (storage.records and storage.blobs) beside it"
        yield Problem("cluster", right, f"no {key}", f"for example {example}")
    if cluster.replica is not None and not is_tag(cluster.replica):
        yield Problem("cluster.replica", "1 to 8 of a-z and 0-9, such as a or eu1")
    if cluster.secret is not None:
        yield from check_secret("cluster.secret", cluster.secret)
    if cluster.socket is not None:
        yield from check_socket_path("cluster.socket", cluster.socket)
        if cluster.listen is not None:
            yield Problem("cluster.socket", "it or cluster.listen, one of them", "got both")
    yield from _listen(cluster)
    if cluster.listen is not None and cluster.secret is None:
        right = "a secret beside cluster.listen, the same for all replicas"
        fix = 'for example secret: "${CLUSTER_SECRET}" (openssl rand -hex 32)'
        yield Problem("cluster.secret", right, "missing", fix)


def _listen(cluster: Cluster) -> Iterator[Problem]:
    found = None if cluster.listen is None else _LISTEN.fullmatch(cluster.listen)
    if cluster.listen is not None and (found is None or not 0 < int(found["port"]) < 65_536):
        yield Problem("cluster.listen", "HOST:PORT, such as 10.0.0.3:8933")
        return
    if cluster.advertise is not None:
        shown = _ADVERTISED.fullmatch(cluster.advertise)
        if shown is None or not 0 < int(shown["port"]) < 65_536:
            yield Problem("cluster.advertise", "http://HOST:PORT, such as http://10.0.0.3:8933, and no path")
        if cluster.listen is None:
            yield Problem("cluster.advertise", "cluster.listen beside it: this is the address at which others reach it")
    elif found is not None and _is_wildcard(found["host"]):
        right = "it beside a cluster.listen on all interfaces: other replicas need one address"
        yield Problem("cluster.advertise", right, "missing", "for example advertise: http://10.0.0.3:8933")


def _is_wildcard(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_unspecified
    except ValueError:
        return False
