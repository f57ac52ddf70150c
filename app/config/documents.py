"""Reads the text of a configuration into structs, and reports every fault with its dotted key.

`Reader` walks the document along the annotations of the structs. Only they tell an unknown key from the name of a
server, and whether `"8932"` from a variable means a number. Text without a variable never turns into a number.
"""

from __future__ import annotations

import datetime
import enum
import json
import re
import types
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Final, Literal, Union, get_args, get_origin

import msgspec

from ...core.base.nearest import nearest
from ..base.durations import parse_duration
from ..base.problem import Problem
from ..base.sizes import parse_size
from .jsonc import read_json

_PLAIN_NAMES: Final = {"str": "text", "int": "a whole number", "float": "a number", "bool": "true or false"}
_TYPE_NAME: Final = re.compile(rf"\b({'|'.join(_PLAIN_NAMES)})\b")
_PLAIN_BOUNDS: Final = (
    (" | null", ""),
    (" >= ", " of at least "),
    (" <= ", " of at most "),
    (" > ", " above "),
    (" < ", " below "),
)
KEYS_WITH_VALUES: Final = "keys with values"
_UNIONS: Final = (Union, types.UnionType)
_UNKNOWN: Final = "unknown key"
NEITHER: Final = "neither command nor url"
"""A server without a way to it. Nothing is said of it where one of its keys is a misspelt way."""
_SECRET: Final = re.compile(
    r"\.(env|(static_|pass_)?headers)\.|\.(token|password|((signing|client)_)?secret|proxy|auth)$|\.(request_state|link)_keys\b"
    r"|\Astorage\.(records|blobs)$"
)
_BARE: Final = re.compile(r"(?!(?i:true|false|null|yes|no|on|off)\Z)[A-Za-z./-][\w./+-]*")
FORMATS: Final = ("yaml", "toml", "json")


class MalformedDocument(Exception):
    """The text is not valid in its format. The message says what was seen and what is right.

    Attributes:
        line: the line, if the parser gives it.
    """

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.line = line


def parse(text: str, format: str) -> object:
    """Parses `text` into plain mappings, lists and scalars.

    Raises:
        MalformedDocument: `text` is not valid in this format, or a key appears twice in one mapping.
    """
    assert format in FORMATS
    try:  # parsers are imported late: a start without a document does not wait for them
        if format == "yaml":
            from .yaml_documents import read_yaml

            return read_yaml(text)
        if format == "toml":
            return _read_toml(text)
        return read_json(text)
    except ValueError as error:
        raise MalformedDocument(str(error), getattr(error, "line", None)) from error
    except RecursionError as error:
        raise MalformedDocument("nested too deeply") from error


def _read_toml(text: str) -> object:
    import tomllib

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message, _, place = str(error).partition(" (at line ")
        line = re.match(r"\d+", place)
        raise MalformedDocument(message, int(line[0]) if line else None) from error


class UnsetVariable(ValueError):
    """A variable that is not set and has no default.

    Attributes:
        name: its name.
    """

    def __init__(self, name: str) -> None:
        super().__init__(f"the environment variable {name} to be set, or a default as in ${{{name}:-text}}")
        self.name = name


_DOLLAR = re.compile(r"\$\$|\$\{(?P<inside>[^}]*)(?P<end>\}?)")
_INSIDE = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?P<default>:-.*)?", re.DOTALL)


def expand(text: str, environ: Mapping[str, str]) -> str:
    """Replaces `${NAME}` and `${NAME:-default}` in `text`, and `$$` with `$`; every other `$` stays.

    The default is also used for a variable that is set and empty, as in a shell.

    Raises:
        UnsetVariable: a variable is not set and has no default. The message says what is expected.
        ValueError: a `${` is not closed or holds no name. The message says what is expected.
    """

    def replacement(match: re.Match[str]) -> str:
        if match["inside"] is None:
            return "$"
        inside = _INSIDE.fullmatch(match["inside"])
        if inside is None or not match["end"]:
            raise ValueError("${NAME} or ${NAME:-default}, with $${ for a literal ${")
        value = environ.get(inside["name"])
        if inside["default"] is not None:
            if "${" in inside["default"]:
                raise ValueError("a default without a variable in it")
            return value or inside["default"][2:].replace("$$", "$")
        if value is None:
            raise UnsetVariable(inside["name"])
        return value

    return _DOLLAR.sub(replacement, text)


