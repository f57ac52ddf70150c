"""Checks a plan as a whole before an engine is made of it: the type of each field, and what fields require of others.

Structs check nothing when they are constructed. Unchecked, the text `"secret"` as a list of hidden names would hide the
tools `s`, `e`, `c`, `r` and `t`, and show `secret`.
"""

from __future__ import annotations

import enum
import functools
import math
from collections.abc import Iterator
from typing import Any, Final

from msgspec import inspect

from .errors import LocalProtocolError
from .plan import Kind, Plan, ServerPlan
from .regex import RegexError, compile_regex

LINK_KEY_MIN_BYTES: Final = 16
"""The least size of the key that signs links. A client that guesses the key can make links of its own."""
PROBLEMS_MAX: Final = 20
"""The most problems that are listed."""
_VALUE_MAX_CHARS: Final = 60
_NEED_STORAGE: Final = (
    "need a storage: pass has_storage=True to the engine if the driver answers orders that have a ticket, or plan none"
)


def check_plan(plan: Plan, *, has_storage: bool) -> None:
    """Checks a plan.

    Args:
        has_storage: the driver carries out the orders that have a ticket.

    Raises:
        LocalProtocolError: the plan cannot be used. The text has a line for each problem, of the form "path: problem".
    """
    problems = list(_problems(plan, has_storage=has_storage))
    if problems:
        more = [f"and {len(problems) - PROBLEMS_MAX} more"] if len(problems) > PROBLEMS_MAX else []
        raise LocalProtocolError("\n".join(["the plan cannot be used:", *problems[:PROBLEMS_MAX], *more]))


def problems_of(value: object, kind: type, path: str = "") -> list[str]:
    """Returns what is wrong with the types of a struct's fields, of structs in them, and so on.

    Args:
        kind: the struct that `value` should be.
        path: the path of `value`.
    """
    return list(_misfits(value, _shape_of(kind), path))


def _problems(plan: Any, *, has_storage: bool) -> Iterator[str]:
    misfits = problems_of(plan, Plan)
    yield from misfits
    if not isinstance(plan, Plan) or not isinstance(plan.servers, tuple | list):
        return
    first: dict[str, int] = {}
    has_files = False
    for i, server in enumerate(plan.servers):
        path = f"servers[{i}]"
        if any(misfit.startswith((f"{path}.", f"{path}:")) for misfit in misfits):
            continue
        has_files = has_files or server.has_files
        if (before := first.setdefault(server.id, i)) != i:
            yield f"{path}.id: got {_shown(server.id)}, which servers[{before}] has already, expected another"
        yield from _conflicts(server, path)
        if not has_storage:
            yield from _lacks(server, path)
    if not has_storage and any(profile.keeps_lists is True for profile in plan.profiles):
        yield f"profiles: kept lists {_NEED_STORAGE}"
    if plan.stores_events is True and not has_storage:
        yield f"stores_events: stored events {_NEED_STORAGE}"
    if has_files and not plan.link_keys:
        yield f"link_keys: got none for servers with files, expected at least one of {LINK_KEY_MIN_BYTES} secret bytes"


def _conflicts(server: ServerPlan, path: str) -> Iterator[str]:
    """Yields the fields of a server that do not fit others, or cannot be used."""
    if server.spares and server.kind is not Kind.PIPE:
        yield f"{path}.spares: got {server.spares} for {server.kind}, expected 0: only processes are kept ready"
    if server.may_fall_back and server.kind is not Kind.HTTP:
        yield f"{path}.may_fall_back: got True for {server.kind}, expected False: only Kind.HTTP falls back to HTTP+SSE"
    expressions = {
        f"{path}.{field}.exclude_regexes": getattr(server, field).exclude_regexes
        for field in ("tools", "prompts", "resources")
    } | {
        f"{path}.producers[{i}].output_locator.output_path_regexes": producer.output_locator.output_path_regexes
        for i, producer in enumerate(server.producers)
    }
    for field, given in expressions.items():
        for i, expression in enumerate(given):
            try:
                compile_regex(expression)
            except RegexError as error:
                yield f"{field}[{i}]: got {_shown(expression)}: {error}"


def _lacks(server: ServerPlan, path: str) -> Iterator[str]:
    """Yields the fields of a server that need a storage."""
    if server.tasks.are_offered:
        yield f"{path}.tasks: tasks of server {_cut(repr(server.id))} {_NEED_STORAGE}"
    for field in ("consumers", "producers", "auto_files"):
        if getattr(server, field):
            yield f"{path}.{field}: files of server {_cut(repr(server.id))} {_NEED_STORAGE}"


# --- Types ----------------------------------------------------------------------------------------------------------


