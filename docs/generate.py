"""Writes what the pages say of tables in the code: settings, limits, losses and state machines. `make docs` runs it.

A page holds generated parts between `<!-- begin NAME -->` and `<!-- end NAME -->`; everything else is written by hand.
`tests/test_docs.py` compares what is checked in with what this makes.
"""

from __future__ import annotations

import ast
import enum
import importlib
import inspect
import json
import re
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

import msgspec
from isthmus.app.base.sizes import GIB, KIB, MIB
from isthmus.app.commands.losses import LOSSES
from isthmus.app.config.file_settings import (
    ArtifactProducerAdapter,
    Files,
    OutputLocator,
    SharedFolder,
    UploadConsumerAdapter,
)
from isthmus.app.config.plan import to_limits
from isthmus.app.config.settings import (
    Filter,
    Forwarding,
    Management,
    McpServer,
    Server,
    ServerTasks,
    Settings,
    Upstream,
)
from isthmus.core.base.limits import Limits
from isthmus.core.oracle import METHODS, RULES, Severity

DOCS: Final = Path(__file__).parent

MACHINES: Final = {
    "exchange": "isthmus.core.state.exchange",
    "session": "isthmus.core.state.session",
    "upstream": "isthmus.core.state.upstream_session",
    "listen": "isthmus.core.state.listen",
    "park": "isthmus.core.state.suspended_call",
    "task": "isthmus.core.state.task",
    "drafts": "isthmus.core.files.transfer.resumable",
    "http_reply": "isthmus.core.wire.http.reply",
    "http_client": "isthmus.core.wire.http.response",
    "sse_client": "isthmus.core.wire.http.legacy_sse_client",
}

SECTIONS: Final = ("core", "storage", "sessions", "uploads", "artifacts", "tasks")
LISTED: Final[dict[str, type[msgspec.Struct]]] = {
    "core.management": Management,
    "servers[]": Server,
    "servers[].upstream": Upstream,
    "servers[].tools": Filter,
    "servers[].prompts": Filter,
    "servers[].resources": Filter,
    "servers[].adapters[] (type: upload_consumer)": UploadConsumerAdapter,
    "servers[].adapters[] (type: artifact_producer)": ArtifactProducerAdapter,
    "servers[].adapters[].output_locator": OutputLocator,
    "servers[].files": Files,
    "servers[].shared[]": SharedFolder,
    "servers[].tasks": ServerTasks,
    "servers[].forwarding": Forwarding,
    "mcpServers.NAME": McpServer,
}


def main() -> None:
    for page, text in pages().items():
        page.write_text(text, encoding="utf-8")


def pages() -> dict[Path, str]:
    """Every page with a generated part, as it should be."""
    parts = {
        "settings": _settings(),
        "limits": _limits(),
        "losses": _losses(),
        "rules": _rules(),
        **{f"machine {name}": _machine(module) for name, module in MACHINES.items()},
    }
    made = {}
    for page in sorted(DOCS.glob("*.md")):
        text = page.read_text(encoding="utf-8")
        filled = re.sub(
            r"(<!-- begin ([\w ]+) -->\n).*?(<!-- end \2 -->)",
            lambda match: match[1] + "\n" + parts[match[2]] + "\n" + match[3],
            text,
            flags=re.DOTALL,
        )
        if "<!-- begin " in text:
            made[page] = filled
    return made


def _table(heads: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(heads) + " |", "|" + " --- |" * len(heads)]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


# --- Settings -------------------------------------------------------------------------------------------------------


def _settings() -> str:
    shapes = {name: type(getattr(Settings(), name)) for name in SECTIONS} | LISTED
    shapes = {"": Settings} | shapes
    parts = []
    for name, shape in shapes.items():
        fields = msgspec.structs.fields(shape)
        rows = [[f"`{field.encode_name}`", _kind(field.type), _default(field), _about(field.type)] for field in fields]
        head, _, variant = name.partition(" ")
        title = f"### {f'`{head}` {variant}'.strip() if head else 'The file'}\n\n{inspect.getdoc(shape)}\n\n"
        parts.append(title + _table(["Key", "Type", "Default", "What it is for"], rows))
    return "\n".join(parts)


