"""The shape of `telemetry.audit`: the record of who used what."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Struct

from .value_types import about


class Audit(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The audit log: a line of JSON for each request that uses a server, each rejected request, and each command of an
    operator. It has file or syslog."""

    file: Annotated[
        str | None,
        about(
            "File to append to. Several workers, and replicas on one machine, can have the same file. If it is moved, "
            "as logrotate does, a new one is begun."
        ),
    ] = None
    syslog: Annotated[
        str | None,
        about(
            "Syslog server that gets the records by RFC 5424, with facility 13 (log audit): udp://HOST:PORT, "
            "tcp://HOST:PORT, or unix:PATH such as unix:/dev/log."
        ),
    ] = None
    arguments: Annotated[
        Literal["keys", "never", "full"],
        about(
            "What a record has of the arguments of a call. keys: the names of the top level, with the size of each "
            "value. full: the values too, with all that is secret in them."
        ),
    ] = "keys"
    on_failure: Annotated[
        Literal["go_on", "refuse"],
        about(
            "What happens if a record cannot be written. go_on: it is dropped and counted. refuse: the request is "
            "rejected. A record is then on the disk before its request is sent to a server. It needs file."
        ),
    ] = "go_on"