@functools.cache
def _shape_of(kind: type) -> inspect.Type:
    return inspect.type_info(kind)


def _misfits(value: Any, kind: inspect.Type, path: str) -> Iterator[str]:
    if isinstance(kind, inspect.UnionType):
        found = [list(_misfits(value, one, path)) for one in kind.types]
        if all(found):  # a problem inside says more than one about the whole
            inner = [problems for problems in found if not problems[0].startswith(f"{path}: ")]
            yield from inner[0] if inner else [_misfit(value, kind, path)]
    elif not _fits(value, kind):
        yield _misfit(value, kind, path)
    elif isinstance(kind, inspect.StructType):
        for field in kind.fields:
            yield from _misfits(getattr(value, field.name), field.type, f"{path}.{field.name}".removeprefix("."))
    elif isinstance(kind, inspect.VarTupleType):
        for i, item in enumerate(value):
            yield from _misfits(item, kind.item_type, f"{path}[{i}]")
    elif isinstance(kind, inspect.TupleType):
        for i, (item, item_type) in enumerate(zip(value, kind.item_types, strict=True)):
            yield from _misfits(item, item_type, f"{path}[{i}]")


def _fits(value: Any, kind: inspect.Type) -> bool:
    """True if a value is of the type, as far as it is not made of others."""
    match kind:
        case inspect.StructType(cls=cls) | inspect.EnumType(cls=cls):
            return isinstance(value, cls)
        case inspect.VarTupleType():
            return isinstance(value, tuple | list)
        case inspect.TupleType(item_types=items):
            return isinstance(value, tuple | list) and len(value) == len(items)
        case inspect.DictType():
            return isinstance(value, dict)
        case inspect.LiteralType(values=values):
            return isinstance(value, str) and value in values
        case inspect.NoneType():
            return value is None
        case inspect.BoolType():
            return isinstance(value, bool)
        case inspect.IntType(ge=least):
            return type(value) is int and (least is None or value >= least)
        case inspect.FloatType(gt=above):
            return type(value) in (int, float) and math.isfinite(value) and (above is None or value > above)
        case inspect.StrType(min_length=least):
            return isinstance(value, str) and len(value) >= (least or 0)
        case inspect.BytesType(min_length=least):
            return isinstance(value, bytes) and len(value) >= (least or 0)
    raise AssertionError(kind)


def _misfit(value: Any, kind: inspect.Type, path: str) -> str:
    is_secret = isinstance(kind, inspect.BytesType)
    seen = "a text" if is_secret and isinstance(value, str) else _shown(value)
    return f"{path or 'plan'}: got {seen}, expected {_expected(kind)}"


def _expected(kind: inspect.Type, *, is_plural: bool = False) -> str:
    """Returns the words for a type, in the plural if several are wanted."""
    match kind:
        case inspect.UnionType(types=types):
            return " or ".join(_expected(one, is_plural=is_plural) for one in types)
        case inspect.StructType(cls=cls):
            return cls.__name__ if is_plural else _with_article(cls.__name__)
        case inspect.EnumType(cls=cls):
            return f"one of {', '.join(map(str, cls))}"
        case inspect.VarTupleType(item_type=item):
            return f"a sequence of {_expected(item, is_plural=True)}"
        case inspect.TupleType(item_types=items):
            return f"a sequence of {len(items)}: {' and '.join(map(_expected, items))}"
        case inspect.LiteralType(values=values):
            return f"one of {', '.join(map(repr, values))}"
        case inspect.NoneType():
            return "None"
        case inspect.BoolType():
            return "True or False"
        case inspect.IntType(ge=least):
            return "a whole number" if least is None else f"a whole number from {least}"
        case inspect.FloatType(gt=above):
            return "a number" if above is None else f"a number above {above}"
        case inspect.StrType(min_length=least):
            return "texts" if is_plural else "a text that is not empty" if least else "a text"
        case inspect.BytesType(min_length=least):
            return f"at least {least} bytes" if least else "bytes"
    return type(kind).__name__


def _shown(value: object) -> str:
    if isinstance(value, str):
        return f"the text {_cut(repr(value))}"
    if isinstance(value, bytes):  # it may be a key
        return f"{len(value)} bytes"
    if isinstance(value, enum.Enum):
        return str(value)
    if value is None or isinstance(value, bool | int | float):
        return _cut(repr(value))
    return _with_article(type(value).__name__)


def _cut(text: str) -> str:
    return text if len(text) <= _VALUE_MAX_CHARS else text[: _VALUE_MAX_CHARS - 1] + "…"


def _with_article(name: str) -> str:
    return f"{'an' if name[0] in 'AEIOUaeiou' else 'a'} {name}"