def _unwrap(kind: Any) -> tuple[Any, list[msgspec.Meta], bool]:
    metas: list[msgspec.Meta] = []
    may_be_null = False
    while True:
        if get_origin(kind) is Annotated:
            metas += [meta for meta in get_args(kind)[1:] if isinstance(meta, msgspec.Meta)]
            kind = get_args(kind)[0]
        elif get_origin(kind) in (Union, types.UnionType) and types.NoneType in get_args(kind):
            (kind,) = (one for one in get_args(kind) if one is not types.NoneType)
            may_be_null = True
        else:
            return kind, metas, may_be_null


def _is_size(kind: Any) -> bool:
    return any((meta.extra or {}).get("unit") == "bytes" for meta in _unwrap(kind)[1])


def _kind(kind: Any) -> str:
    bare, _, may_be_null = _unwrap(kind)
    if _is_size(kind):
        text = "size"
    elif get_origin(bare) is Literal:
        text = " or ".join(f"`{choice}`" for choice in get_args(bare))
    elif isinstance(bare, type) and issubclass(bare, enum.Enum):
        text = " or ".join(f"`{member.value}`" for member in bare)
    elif get_origin(bare) in (Union, types.UnionType):
        text = " or ".join(_kind(one) for one in get_args(bare))
    elif get_origin(bare) is tuple:
        inner, _, _ = _unwrap(get_args(bare)[0])
        is_choice = isinstance(inner, type) and issubclass(inner, enum.Enum)
        text = "list of text" if inner is str else "list of these" if is_choice else "list of mappings"
    elif get_origin(bare) is dict:
        inner, _, _ = _unwrap(get_args(bare)[1])
        told = _kind(inner) if get_origin(inner) is Literal else "text" if inner is str else "mappings"
        text = f"mapping of {told}"
    else:
        text = {str: "text", int: "whole number", float: "number", bool: "true or false"}.get(bare, "mapping")
    return f"{text}, or null" if may_be_null else text


def _default(field: msgspec.structs.FieldInfo) -> str:
    if field.required:
        return "*required*"
    value = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
    if isinstance(value, msgspec.Struct):
        return "its own defaults"
    if _is_size(field.type) and value is not None:
        return f"`{size_text(value)}`"
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    plain = msgspec.to_builtins(value)
    return f"`{plain if isinstance(plain, str) else json.dumps(plain)}`"


def size_text(value: int) -> str:
    """A byte size as the configuration takes it."""
    for unit, size in (("Gi", GIB), ("Mi", MIB), ("Ki", KIB)):
        if value % size == 0:
            return f"{value // size}{unit}"
    return str(value)


def _about(kind: Any) -> str:
    bare, metas, _ = _unwrap(kind)
    text = next((meta.description for meta in metas if meta.description), None)
    if text is None and isinstance(bare, type) and issubclass(bare, msgspec.Struct):
        text = inspect.getdoc(bare)
    return " ".join((text or "").split())


# --- Limits ---------------------------------------------------------------------------------------------------------


def _limits() -> str:
    reasons, keys = dict(_attribute_docs(Limits)), _keys_of_limits()
    rows = []
    for field in msgspec.structs.fields(Limits):
        value = size_text(field.default) if field.name.endswith("_bytes") else f"{field.default:g}"
        key = f"`{keys[field.name]}`" if field.name in keys else ""
        rows.append([f"`{field.name}`", value, key, reasons.get(field.name, "")])
    return _table(["Limit", "Default", "Configuration key", "Reason"], rows)


