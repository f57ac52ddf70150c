"""`isthmus pin`: writes the lock, shows what differs from it, and accepts that."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import anyio
import msgspec

from ...core.base.errors import RemoteProtocolError
from ...core.base.governance import Pinned
from ...core.governance.canonical import changed_members
from ...core.governance.lock import format_definition, in_order
from ..base import output
from ..base.errors import ConfigError
from ..base.version import VERSION
from ..cluster.lock_record import PLACE, LockRecord, is_recorded
from ..config.lock_file import ignored_members, read_lock, write_lock
from ..config.settings import Settings
from ..gateway import Gateway, running
from ..runtime.listing import Listed, list_definitions
from ..runtime.own_sessions import Refusal

PIN_TIMEOUT_S = 600.0
"""Longer than any server's own start timeout, which normally ends the wait."""


class Difference(NamedTuple):
    """One definition that differs from the lock. `before` is None for a new one, `now` for one that is gone."""

    before: Pinned | None
    now: Pinned | None
    changed: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        return self._one.kind

    @property
    def name(self) -> str:
        return self._one.name

    @property
    def what(self) -> str:
        """The difference in words."""
        return "new" if self.before is None else "gone" if self.now is None else f"{', '.join(self.changed)} changed"

    @property
    def _one(self) -> Pinned:
        one = self.before or self.now
        assert one is not None
        return one


def differences(
    approved: Iterable[Pinned], listed: Iterable[Pinned], ignore: tuple[str, ...] = ()
) -> tuple[Difference, ...]:
    """Returns the definitions that differ, in the order of the lock."""
    before = {(one.kind, one.name): one for one in approved}
    now = {(one.kind, one.name): one for one in listed}
    found = []
    for one in in_order({**now, **before}.values()):
        old, new = before.get((one.kind, one.name)), now.get((one.kind, one.name))
        changed = () if old is None or new is None else changed_members(old, new, ignore)
        if changed or old is None or new is None:
            found.append(Difference(old, new, changed))
    return tuple(found)


async def pin(settings: Settings, *, shows_diff: bool, approved: Sequence[str] | None) -> bool:
    """Carries the command out. True if every server was asked, and nothing differs from the lock afterwards.

    Args:
        shows_diff: show what differs, and write nothing.
        approved: the differences that are accepted: ids of servers, or ID/NAME; "" for all. None: nothing but servers
            that are not in the lock.

    Raises:
        ConfigError: the lock cannot be used, or there is nothing of that name.
    """
    path, record = settings.pins.file, LockRecord(settings.storage) if is_recorded(settings) else None
    lock = read_lock(path) if record is None else await record.read()
    known = lock or {}
    ids = [server.id for server in settings.servers if server.inspect]
    _check_ids([*ids, *known], approved or ())
    listed = await _list_servers(settings, ids)
    _check_names(listed, known, approved or ())
    made, is_good = dict(known), True
    for id in ids:
        one = listed[id]
        if isinstance(one, str):
            output.say(f"{id}: cannot be asked: {one}")
            is_good = False
            continue
        for problem in one.problems:
            output.say(f"{id}: left out: {problem}")
            is_good = False
        if id not in known:
            made[id] = one.definitions
            output.say(f"{id}: {'would be' if shows_diff else 'is'} pinned: {_count(one.definitions)}")
            continue
        found = differences(known[id], one.definitions, ignored_members(settings, id))
        accepted = [each for each in found if _is_meant(id, each.name, approved)]
        made[id] = _merged(known[id], accepted)
        is_good = _show(id, found, accepted, shows_diff=shows_diff) and is_good
    for id in sorted(known.keys() - {server.id for server in settings.servers}):
        if approved is not None and ("" in approved or id in approved):
            del made[id]
            output.say(f"{id}: is removed")
        else:
            output.say(f"{id}: is in the lock, but is no server: `isthmus pin --approve {id}` removes it")
    if not shows_diff and made != lock:
        if record is None:
            write_lock(path, made)
        else:
            await record.write(made)
        output.say(f"wrote {path if record is None else PLACE}")
    return is_good


async def _list_servers(settings: Settings, ids: Sequence[str]) -> dict[str, Listed | str]:
    """Returns what each server lists, or why it does not."""
    listed: dict[str, Listed | str] = {}

    async def ask(gateway: Gateway, id: str) -> None:
        try:
            with anyio.fail_after(PIN_TIMEOUT_S):
                listed[id] = await list_definitions(gateway.hub, id, VERSION)
        except Refusal as refusal:
            listed[id] = str(refusal)
        except RemoteProtocolError as error:
            listed[id] = error.message
        except TimeoutError:
            listed[id] = f"no answer within {PIN_TIMEOUT_S:g} s"

    unpinned = msgspec.structs.replace(settings, pins=msgspec.structs.replace(settings.pins, mode="off"))
    async with running(unpinned, listen=False, is_lasting=False) as gateway:
        async with anyio.create_task_group() as tasks:
            for id in ids:
                tasks.start_soon(ask, gateway, id)
    return listed


def _show(id: str, found: Sequence[Difference], accepted: Sequence[Difference], *, shows_diff: bool) -> bool:
    """Says what differs of a server. True if all of that is accepted."""
    if not found:
        output.say(f"{id}: as it was approved")
    for each in found:
        text = f"{id}/{each.name}: {each.kind}: {each.what}"
        output.say(f"{text}: approved" if each in accepted else text)
        if shows_diff:
            output.say("\n".join(f"  {line}" for line in _diff(each)))
    left = len(found) - len(accepted)
    if left and not shows_diff:
        output.say(f"{id}: {left} not approved: `isthmus pin --diff` shows them, `isthmus pin --approve` accepts them")
    return not left


def _diff(difference: Difference) -> list[str]:
    before = [] if difference.before is None else format_definition(difference.before)
    now = [] if difference.now is None else format_definition(difference.now)
    return list(difflib.unified_diff(before, now, lineterm="", n=1))[2:]


def _merged(approved: Iterable[Pinned], accepted: Iterable[Difference]) -> tuple[Pinned, ...]:
    made = {(one.kind, one.name): one for one in approved}
    for each in accepted:
        if each.now is None:
            del made[each.kind, each.name]
        else:
            made[each.kind, each.name] = each.now
    return in_order(made.values())


def _is_meant(id: str, name: str, approved: Sequence[str] | None) -> bool:
    return approved is not None and any(one in ("", id, f"{id}/{name}") for one in approved)


def _check_ids(ids: Sequence[str], approved: Sequence[str]) -> None:
    for one in approved:
        if one and one.partition("/")[0] not in ids:
            raise ConfigError(
                f"got --approve {one}, expected ID or ID/NAME with one of {', '.join(dict.fromkeys(ids))}"
            )


def _check_names(
    listed: Mapping[str, Listed | str], lock: Mapping[str, tuple[Pinned, ...]], approved: Sequence[str]
) -> None:
    for one in approved:
        id, slash, name = one.partition("/")
        answer = listed.get(id)
        if slash and isinstance(answer, Listed):
            if name not in {each.name for each in (*answer.definitions, *lock.get(id, ()))}:
                raise ConfigError(f"got --approve {one}, and {id} lists nothing of that name")


def _count(definitions: Iterable[Pinned]) -> str:
    counted = Counter(one.kind for one in definitions)
    return ", ".join(f"{count} {kind}" for kind, count in counted.items()) or "it lists nothing"
