"""The words that errors and drawings have for states and inputs."""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType

import pytest
from isthmus import core
from isthmus.core.errors import LocalProtocolError
from isthmus.core.machine import Machine

MODULES = [
    module
    for found in pkgutil.walk_packages(core.__path__, core.__name__ + ".")
    if hasattr(module := importlib.import_module(found.name), "TRANSITIONS")
]


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__.removeprefix("isthmus.core."))
def test_a_state_and_an_input_are_called_what_they_are(module: ModuleType) -> None:
    """By their names, whatever stands between the words: who reads an error or a drawing finds them in the code."""
    for member in (*module.State, *module.Input):
        assert member.value.replace(" ", "_").replace("-", "_") == member.name.lower()


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
