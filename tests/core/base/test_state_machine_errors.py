"""The errors of state machines."""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType

import pytest
from isthmus import core
from isthmus.core.base.errors import LocalProtocolError
from isthmus.core.base.state_machine import Machine

MODULES = [
    module
    for found in pkgutil.walk_packages(core.__path__, core.__name__ + ".")
    if hasattr(module := importlib.import_module(found.name), "TRANSITIONS")
]


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__.removeprefix("isthmus.core."))
def test_an_error_names_the_state_and_the_input(module: ModuleType) -> None:
    inputs = type(next(taken for row in module.TRANSITIONS.values() for taken in row))
    for state, row in module.TRANSITIONS.items():
        for given in set(inputs) - set(row):

            class Some(Machine):  # type: ignore[type-arg]
                __slots__ = ()
                TRANSITIONS = module.TRANSITIONS

            some = Some(state)
            assert not some.may(given)
            with pytest.raises(LocalProtocolError) as caught:
                some.step(given)
            assert str(caught.value).startswith(f"Some is {state.value}: {given.value} is not possible there")
            assert some.state is state