class Reader:
    """Reads a document into structs and collects its faults.

    Args:
        environ: the variables for `${NAME}`.
        ignored: for each struct, unknown keys that are no fault.

    Attributes:
        problems: the faults found so far. While there is none, the results of `read` have their declared types.
        passed_over: the dotted keys that were ignored.
        meant: the dotted keys that unknown ones were probably to be.
    """

    def __init__(
        self, environ: Mapping[str, str], ignored: Mapping[type[msgspec.Struct], Collection[str]] | None = None
    ) -> None:
        self.problems: list[Problem] = []
        self.passed_over: list[str] = []
        self.meant: list[str] = []
        self._environ = environ
        self._ignored = ignored or {}
        self._written: dict[str, object] = {}

    def read(self, value: object, kind: object, key: str = "") -> object:
        """Returns `value` as the type `kind`. Parts with a fault, which is noted, are None."""
        self._written[key] = value
        bare, metas, is_optional = _unwrap(kind)
        if value is None and is_optional:
            return None
        options = get_args(bare) if get_origin(bare) in _UNIONS else (bare,)
        if all(isinstance(option, type) and issubclass(option, msgspec.Struct) for option in options):
            return self._read_struct(value, options, key)
        if len(options) > 1 and not any(map(_shape, options)):
            return self._read_scalar(value, kind, options, key)
        if len(options) > 1:
            shapes = {_shape(option): option for option in options}
            bare = shapes.get(type(value) if isinstance(value, (list, dict)) else None)
            if bare is None:
                return self._note(key, _one_shape_of(shapes))
            if isinstance(bare, type) and issubclass(bare, msgspec.Struct):
                return self._read_struct(value, (bare,), key)
            kind = bare
        if get_origin(bare) is tuple:
            if not isinstance(value, list):
                return self._note(key, "a list", fix=_as_list(value, key))
            return tuple(self.read(item, get_args(bare)[0], f"{key}[{i}]") for i, item in enumerate(value))
        if get_origin(bare) is dict:
            if not self._is_mapping(value, key):
                return None
            assert isinstance(value, dict)
            return {name: self.read(item, get_args(bare)[1], _join(key, name)) for name, item in value.items()}
        return self._read_leaf(value, kind, bare, metas, key)

    def is_sound(self, key: str) -> bool:
        """True if the value at `key` can be checked further: no fault was noted at it, above it or below it.

        Unknown keys do not count as faults here.
        """
        faulty = [problem.key for problem in self.problems if problem.seen != _UNKNOWN]
        return not any(_is_below(one, key) or _is_below(key, one) for one in faulty)

    def render(self, problem: Problem) -> str:
        """Formats a problem as one line for people.

        No values of environment variables, headers and tokens are shown, and no credentials of URLs.
        """
        key, expected, seen, fix = problem
        if not seen and key in self._written:
            seen = f"got {_show(self._written[key], key)}"
        right = (f", expected {expected}" if expected else "") + (f"; {fix}" if fix else "")
        return f"{key or 'the document'}: {seen or 'missing'}{right}"

    def without_followers(self, problems: Sequence[Problem]) -> list[Problem]:
        """Returns the problems without those that only follow from a misspelt key."""
        meant = set(self.meant)
        above = {key.rpartition(".")[0] for key in meant}
        return [
            problem
            for problem in problems
            if not (problem.seen == NEITHER and problem.key in above)
            and not (problem.key in meant and problem.key not in self._written)
        ]

    def _read_struct(self, value: object, options: tuple[type[msgspec.Struct], ...], key: str) -> object:
        if not self._is_mapping(value, key):
            return None
        assert isinstance(value, dict)
        members = dict(value)
        shape = options[0]
        if len(options) > 1:
            tags = {str(option.__struct_config__.tag): option for option in options}
            tag = members.pop("type", None)
            if "type" in value:
                self._written[_join(key, "type")] = tag
            if not isinstance(tag, str) or tag not in tags:
                return self._note(_join(key, "type"), _one_of(tags))
            shape = tags[tag]
        else:
            assert shape.__struct_config__.tag is None
        fields = {entry.encode_name: entry for entry in msgspec.structs.fields(shape)}
        built: dict[str, object] = {}
        for name, item in members.items():
            if name in fields:
                built[fields[name].name] = self.read(item, fields[name].type, _join(key, name))
            elif name in self._ignored.get(shape, ()):
                self.passed_over.append(_join(key, name))
            else:
                near = nearest(name, fields)
                if near:
                    self.meant.append(_join(key, near))
                    self._note(_join(key, name), "", _UNKNOWN, f"did you mean {near}?")
                else:
                    self._note(_join(key, name), _one_of(fields), _UNKNOWN)
        missing = [name for name, entry in fields.items() if entry.required and entry.name not in built]
        for name in missing:
            self._note(_join(key, name), "a value: it has no default")
        return None if missing else shape(**built)

    def _read_leaf(self, value: object, kind: object, bare: object, metas: list[msgspec.Meta], key: str) -> object:
        is_expanded, hint = False, ""
        if isinstance(value, str):
            try:
                expanded = expand(value, self._environ)
            except UnsetVariable as error:
                fix = f"set it before you start Isthmus, or write a default: ${{{error.name}:-text}}"
                return self._note(key, "", f"the environment variable {error.name} is not set", fix)
            except ValueError as error:
                return self._note(key, str(error))
            is_expanded = "${" in value
            hint = self._variables_in(value)
            value = expanded
        if isinstance(value, str) and any((meta.extra or {}).get("unit") == "bytes" for meta in metas):
            try:
                value = parse_size(value)
            except ValueError:
                return self._note(key, f"a byte size such as 1048576, 512k, 10Mi, 5MB or 1.5GiB{hint}")
        if isinstance(value, str) and any(map(_is_of_seconds, metas)):
            try:
                value = parse_duration(value)
            except ValueError:
                if not is_expanded:
                    return self._note(key, "seconds, or a time such as 90s, 15m, 2h or 7d")
        choices = _choices(bare)
        if choices and value not in choices:
            return self._note(key, _one_of(choices) + hint)
        if isinstance(value, str) and not _is_unicode(value):
            return self._note(key, f"Unicode text, without half a surrogate pair{hint}", "got other text")
        try:
            return msgspec.convert(value, kind, strict=not is_expanded)
        except msgspec.ValidationError as error:
            expected = str(error).removeprefix("Expected ").split(", got ")[0].replace("`", "")
            expected = _TYPE_NAME.sub(lambda match: _PLAIN_NAMES[match[0]], expected)
            for symbol, words in _PLAIN_BOUNDS:
                expected = expected.replace(symbol, words).removesuffix(".0")
            if bare is str and isinstance(value, (bool, int, float)):
                expected += " (in quotes)"
            elif bare in (int, float) and isinstance(value, str) and re.fullmatch(r"[0-9.]+", value) and not hint:
                expected += " (without quotes)"
            return self._note(key, expected + hint)

    def _read_scalar(self, value: object, kind: object, options: tuple[object, ...], key: str) -> object:
        """Reads one of several scalars."""
        count = len(self.problems)
        read = self._read_leaf(value, kind, kind, [], key)
        if len(self.problems) > count and not (isinstance(value, str) and "${" in value):
            del self.problems[count:]
            self._note(key, ", or ".join(_single(_unwrap(option)[0]) for option in options))
        return read

    def _variables_in(self, text: str) -> str:
        """Returns a clause that names the variables in `text`; empty without any. Their values may be secrets."""
        inside = (_INSIDE.fullmatch(match["inside"]) for match in _DOLLAR.finditer(text) if match["inside"])
        names = sorted({match["name"] for match in inside if match and match["name"] in self._environ})
        if not names:
            return ""
        hold = "holds" if len(names) == 1 else "hold"
        return f"; the environment variable{'s' * (len(names) > 1)} {', '.join(names)} {hold} something else"

    def _is_mapping(self, value: object, key: str) -> bool:
        if not isinstance(value, dict):
            self._note(key, KEYS_WITH_VALUES)
            return False
        odd = [name for name in value if not isinstance(name, str)]
        for name in odd:
            self._note(_join(key, str(name)), "a key that is text (in quotes)", f"got {_show(name)} as a key")
        return not odd

    def _note(self, key: str, expected: str, seen: str = "", fix: str = "") -> object:
        """Notes a problem. Returns None, the value of a part with a fault."""
        self.problems.append(Problem(key, expected, seen, fix))
        return None


