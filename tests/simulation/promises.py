"""The record of promises to clients: the bytes of a file, the outcome of a task, for whom, and for how long at least.

The record is made from the messages to clients and the files that servers wrote. It knows nothing of how the proxy
stores them.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from inside import Inside
from isthmus.core.files.transfer.admission import USED_PREFIX
from simulated_network import Wrong

if TYPE_CHECKING:
    from filing_clients import Filing
    from lasting_network import LastingNetwork

SLACK_S = 1.0
"""Tolerance. Times on the wire are in whole seconds."""


@dataclass(eq=False)
class Promise:
    """The promise to keep a file.

    Attributes:
        sid: the session that it was stored in. Any client of the principal that knows the name may use it.
        run: the run of the proxy in which it was promised.
        until_unix: the earliest end of its life. 0 if it need not be kept any more.
        url: the download link, if there is one.
    """

    uri: str
    data: bytes
    server: str
    principal: str
    sid: str
    run: int
    until_unix: float
    is_artifact: bool
    url: str = ""


@dataclass(eq=False)
class Handle:
    """The promise to keep a task.

    Attributes:
        says: the text of its result if it succeeds.
        is_modern: True if its client is of the stateless era.
        status: its final status, once a client was told one.
        outcome: its result, once a client has fetched it.
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
    """All promises of a world.

    Args:
        is_roomy: True if the limits never force an eviction.

    Attributes:
        made: the owner of every content that was ever in a file.
    """

    def __init__(self, network: LastingNetwork, *, is_roomy: bool) -> None:
        self.network = network
        self.is_roomy = is_roomy
        self.files: list[Promise] = []
        self.tasks: list[Handle] = []
        self.made: dict[bytes, tuple[str, str]] = {}
        self._by_sha256: dict[str, bytes] = {}
        self._uses: dict[str, Any] = {}
        self._count = 0

    def by_sha256(self, sha256: str) -> bytes:
        """Returns the content that has this hash."""
        data = self._by_sha256.get(sha256)
        if data is None:
            raise Wrong(f"nobody has made a file with the SHA-256 {sha256}")
        return data

    def fresh(self, client: Filing) -> bytes:
        """Returns bytes that no other client has and that name their owner."""
        self._count += 1
        text = f"fl{self._count}:{client.principal}:".encode()
        data = text + b"x" * client.rng.choice((5, 60, 300))
        self.made[data] = client.server, client.principal
        self._by_sha256[hashlib.sha256(data).hexdigest()] = data
        return data

    # --- Files ------------------------------------------------------------------------------------------------------

    def use_link(self, query: dict[str, str], request: Any) -> None:
        """Notes an upload that has succeeded. A link is good for one."""
        if self._uses.setdefault(str(sorted(query.items())), request) is not request:
            raise Wrong(f"two uploads have used one link: {query}")

    def may_have(self, promise: Promise, client: Filing) -> bool:
        return (promise.server, promise.principal) == (client.server, client.principal)

    def must_have(self, promise: Promise, client: Filing) -> bool:
        """True if a refusal would break the promise, even if the client knows nothing else."""
        return self.may_have(promise, client) and self.is_kept(promise)

    def is_kept(self, promise: Promise) -> bool:
        """True if the file must still exist."""
        network = self.network
        if promise.until_unix <= network.now_unix + SLACK_S or promise.data in network.disk.vanished:
            return False
        return self.is_roomy or not network.evicted

    def check_start(self) -> None:
        """Checks the files after a start: each one that was promised is there, whole, and each one that is there has an
        owner."""
        network = self.network
        shown = {status.uri: status for status in network.engine.files()}
        for kept in (*self.files, *self.tasks):  # an expired entry stays so, even if the clock is put back
            if kept.until_unix <= network.now_unix + SLACK_S:
                kept.until_unix = 0.0
        for promise in self.files:
            if promise.run < network.runs and self.is_kept(promise) and promise.uri not in shown:
                raise Wrong(f"of an earlier run, {promise} is not there")
        for status in shown.values():
            data = network.disk.blobs[status.blob]
            if self.made.get(data) != (status.server, status.principal):
                raise Wrong(f"{status} holds what nobody sent: {data!r}")

    def check_stored(self) -> None:
        """Checks that each stored entry can be found and none has expired. Valid only while no order and no upload is
        under way."""
        network = self.network
        disk, files = network.disk, network.engine.files()
        late = [status for status in files if status.expires_at_unix < network.now_unix - SLACK_S and not status.pins]
        if late:
            raise Wrong(f"expired, and still there: {late}")
        keys = {f"{status.kind}/{status.session}/{status.id}" for status in files}
        keys |= {f"task/{status.id}" for status in network.engine.tasks()}
        keys |= {key for key in disk.records if key.startswith(("event/", USED_PREFIX))}
        left = disk.records.keys() - keys - disk.junk
        if left:
            raise Wrong(f"nobody can find the records {left}")
        used = {session.workspace for session in Inside(network.engine).sessions.sessions.values()}
        folders = {path.split("/")[2] for path in disk.files} - used - disk.junk
        if folders:
            raise Wrong(f"folders of sessions that are over: {folders}")
        lost = [key for key in keys if key not in disk.records and not key.startswith("task/")]
        if lost:
            raise Wrong(f"there are no records {lost}")

    # --- Tasks ------------------------------------------------------------------------------------------------------

    def must_see(self, handle: Handle, client: Filing) -> bool:
        """True if the client must be able to find the task. A named principal finds its tasks from any session."""
        whose = handle.server, handle.principal, handle.is_modern
        return (
            whose == (client.server, client.principal, client.is_modern)
            and bool(handle.principal)
            and handle.until_unix > self.network.now_unix + SLACK_S
            and not any(_may_be_outcome(data, handle) for data in self.network.disk.vanished)
        )

    def receive_status(self, handle: Handle, status: str, *, was_over: bool) -> None:
        """Checks a status against earlier ones.

        Args:
            was_over: True if a client knew of the end before this request was sent. Otherwise an earlier status may
                arrive late.
        """
        if status == "working" and not was_over:
            return
        # the storage may have failed to keep it
        is_lost = handle.run < self.network.runs and self.network.disk.troubles > 0
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
        texts = [str(block.get("text")) for block in outcome.get("content", ())][:1]  # links to files may follow
        said = [text.partition("\nFile: artifact://")[0] for text in texts]  # the call may have found another file
        if "content" in outcome and not outcome.get("isError") and said != [handle.says]:
            raise Wrong(f"{handle} has come to {outcome}")


def _may_be_outcome(data: bytes, handle: Handle) -> bool:
    """True if the data may be the task's outcome: its text, or an error, which does not name the task."""
    return handle.says.encode() in data or data.startswith(b'{"code":')
