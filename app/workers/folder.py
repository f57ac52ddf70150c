"""The storage folder of several workers: locked, cleared and given its keys before they start."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager

from anyio import to_thread

from ..config.settings import Settings
from ..disk.lock import holding
from ..disk.remove_tree import remove_tree
from ..disk.workspaces import remove_worker, remove_workers
from ..stores.folder import kept_key, local_token, start_errors
from ..stores.start_up import remove_leftovers
from ..stores.stores import opened, own_folder


class WorkersFolder:
    """The storage folder, while it is held."""

    def __init__(self, root: str) -> None:
        self._root = root

    async def local_token(self, settings: Settings) -> str | None:
        """Returns the local token of all workers; None if none is wanted.

        Raises:
            StartError: its key cannot be read.
        """
        with start_errors(self._root):
            return await to_thread.run_sync(local_token, settings, os.path.join(self._root, "state"))

    async def remove_worker(self, tag: str) -> None:
        """Removes what a worker that has ended left."""
        await to_thread.run_sync(remove_worker, os.path.join(self._root, "workspaces"), tag)
        await to_thread.run_sync(remove_tree, os.path.realpath(own_folder(self._root, tag)))


@asynccontextmanager
async def held_folder(settings: Settings, name: str) -> AsyncIterator[WorkersFolder]:
    """Holds the storage folder until the context is left. Workers may use it, and no other process.

    Args:
        name: of the setting, for messages.

    Raises:
        StartError: the folder cannot be used, or is in use.
    """
    root = settings.storage.root
    workspaces = os.path.realpath(os.path.join(root, "workspaces"))
    with ExitStack() as stack:
        with start_errors(f"{name} {root}"):
            stack.enter_context(holding(workspaces))
            # Workers of an earlier supervisor may still drain: their folders are locked.
            await to_thread.run_sync(remove_workers, workspaces)
            for key in ("link.key", "state.key"):
                await to_thread.run_sync(kept_key, os.path.join(root, "state"), key)
            await to_thread.run_sync(remove_tree, os.path.realpath(own_folder(root)))
            if not settings.storage.is_shared:  # what is shared is swept by one of all replicas
                async with opened(settings.storage, root, may_share=False) as stores:
                    await remove_leftovers(stores)
        yield WorkersFolder(root)