def _attribute_docs(shape: type) -> Iterator[tuple[str, str]]:
    """The text that follows each field of a class."""
    body = ast.parse(inspect.getsource(shape)).body[0]
    assert isinstance(body, ast.ClassDef)
    for field, after in zip(body.body, body.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            assert isinstance(field.target, ast.Name)
            yield field.target.id, " ".join(str(after.value.value).split())


def _keys_of_limits() -> dict[str, str]:
    """Which key of a configuration sets which limit: found by setting each key and looking what changes."""
    keys = {}
    plain = to_limits(Settings())
    for section in SECTIONS:
        defaults = getattr(Settings(), section)
        for field in msgspec.structs.fields(defaults):
            value = getattr(defaults, field.name)
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if not is_number and not (value is None and _is_size(field.type)):
                continue
            changed = msgspec.structs.replace(defaults, **{field.name: (value or 1) + 1})
            limits = to_limits(Settings(**{section: changed}))
            for name in Limits.__struct_fields__:
                if getattr(limits, name) != getattr(plain, name):
                    keys[name] = f"{section}.{field.encode_name}"
    return keys


# --- Losses ---------------------------------------------------------------------------------------------------------


def _losses() -> str:
    heads = ["What", "Said by", "To", "Hangs on", "Fate", "What happens"]
    rows = []
    for loss in LOSSES:
        listener = "client" if loss.speaker == "server" else "server"
        hangs_on = f"`{loss.capability}`" if loss.capability else ""
        sides = [f"{loss.from_era} {loss.speaker}", f"{loss.to_era} {listener}"]
        rows.append([loss.feature, *sides, hangs_on, loss.fate, loss.carried])
    return _table(heads, rows)


# --- The oracle's rules -----------------------------------------------------------------------------------------------


def _rules() -> str:
    """Each with the place it has in the newest revision that has it."""
    rows = []
    for rule in RULES.values():
        where = [
            f"{severity.value.upper()}, {'all' if found == list(METHODS['tools/list'].revisions) else ', '.join(found)}"
            for severity in Severity
            if (found := [revision for revision in rule.clauses if rule.severity(revision) is severity])
        ]
        who = " and ".join(role.value for role in rule.who)
        rows.append([f"`{rule.id}`", rule.says, who, "; ".join(where), list(rule.clauses.values())[-1]])
    return _table(["Rule", "What it says", "Who", "In", "Where, in the newest of these"], rows)


# --- State machines -------------------------------------------------------------------------------------------------


def _machine(module_name: str) -> str:
    module = importlib.import_module(module_name)
    table = module.TRANSITIONS
    inputs = list(module.Input)
    rows = []
    for state in module.State:
        row = table[state]
        rows.append([f"**{state.value}**", *(row[one].value if one in row else "" for one in inputs)])
    parts = [
        f"{_first_sentence(module)}\n",
        _diagram(module),
        _table(["", *(f"*{one.value}*" for one in inputs)], rows),
        _table(["State", "Meaning"], [[state.value, _meaning(module, state, table)] for state in module.State]),
    ]
    told = [[one.value, comment] for one, comment in _comments(module.Input).items() if comment]
    if told:
        parts.append(_table(["Input", "Meaning"], told))
    return "\n".join(parts)


def _first_sentence(module: types.ModuleType) -> str:
    text = inspect.getdoc(module) or ""
    return f"`{module.__name__}`: " + " ".join(text.split("\n\n")[0].split())


def _diagram(module: types.ModuleType) -> str:
    """Mermaid, with the inputs that lead from one state to one other on one arrow."""
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {next(iter(module.State)).value}"]
    for state in module.State:
        arrows: dict[str, list[str]] = {}
        for one, following in module.TRANSITIONS[state].items():
            arrows.setdefault(following.value, []).append(one.value)
        lines += [f"    {state.value} --> {following}: {', '.join(names)}" for following, names in arrows.items()]
        if not arrows:
            lines.append(f"    {state.value} --> [*]")
    return "\n".join([*lines, "```\n"])


def _meaning(module: types.ModuleType, state: enum.Enum, table: dict[Any, Any]) -> str:
    comment = _comments(module.State)[state]
    end = "" if table[state] else "terminal"
    return "; ".join(part for part in (comment, end) if part)


def _comments(members: type[enum.Enum]) -> dict[enum.Enum, str]:
    """The comment behind each member of an enumeration."""
    source = inspect.getsource(members)
    found = dict(re.findall(r"^ +(\w+) = .*?  # (.*)$", source, re.MULTILINE))
    return {member: found.get(member.name, "") for member in members}


if __name__ == "__main__":
    main()
