"""Equality of JSON texts by value."""

from __future__ import annotations

import json
import math


def is_same(one: bytes, other: bytes) -> bool:
    """True if two JSON texts mean the same value, however they are written. Unreadable text equals only itself."""
    if one == other:
        return True
    if one.lstrip(b" \t\r\n")[:1] != other.lstrip(b" \t\r\n")[:1]:  # cheap, and nearly always enough
        return False
    loaded = _loaded(one)
    return loaded is not None and loaded == _loaded(other)


def _loaded(data: bytes) -> object:
    """Returns a value that equals another exactly when both texts mean the same; None if `data` cannot be read.

    Python's own comparison does not do: it takes true for 1.
    """
    try:
        return _typed(json.loads(data.decode(), parse_float=_number))
    except (ValueError, RecursionError):
        return None


def _number(lexeme: str) -> float | bytes:
    number = float(lexeme)
    return number if math.isfinite(number) else lexeme.encode()  # beyond the range of floats, compared as text


def _typed(loaded: object) -> object:
    if isinstance(loaded, dict):
        return {key: _typed(value) for key, value in loaded.items()}
    if isinstance(loaded, list):
        return [_typed(value) for value in loaded]
    return (type(loaded).__name__, loaded) if isinstance(loaded, bool | str) or loaded is None else ("number", loaded)
