"""The listener at which other replicas pass requests on to this one."""

from __future__ import annotations

import anyio
from anyio.abc import Listener, SocketStream

from ...transports.unix.listener import http_listener
from ..base.errors import StartError
from ..config.cluster_settings import Cluster


async def open_internal(cluster: Cluster) -> Listener[SocketStream] | None:
    """Opens the listener; None: there is none.

    Raises:
        StartError: the address is taken or may not be used.
    """
    where = cluster.socket or cluster.listen
    if where is None:
        return None
    try:
        if cluster.socket is not None:
            return await http_listener(cluster.socket)
        host, _, port = where.rpartition(":")
        return await anyio.create_tcp_listener(local_host=host.strip("[]"), local_port=int(port))
    except OSError as error:
        inner = error.__cause__ if isinstance(error.__cause__, OSError) else error
        key = "cluster.socket" if cluster.socket is not None else "cluster.listen"
        raise StartError(f"cannot listen on {where} ({key}): {inner.strerror or inner}") from error
