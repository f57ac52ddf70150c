"""An examination of shared stores, for people who set up a gateway."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from anyio import create_task_group

from ...storage.interface import StorageError
from ..config.settings import Storage
from .stores import failure, open_objects, open_records

CLOCK_SKEW_S: Final = 1.0
"""Seconds by which the clock of a store may be off without a word. Clocks that are set by NTP agree to some
milliseconds."""
S3_CLOCK_STEP_S: Final = 1.0
"""Seconds by which a time of S3 may be too early: it has no fractions of a second."""
SOUND: Final = "every answer is on disk"
"""The durability of a store of records that loses nothing."""


@dataclass(frozen=True)
class StoreReport:
    """A shared store as it was found.

    Attributes:
        name: `records` or `blobs`.
        text: the software, its version and what it keeps; or why it cannot be used, and what to do.
        is_usable: it can be used.
        warnings: what is not as it should be, and what to do.
    """

    name: str
    text: str
    is_usable: bool = True
    warnings: tuple[str, ...] = ()


async def examine(storage: Storage) -> list[StoreReport]:
    """Opens and tries each shared store. Returns a report for each; none if no store is shared."""
    if not storage.is_shared:
        return []
    found: dict[str, StoreReport] = {}

    async def look(name: str, address: str | None, examine_one: Callable[[Storage], Awaitable[StoreReport]]) -> None:
        try:
            found[name] = await examine_one(storage)
        except StorageError as error:
            assert address is not None
            key = f"storage.{name}"
            found[name] = StoreReport(name, failure(key, address, error).removeprefix(f"{key}: "), is_usable=False)

    async with create_task_group() as tasks:
        tasks.start_soon(look, "records", storage.records, _records)
        tasks.start_soon(look, "blobs", storage.blobs, _blobs)
    return [found["records"], found["blobs"]]


async def _records(storage: Storage) -> StoreReport:
    records = await open_records(storage)
    try:
        report = await records.examine()
    finally:
        await records.aclose()
    warnings = _skew("records", report.clock_skew_s, CLOCK_SKEW_S)
    if report.durability != SOUND:
        how = "" if report.engine == "PostgreSQL" else ", set appendonly yes and appendfsync always, or use PostgreSQL"
        text = f"{report.durability}: files and tasks that clients were told of are among them{how}"
        warnings = (f"storage.records: {text}", *warnings)
    return StoreReport("records", f"{report.engine} {report.version}: {report.durability}", warnings=warnings)


async def _blobs(storage: Storage) -> StoreReport:
    from ...storage.s3_report import examine_objects

    report = await examine_objects(open_objects(storage, is_trial=True))
    text = f"{report.engine}, bucket {report.place}: what was written was listed, read and removed"
    return StoreReport("blobs", text, warnings=_skew("blobs", report.clock_skew_s, CLOCK_SKEW_S + S3_CLOCK_STEP_S))


def _skew(name: str, skew_s: float, max_s: float) -> tuple[str, ...]:
    if abs(skew_s) <= max_s:
        return ()
    way = "ahead of" if skew_s > 0 else "behind"
    text = f"its clock is {abs(skew_s):.0f} s {way} that of this machine: let both be set by NTP"
    return (f"storage.{name}: {text}",)
