"""Every transition table of the core is total, used, reachable, and obeyed by the class that moves along it."""

from __future__ import annotations

import enum
import importlib
import pkgutil
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
from isthmus import core
from isthmus.core.base.errors import LocalProtocolError
from isthmus.core.base.state_machine import Machine

Table = dict[enum.Enum, dict[enum.Enum, enum.Enum]]


def modules_with_tables() -> Iterator[ModuleType]:
    for found in pkgutil.walk_packages(core.__path__, core.__name__ + "."):
        module = importlib.import_module(found.name)
        if hasattr(module, "TRANSITIONS"):
            yield module


MODULES = [pytest.param(module, id=module.__name__.removeprefix("isthmus.core.")) for module in modules_with_tables()]


def states_of(table: Table) -> type[enum.Enum]:
    return type(next(iter(table)))


def inputs_of(table: Table) -> type[enum.Enum]:
    return type(next(taken for row in table.values() for taken in row))


def mover(module: ModuleType) -> Any:
    """The class of a module that moves along its table."""
    found = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and value.__module__ == module.__name__ and ({"step", "_step"} & set(dir(value)))
    ]
    assert len(found) == 1, f"{module.__name__} has {len(found)} classes that step"
    return found[0]


def test_the_tables_are_found() -> None:
    """The walk finds the known machines, so that an empty walk cannot pass."""
    names = {param.id for param in MODULES}
    assert {
        "state.exchange",
        "state.listen",
        "state.session",
        "state.suspended_call",
        "state.upstream_session",
        "wire.http.legacy_sse_client",
        "wire.http.reply",
        "wire.http.response",
    } <= names


@pytest.mark.parametrize("module", MODULES)
def test_a_table_is_total_used_and_reachable(module: ModuleType) -> None:
    """Every state has a row, every input is taken, every state is reached, and an end is reachable from each. A machine
    without an end comes back to its beginning instead."""
    table: Table = module.TRANSITIONS
    states, inputs = set(states_of(table)), set(inputs_of(table))
    assert set(table) == states
    assert {taken for row in table.values() for taken in row} == inputs
    assert {following for row in table.values() for following in row.values()} <= states
    initial = next(iter(states_of(table)))
    assert reachable(table, initial) == states
    ends = {state for state, row in table.items() if not row} or {initial}
    for state in states:
        assert reachable(table, state) & ends, f"{state} can never end"


def reachable(table: Table, start: enum.Enum) -> set[enum.Enum]:
    seen, fresh = {start}, [start]
    while fresh:
        for following in table[fresh.pop()].values():
            if following not in seen:
                seen.add(following)
                fresh.append(following)
    return seen


@pytest.mark.parametrize("module", MODULES)
def test_a_machine_moves_along_its_table_only(module: ModuleType) -> None:
    """Every state is tried with every input: a row leads to the next state; without one there is an error and no
    change."""
    table: Table = module.TRANSITIONS
    cls = mover(module)
    for state in states_of(table):
        for taken in inputs_of(table):
            machine = cls.__new__(cls)  # the state is all that a step may look at
            machine.state = state
            step = machine.step if hasattr(machine, "step") else machine._step
            if taken in table[state]:
                step(taken)
                assert machine.state is table[state][taken]
            else:
                with pytest.raises(LocalProtocolError):
                    step(taken)
                assert machine.state is state


@pytest.mark.parametrize("module", [param for param in MODULES if issubclass(mover(param.values[0]), Machine)])
def test_a_machine_knows_its_own_table(module: ModuleType) -> None:
    """`may` agrees with the transitions that a step makes."""
    table: Table = module.TRANSITIONS
    cls = mover(module)
    assert cls.TRANSITIONS is table
    for state in states_of(table):
        machine = cls.__new__(cls)
        machine.state = state
        assert {taken for taken in inputs_of(table) if machine.may(taken)} == set(table[state])
        assert machine.is_over == (not table[state])
