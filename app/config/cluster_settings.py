"""The part of a configuration that says how this process and other replicas of the same stores find each other."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from .value_types import REFERENCE, about

TAG_PATTERN = r"[a-z0-9]{1,8}"


class Cluster(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of this replica, if several use the same storage.records and storage.blobs."""

    replica: Annotated[
        str | None,
        Meta(
            description="Tag of this replica: 1 to 8 of a-z and 0-9. Names of its sessions begin with it, so that a "
            "balancer can route by it. Each replica has its own. null: a random one at each start.",
            extra_json_schema={"pattern": rf"{REFERENCE}|^{TAG_PATTERN}$"},
        ),
    ] = None
    listen: Annotated[
        str | None,
        about(
            "HOST:PORT to listen on for the other replicas, which pass on requests for sessions of this one. Only "
            "they need to reach it. null: no port."
        ),
    ] = None
    advertise: Annotated[
        str | None,
        about("http://HOST:PORT at which the other replicas reach listen. null: the host and port of listen."),
    ] = None
    secret: Annotated[
        str | None,
        about(
            "Secret of at least 16 bytes, the same for all replicas, that signs what they pass on. Write it as "
            "${NAME}. null: with socket, the first of core.link_keys."
        ),
    ] = None
    socket: Annotated[
        str | None,
        about(
            "Path of a Unix domain socket in place of listen, if all replicas run on this machine. Only its owner may "
            "connect."
        ),
    ] = None

    @property
    def address(self) -> str:
        """The address in the lease of this replica; "": none, nothing can be passed on to it."""
        if self.socket is not None:
            return f"unix:{self.socket}"
        return self.advertise or ("" if self.listen is None else f"http://{self.listen}")

    def __repr__(self) -> str:
        secret = None if self.secret is None else "…"
        return (
            f"Cluster(replica={self.replica!r}, listen={self.listen!r}, advertise={self.advertise!r}, "
            f"secret={secret!r}, socket={self.socket!r})"
        )
