"""Starts workers, watches them, and replaces them when the configuration is to be read again.

The supervisor takes no part in requests: it waits for processes and signals. A worker that ends by itself is started
again after a delay that grows. One whose configuration is old is retired: another one with a new tag takes its place
first, then it accepts no more connections and ends with its last session.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import signal
import tempfile
from collections.abc import Callable, Sequence
from typing import Final

import anyio
import msgspec
from anyio import from_thread

from ...storage.local_notices import ENDING as NOTICES_ENDING
from ..base.errors import ConfigError, Failed, StartError
from ..config.addresses import shutdown_delay_of
from ..config.settings import Settings
from ..runtime.signals import Stop
from ..runtime.token_files import TokenFiles
from .folder import WorkersFolder, held_folder
from .listening import Listening
from .messages import Handover
from .pages import ENDING
from .places import Places
from .process import WorkerProcess, started

RESTART_FIRST_S: Final = 0.1
RESTART_MAX_S: Final = 5.0
"""Seconds before a worker is started again: `RESTART_FIRST_S`, then twice as long after each end, up to this."""
STEADY_S: Final = 60.0
"""Seconds after which a worker that ends has not ended at its start: the delay begins anew."""
CRASHES_MAX: Final = 6
"""Ends in a row of one worker that were each within `STEADY_S` of its start: about 10 s of attempts. At it: all workers
are ended, and the supervisor with them, since the cause does not go away by itself. With shared stores it may, as
stores come back: there each worker is started again without a limit."""
KILL_AFTER_S: Final = 60.0
"""Seconds beyond `shutdown_delay_seconds` and `drain_seconds` for workers to end. Each bounds its own end to less. At
it: they are killed."""

_log = logging.getLogger("isthmus.workers")


class _Slot:
    """One worker and what comes after it under the same tag.

    Attributes:
        place: the lowest number that no other one had at its start.
        outcome: set when the first process serves, or has ended before that.
        is_retiring: its process is not started again.
    """

    def __init__(self, tag: str, place: int, settings: Settings) -> None:
        self.tag = tag
        self.place = place
        self.settings = settings
        self.process: WorkerProcess | None = None
        self.outcome = anyio.Event()
        self.serves = False
        self.is_retiring = False
        self.end_wait: Callable[[], None] = lambda: None

    async def retire(self) -> None:
        self.is_retiring = True
        self.end_wait()
        if self.process is not None:
            await self.process.retire()


class Supervisor:
    """Runs workers.

    Args:
        settings: the configuration at the start.
        reread: reads it anew. Raises `ConfigError` and `StartError`.
        count: how many workers.
        arguments: those of the command, for the workers.
        show: prints the banner.
        storage_name: the name of the setting of the storage folder, for messages.
    """

    def __init__(
        self,
        settings: Settings,
        reread: Callable[[], Settings],
        *,
        count: int,
        arguments: Sequence[str],
        show: Callable[[str], None],
        storage_name: str,
    ) -> None:
        self._settings = settings
        self._reread = reread
        self._count = count
        self._arguments = arguments
        self._show = show
        self._storage_name = storage_name
        self._listening = Listening()
        self._token_files = TokenFiles()
        self._slots: list[_Slot] = []  # those that serve, in the order of their start
        self._all: set[_Slot] = set()  # those that retire, too
        self._screen: str | None = None  # the banner, until it is shown
        self._is_shown = False
        self._is_ending = False
        self._delayed_until = 0.0  # the time until which workers serve after the stop signal
        self._reload = anyio.Event()
        self._stopping = anyio.Event()
        self._failure: Exception | None = None
        self._changed = anyio.Event()
        self._keeping: anyio.abc.TaskGroup
        self._places: Places
        self._folder: WorkersFolder
        self._private: str

    async def run(self, stop: Stop) -> None:
        """Runs until it is told to stop. All workers have ended then.

        Raises:
            StartError: an address or the storage folder cannot be used, or the replicas could not reach the workers.
            Failed: a worker cannot be started, or ends again and again.
        """
        self._places = Places(self._settings)
        async with held_folder(self._settings, self._storage_name) as folder:
            with tempfile.TemporaryDirectory(prefix="isthmus-workers-") as self._private, self._token_files:
                try:
                    await self._listening.open(self._settings)
                    self._token_files.show(self._listening.places(), await folder.local_token(self._settings))
                    await self._run(stop, folder)
                finally:
                    self._listening.close()
        if self._failure is not None:
            raise self._failure

    async def _run(self, stop: Stop, folder: WorkersFolder) -> None:
        stop.order = self._stopping.set
        stop.hurry = self._hurry
        stop.at_once = self._kill
        stop.reload = lambda: from_thread.run_sync(self._reload.set)  # at the start, it waits until all workers run
        async with anyio.create_task_group() as keeping:
            self._keeping, self._folder = keeping, folder
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._start_all)
                await self._stopping.wait()
                tasks.cancel_scope.cancel()
            self._is_ending = True
            self._delayed_until = anyio.current_time() + shutdown_delay_of(self._settings.core)
            for slot in self._all:
                slot.end_wait()
            self._signal(signal.SIGTERM)
            keeping.start_soon(self._kill_late)
            while self._all:
                self._changed = anyio.Event()
                await self._changed.wait()
            keeping.cancel_scope.cancel()

    # --- Workers ----------------------------------------------------------------------------------------------------

    async def _start_all(self) -> None:
        # The first one alone: if it cannot start, none can, and one message says so.
        for _ in range(self._count):
            slot = self._add(self._settings)
            if len(self._slots) == 1:
                await slot.outcome.wait()
        for slot in self._slots:
            await slot.outcome.wait()
        self._show_screen()
        while True:
            await self._reload.wait()
            self._reload = anyio.Event()
            await self._replace_all()

    def _add(self, settings: Settings, at: int | None = None) -> _Slot:
        places = {slot.place for slot in self._all}
        place = next(number for number in itertools.count() if number not in places)
        slot = _Slot(self._places.tag({slot.tag for slot in self._all}), place, settings)
        if at is None:
            self._slots.append(slot)
        self._all.add(slot)
        self._keeping.start_soon(self._keep_slot, slot)
        return slot

    async def _keep_slot(self, slot: _Slot) -> None:
        """Starts a worker, and starts it again when it has ended, until it retires."""
        crashes, delay_s = 0, RESTART_FIRST_S
        while not self._is_over(slot):
            started_at = anyio.current_time()
            slot.process = await started(self._handover(slot), self._arguments)
            if self._is_over(slot):  # since it was begun
                slot.process.signal(signal.SIGTERM)
            code = await slot.process.run(
                when_serving=lambda: self._receive_serving(slot), when_probed=self._receive_probed
            )
            slot.process = None
            slot.outcome.set()
            if self._is_over(slot):
                break
            if not slot.serves:  # its own message says why
                if slot in self._slots:
                    self._end_with(Failed(f"worker {slot.tag} cannot be started (exit code {code})"))
                break
            crashes = 1 if anyio.current_time() - started_at >= STEADY_S else crashes + 1
            if crashes == 1:
                delay_s = RESTART_FIRST_S
            if crashes >= CRASHES_MAX and not slot.settings.storage.is_shared:
                self._end_with(
                    Failed(
                        f"worker {slot.tag} has ended {crashes} times in a row soon after its start, the last time "
                        f"{_how(code)}: see its lines above; all workers are ended"
                    )
                )
                break
            _log.error("worker %s has ended %s: its sessions are lost; starting it again", slot.tag, _how(code))
            with anyio.CancelScope() as waiting:
                slot.end_wait = waiting.cancel
                await anyio.sleep(delay_s)
            delay_s = min(2 * delay_s, RESTART_MAX_S)
        slot.outcome.set()
        with anyio.CancelScope(shield=True):
            try:
                await self._folder.remove_worker(slot.tag)
                for ending in (".sock", ENDING, NOTICES_ENDING):
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(os.path.join(self._private, f"{slot.tag}{ending}"))
            except Exception as error:
                _log.warning("the folder of worker %s stays until the next start: %s", slot.tag, error)
        self._all.discard(slot)
        self._changed.set()

    def _is_over(self, slot: _Slot) -> bool:
        return slot.is_retiring or self._is_ending

    def _handover(self, slot: _Slot) -> Handover:
        cluster = self._places.cluster(slot.settings, self._private, slot.tag, slot.place)
        return Handover(
            settings=msgspec.structs.replace(slot.settings, cluster=cluster),
            tag=slot.tag,
            folder=self._private,
            base_url=self._listening.base_url,
            sockets=self._listening.descriptors(),
            probes=not self._is_shown and self._slots[0] is slot,
            count=self._count,
        )

    def _receive_serving(self, slot: _Slot) -> None:
        slot.serves = True
        slot.outcome.set()

    def _receive_probed(self, screen: str) -> None:
        self._screen = screen
        self._show_screen()

    def _show_screen(self) -> None:
        if self._screen is None or self._is_shown or len(self._slots) < self._count:
            return
        if all(slot.outcome.is_set() for slot in self._slots):
            self._is_shown = True
            self._show(self._screen)

    # --- A new configuration ----------------------------------------------------------------------------------------

    async def _replace_all(self) -> None:
        """Replaces all workers by others with the configuration as it is now, one after another."""
        try:
            settings = self._reread()
            if settings.storage != self._settings.storage:
                raise ConfigError("storage cannot change while workers run: restart for that")
            if settings.cluster != self._settings.cluster:
                raise ConfigError("cluster cannot change while workers run: restart for that")
            await self._listening.open(settings)
            token = await self._folder.local_token(settings)
        except (ConfigError, StartError) as error:
            _log.error("the configuration cannot be used, and the old one stays: %s", error)
            return
        _log.info("the configuration was read again: replacing %d workers", self._count)
        for at, old in enumerate(list(self._slots)):
            new = self._add(settings, at)
            await new.outcome.wait()
            if not new.serves:
                _log.error(
                    "no worker starts with the new configuration: %d of %d stay as they are",
                    self._count - at,
                    self._count,
                )
                if at == 0:
                    await self._listening.open(self._settings)
                    self._listening.close_others()
                return
            self._settings = settings
            self._token_files.show(self._listening.places(), token)
            self._slots[at] = new
            await old.retire()
        self._listening.close_others()
        _log.info(
            "all workers have the new configuration: sessions of the old ones go on for at most %g s",
            settings.core.drain_seconds,
        )

    # --- The end ----------------------------------------------------------------------------------------------------

    def _end_with(self, failure: Exception) -> None:
        if self._failure is None and not self._is_ending:
            self._failure = failure
        self._stopping.set()

    async def _kill_late(self) -> None:
        core = self._settings.core
        await anyio.sleep(shutdown_delay_of(core) + core.drain_seconds + KILL_AFTER_S)
        _log.error("workers have not ended in time: killing them")
        self._kill()

    def _hurry(self) -> bool:
        """Has workers that still serve drain at once. Returns False if they do already."""
        if anyio.current_time() >= self._delayed_until:
            return False
        self._delayed_until = 0.0
        self._signal(signal.SIGTERM)
        return True

    def _kill(self) -> None:
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        for slot in self._all:
            if slot.process is not None:
                slot.process.signal(number)


def _how(code: int) -> str:
    if code >= 0:
        return f"with exit code {code}"
    try:
        return f"by {signal.Signals(-code).name}"
    except ValueError:
        return f"by signal {-code}"
