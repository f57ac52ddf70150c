"""What an error of a machine says."""

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
def test_an_error_says_what_is_not_possible_and_when(module: ModuleType) -> None:
    for state, row in module.TRANSITIONS.items():
        for wish in set(module.Input) - set(row):

            class Some(Machine):  # type: ignore[type-arg]
                __slots__ = ()
                TRANSITIONS = module.TRANSITIONS

            some = Some(state)
            assert not some.may(wish)
            with pytest.raises(LocalProtocolError) as caught:
                some.step(wish)
            assert str(caught.value).startswith(f"Some is {state.value}: {wish.value} is not possible there")
            assert some.state is state
