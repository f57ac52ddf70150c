"""The promises of a world with several replicas: what one has promised, each of them keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from promises import SLACK_S, Handle, Promise, Promises
from replica_network import SKEW_MAX_S, ReplicaNetwork
from simulated_network import Wrong

if TYPE_CHECKING:
    from filing_clients import Filing


class ReplicaPromises(Promises):
    """All promises of such a world."""

    network: ReplicaNetwork  # type: ignore[assignment]

    def is_kept(self, promise: Promise) -> bool:
        skew_s = 2 * SKEW_MAX_S if "skews" in self.network.faults else 0.0
        return super().is_kept(promise) and promise.until_unix > self.network.now_unix + SLACK_S + skew_s

    def must_see(self, handle: Handle, client: Filing) -> bool:
        skew_s = 2 * SKEW_MAX_S if "skews" in self.network.faults else 0.0
        return super().must_see(handle, client) and handle.until_unix > self.network.now_unix + SLACK_S + skew_s

    def check_start(self) -> None:
        """Checks the storage: each file that was promised is there, whole, whatever happened to any replica."""
        for promise in self.files:
            if self.is_kept(promise):
                found = self.network.disk.file_at(promise.uri)
                if found != promise.data:
                    raise Wrong(f"{promise} is stored as {found!r}")

    def check_stored(self) -> None:
        self.check_start()
        for handle in self.tasks:
            is_due = handle.until_unix > self.network.now_unix + SLACK_S + 2 * SKEW_MAX_S
            if is_due and handle.principal and f"task/{handle.id}" not in self.network.disk.records:
                raise Wrong(f"there is no record of {handle}")

    def receive_status(self, handle: Handle, status: str, *, was_over: bool) -> None:
        """Checks a status against earlier ones. The end of a task that a client was told of stays."""
        if status != handle.status and handle.status and (status != "working" or was_over):
            raise Wrong(f"{handle} is {status} now")
        if status in ("completed", "failed", "cancelled"):
            handle.status = status
