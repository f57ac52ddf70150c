"""The surroundings of a file: what it refers to beyond itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class Input(NamedTuple):
    """A value that VS Code asks its user for.

    Attributes:
        options: the values to choose from; empty: any.
        default: the value that is taken where the user enters none; None: there is none.
    """

    id: str
    description: str
    is_secret: bool
    options: tuple[str, ...]
    default: str | None


def _no_file(path: str) -> str:
    raise FileNotFoundError(2, "files are not read here", path)


@dataclass(frozen=True)
class Surroundings:
    """The surroundings of one file.

    Args:
        path: the absolute path of the file.
        environ: the variables of the environment.
        inputs: values of inputs, by id.
        ask: asks a person for the value of an input; None: there is nobody to ask.
        read_text: returns the text of a file, and raises OSError or UnicodeDecodeError.
        leaves_inputs_open: an input without a value becomes a variable of the environment, and is no fault.
    """

    path: str
    environ: Mapping[str, str]
    inputs: Mapping[str, str] = field(default_factory=dict)
    ask: Callable[[Input], str | None] | None = None
    read_text: Callable[[str], str] = _no_file
    leaves_inputs_open: bool = False