def _is_below(key: str, other: str) -> bool:
    """True if `key` is `other` or below it."""
    return key.startswith(other) and key[len(other) :][:1] in ("", ".", "[")


def _is_unicode(text: str) -> bool:
    """True if `text` has no lone surrogates, as escapes in JSON or variables that are not UTF-8 can make."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _unwrap(kind: object) -> tuple[object, list[msgspec.Meta], bool]:
    """Returns the type inside `Annotated[…]` and `… | None`, the metas found, and True if None is allowed."""
    metas: list[msgspec.Meta] = []
    is_optional = False
    while True:
        arguments = get_args(kind)
        if get_origin(kind) is Annotated:
            metas += [meta for meta in arguments[1:] if isinstance(meta, msgspec.Meta)]
            kind = arguments[0]
        elif get_origin(kind) in _UNIONS and types.NoneType in arguments:
            (kind,) = (argument for argument in arguments if argument is not types.NoneType)
            is_optional = True
        else:
            return kind, metas, is_optional


def _shape(option: object) -> type | None:
    """Returns the type of value in the document that stands for `option`: list, dict, or None for a scalar."""
    if get_origin(option) is tuple:
        return list
    is_struct = isinstance(option, type) and issubclass(option, msgspec.Struct)
    return dict if is_struct or get_origin(option) is dict else None


def _one_shape_of(shapes: Mapping[type | None, object]) -> str:
    names = [_single(shapes[None])] if None in shapes else []
    names += [name for shape, name in ((list, "a list"), (dict, KEYS_WITH_VALUES)) if shape in shapes]
    return ", or ".join(names)


def _single(option: object) -> str:
    choices = _choices(option)
    return _one_of(choices) if choices else _PLAIN_NAMES.get(getattr(option, "__name__", ""), "another value")


def _choices(bare: object) -> list[str]:
    if get_origin(bare) is Literal:
        return list(get_args(bare))
    if isinstance(bare, type) and issubclass(bare, enum.Enum):
        return [member.value for member in bare]
    return []


def _one_of(choices: Mapping[str, object] | list[str]) -> str:
    return f"one of {', '.join(choices)}"


def _join(key: str, name: str) -> str:
    return f"{key}.{name}" if key else name


def _show(value: object, key: str = "") -> str:
    if isinstance(value, dict):
        return KEYS_WITH_VALUES
    if isinstance(value, list):
        return f"a list of {len(value)}"
    if value is None:
        return "no value (null)"
    if isinstance(value, bool):
        return json.dumps(value)
    if not isinstance(value, (str, int, float)):
        return "a date or time" if isinstance(value, (datetime.date, datetime.time)) else "another value"
    if _SECRET.search(key):
        return "text (not shown)" if isinstance(value, str) else "a number (not shown)"
    if isinstance(value, str) and re.search(r"url(s\[\d+\])?\Z", key):
        value = without_credentials(value)
    shown = json.dumps(value, ensure_ascii=False)
    return shown if len(shown) <= 80 else f"{shown[:76]}…"


def _is_of_seconds(meta: msgspec.Meta) -> bool:
    return (meta.extra or {}).get("unit") == "seconds"


def _as_list(value: object, key: str) -> str:
    """Returns how to write a value that has to be a list; empty if it may be a secret."""
    if isinstance(value, dict):
        return 'write [ and ] around its entries, or "- " before each'
    if not isinstance(value, str) or not value.strip() or _SECRET.search(key):
        return ""
    words = value.split() if key.endswith("command") else [value]
    shown = f"write [{', '.join(map(_item, words))}]"
    return shown if len(shown) <= 80 else ""


def _item(text: str) -> str:
    return (
        text
        if re.fullmatch(r"(?!(?i:true|false|null|yes|no|on|off)\Z)[A-Za-z./-][\w./+-]*", text)
        else json.dumps(text)
    )


def without_credentials(url: str) -> str:
    """Returns the part of a URL that may be shown: no user-info, query or fragment. Works on invalid URLs too."""
    bare = re.sub(r"[?#].*", "?…", url, count=1, flags=re.DOTALL)
    before, at, after = bare.rpartition("@")
    return f"{before.partition('//')[0]}//…@{after}" if at and "//" in before else f"…@{after}" if at else bare
