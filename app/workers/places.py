"""The tags of workers, and the addresses at which other replicas reach them.

With the stores of this machine, workers are `w1`, `w2` and so on, and reach each other in a folder of theirs. With
shared stores, workers are replicas like any other: their tags begin with that of the configuration, and each has a port
or a socket that others can find.
"""

from __future__ import annotations

import os
import re
import secrets
import string
from collections.abc import Collection
from typing import Final

import msgspec

from ..base.errors import StartError
from ..config.cluster_settings import Cluster
from ..config.settings import Settings

NUMBERS_MAX: Final = 999
"""Numbers of workers, of which each start of a new worker takes the next: three digits leave five characters of a tag
to the configuration. At it: they begin anew, with those that are free."""
DRAWN_CHARS: Final = 5
"""Letters that a tag begins with if the configuration has none. Of a hundred machines, two draw the same once in 2,400
times, and one of them does not start then."""

_PREFIX: Final = re.compile(r"[a-z0-9]{0,4}[a-z]")


class Places:
    """The tag of each worker, and the address at which it is reached.

    Args:
        settings: the configuration at the start.

    Raises:
        StartError: other replicas could not reach the workers, or tell them apart.
    """

    def __init__(self, settings: Settings) -> None:
        self._is_shared = settings.storage.is_shared
        self._prefix = _prefix_of(settings)
        self._secret = secrets.token_hex(32)
        self._number = 0

    def tag(self, taken: Collection[str]) -> str:
        """Returns the tag of a new worker."""
        while True:
            self._number = self._number % NUMBERS_MAX + 1
            tag = f"{self._prefix}{self._number}"
            if tag not in taken:
                return tag

    def cluster(self, settings: Settings, folder: str, tag: str, place: int) -> Cluster:
        """Returns the settings of a worker as a replica.

        Args:
            folder: that of the sockets of all workers.
            place: the lowest number that no other worker has now, from 0.
        """
        if not self._is_shared:
            return Cluster(replica=tag, socket=os.path.join(folder, f"{tag}.sock"), secret=self._secret)
        found = msgspec.structs.replace(settings.cluster, replica=tag)
        if found.socket is not None:
            return msgspec.structs.replace(found, socket=f"{found.socket}.{place}")
        assert found.listen is not None
        advertised = found.advertise and _moved(found.advertise, place)
        return msgspec.structs.replace(found, listen=_moved(found.listen, place), advertise=advertised)


def _prefix_of(settings: Settings) -> str:
    if not settings.storage.is_shared:
        return "w"
    cluster = settings.cluster
    if cluster.listen is None and cluster.socket is None:
        raise StartError(
            "got --workers and storage.records without cluster.listen and cluster.socket: set cluster.listen to the "
            "first of the ports of the workers, or cluster.socket if all replicas run on this machine"
        )
    if cluster.replica is None:
        return "".join(secrets.choice(string.ascii_lowercase) for _ in range(DRAWN_CHARS))
    if _PREFIX.fullmatch(cluster.replica) is None:
        raise StartError(
            f"got cluster.replica {cluster.replica} with --workers, expected 1 to 5 of a-z and 0-9 that end with a "
            "letter, such as a or eu1x: the number of each worker follows it"
        )
    return cluster.replica


def _moved(address: str, place: int) -> str:
    """Returns an address whose port is that many higher."""
    host, _, port = address.rpartition(":")
    return f"{host}:{int(port) + place}"
