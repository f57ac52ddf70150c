"""What clients were promised: a file's bytes under a name, a task's outcome; for whom, and how long at least.

It knows what clients were told and what servers have written, and nothing of how the proxy keeps it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from simulated_network import Wrong

if TYPE_CHECKING:
    from filing_clients import Filing
    from lasting_network import LastingNetwork

SLACK_S = 1.0
"""Times on the wire are in whole seconds."""


@dataclass(eq=False)
class Promise:
    """A file.

    Attributes:
        sid: the session it is for; where `is_bearer`, whoever of the principal knows its name has it.
        run: that of the proxy in which it was promised.
        until_unix: how long it is kept at least; 0: it need not be any more.
        has_lasted: its session was there when its run ended, so that its name holds by itself since.
        url: where it can be downloaded, if it can.
    """

    uri: str
    data: bytes
    server: str
    principal: str
    sid: str
    run: int
    until_unix: float
    is_bearer: bool
    is_artifact: bool
    has_lasted: bool = False
    url: str = ""


@dataclass(eq=False)
class Handle:
    """A task.

    Attributes:
        says: what it comes to if it goes well.
        is_modern: its client is one without a handshake.
        final: what it came to, once anybody was told: a status, or what was fetched, by kind.
    """

    id: str
    says: str
    server: str
    principal: str
    is_modern: bool
    run: int
    until_unix: float
    status: str = ""
    outcome: dict[str, Any] | None = None


class Promises:
    """
    Args:
        is_roomy: nothing has to go for want of room.

    Attributes:
        made: all that anybody ever had in a file.
    """

    def __init__(self, network: LastingNetwork, *, is_roomy: bool) -> None:
        self.network = network
        self.is_roomy = is_roomy
        self.files: list[Promise] = []
        self.tasks: list[Handle] = []
        self.made: dict[bytes, tuple[str, str]] = {}
        self._by_sha256: dict[str, bytes] = {}
        self._count = 0

    def by_sha256(self, sha256: str) -> bytes:
        """What of all that was made has that hash."""
        data = self._by_sha256.get(sha256)
        if data is None:
            raise Wrong(f"nobody has made a file with the SHA-256 {sha256}")
        return data

    def fresh(self, client: Filing) -> bytes:
        """Bytes that nobody else has, and that say whose they are."""
        self._count += 1
        said = f"fl{self._count}:{client.principal}:".encode()
        data = said + b"x" * client.rng.choice((5, 60, 300))
        self.made[data] = client.server, client.principal
        self._by_sha256[hashlib.sha256(data).hexdigest()] = data
        return data

    # --- Files ------------------------------------------------------------------------------------------------------

    def may_have(self, promise: Promise, client: Filing) -> bool:
        if (promise.server, promise.principal) != (client.server, client.principal):
            return False
        return promise.is_bearer or promise.sid == client.sid or promise.run < self.network.runs

    def must_have(self, promise: Promise, client: Filing) -> bool:
        """Whether a refusal would break the promise, whatever else the client does not know."""
        if not self.may_have(promise, client) or not self.is_kept(promise):
            return False
        if promise.is_bearer or promise.run < self.network.runs:
            return True
        return client.is_in(promise.sid)

    def is_kept(self, promise: Promise) -> bool:
        """Whether it has to be there."""
        network = self.network
        if promise.until_unix <= network.now_unix + SLACK_S or promise.data in network.disk.vanished:
            return False
        if promise.run < network.runs and not (promise.is_bearer or promise.is_artifact or promise.has_lasted):
            return False
        return self.is_roomy or not network.evicted

    def receive_crash(self, clients: list[Filing]) -> None:
        """The run is about to end."""
        there = {client.sid for client in clients if client.sid is not None and client.is_in(client.sid)}
        for promise in self.files:
            if promise.run == self.network.runs and promise.sid in there:
                promise.has_lasted = True

    def check_start(self) -> None:
        """Another process has begun: what was promised is there, whole, and all that is there was somebody's."""
        network = self.network
        shown = {status.uri: status for status in network.engine.files()}
        for kept in (*self.files, *self.tasks):  # what is over by the clock stays so, should that be put back
            if kept.until_unix <= network.now_unix + SLACK_S:
                kept.until_unix = 0.0
        for promise in self.files:
            lasts = promise.is_bearer or promise.is_artifact or promise.has_lasted
            if promise.run < network.runs and lasts and self.is_kept(promise) and promise.uri not in shown:
                raise Wrong(f"of an earlier run, {promise} is not there")
        for status in shown.values():
            data = network.disk.blobs[status.blob]
            if self.made.get(data) != (status.server, status.principal):
                raise Wrong(f"{status} holds what nobody sent: {data!r}")

    def check_stored(self) -> None:
        """Nothing is kept but what can be found, and nothing longer than it is for. To be asked while no order is under
        way, and no upload."""
        network = self.network
        disk, files = network.disk, network.engine.files()
        late = [status for status in files if status.expires_at_unix < network.now_unix - SLACK_S and not status.pins]
        if late:
            raise Wrong(f"expired, and still there: {late}")
        keys = {f"{status.kind}/{status.session}/{status.id}" for status in files}
        keys |= {f"task/{status.id}" for status in network.engine.tasks()}
        left = {key for key in disk.records if not key.startswith("event/")} - keys - disk.junk
        if left:
            raise Wrong(f"nobody can find the records {left}")
        used = {session.workspace for session in network.engine._clients.sessions.values()}
        folders = {path.split("/")[2] for path in disk.files} - used - disk.junk
        if folders:
            raise Wrong(f"folders of sessions that are over: {folders}")
        lost = [key for key in keys if key not in disk.records and not key.startswith("task/")]
        if lost:
            raise Wrong(f"there are no records {lost}")

    # --- Tasks ------------------------------------------------------------------------------------------------------

    def must_see(self, handle: Handle, client: Filing) -> bool:
        """A task of somebody who is known by name is found from wherever that is."""
        whose = handle.server, handle.principal, handle.is_modern
        return (
            whose == (client.server, client.principal, client.is_modern)
            and bool(handle.principal)
            and handle.until_unix > self.network.now_unix + SLACK_S
            and not any(_may_be_outcome(data, handle) for data in self.network.disk.vanished)
        )

    def receive_status(self, handle: Handle, status: str, *, was_over: bool) -> None:
        """Args:
        was_over: somebody had been told so before this was asked for. Else what another was told later may have
            come first.
        """
        if status == "working" and not was_over:
            return
        is_lost = handle.run < self.network.runs and self.network.disk.troubles > 0  # it could not be kept
        if handle.status and status != handle.status and is_lost and status == "failed":
            handle.status, handle.outcome = "", None
        if handle.status and status != handle.status:
            raise Wrong(f"{handle} is {status} now")
        if status in ("completed", "failed", "cancelled"):
            handle.status = status

    def receive_outcome(self, handle: Handle, outcome: dict[str, Any]) -> None:
        if handle.outcome is not None and outcome != handle.outcome:
            raise Wrong(f"{handle} has come to {outcome}")
        handle.outcome = outcome
        said = [block.get("text") for block in outcome.get("content", ())][:1]  # files may follow
        if "content" in outcome and not outcome.get("isError") and said != [handle.says]:
            raise Wrong(f"{handle} has come to {outcome}")


def _may_be_outcome(data: bytes, handle: Handle) -> bool:
    """Whether a task may have come to this: to what it was to say, or to an error, which says nothing of it."""
    return handle.says.encode() in data or data.startswith(b'{"code":')
