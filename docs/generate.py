"""Writes the parts of the pages that come from the code: settings, limits, losses, rules, state machines, rooms,
interceptors, ways of calls.

`make docs` runs it.

A page holds generated parts between `<!-- begin NAME -->` and `<!-- end NAME -->`; everything else is written by hand.
`tests/test_docs.py` compares what is checked in with what this makes.
"""

from __future__ import annotations

import ast
import enum
import html
import importlib
import inspect
import itertools
import json
import re
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

import msgspec
from isthmus.app.base.sizes import GIB, KIB, MIB
from isthmus.app.commands.losses import LOSSES
from isthmus.app.config.access_settings import (
    Access,
    ClientCertificates,
    Introspection,
    Issuer,
    IssuerClient,
    Rule,
    Token,
    TrustedProxy,
)
from isthmus.app.config.audit_settings import Audit
from isthmus.app.config.dialects.clients import CLIENTS
from isthmus.app.config.dialects.keys import KEYS, Meaning
from isthmus.app.config.file_settings import (
    ArtifactProducerAdapter,
    Files,
    OutputLocator,
    SharedFolder,
    UploadConsumerAdapter,
)
from isthmus.app.config.governance_settings import RateLimit, ToolOverride
from isthmus.app.config.login_settings import ClientCredentials, Enterprise, Exchange, IdentityProvider, OAuth
from isthmus.app.config.plan import to_limits
from isthmus.app.config.profile_settings import Profile, ProfileServer
from isthmus.app.config.settings import (
    Filter,
    Forwarding,
    Management,
    Server,
    ServerTasks,
    Settings,
    ToolFilter,
    Upstream,
)
from isthmus.app.config.telemetry_settings import Traces
from isthmus.app.config.tls_settings import Tls
from isthmus.core.base.limits import Limits
from isthmus.core.oracle import METHODS, RULES, Severity
from isthmus.core.routing.interceptors import ORDER

DOCS: Final = Path(__file__).parent
ROOT: Final = DOCS.parent

sys.path[:0] = [str(ROOT / "tests"), str(DOCS)]
from commands import command_line  # noqa: E402
from limit_tests import LIMIT_TESTS  # noqa: E402
from rooms import APP, CORE, LOOSE, PARTS, ROOMS, STORAGE, TRANSPORTS  # noqa: E402
from ways import stories  # noqa: E402

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
    "forward": "isthmus.core.wire.http.reverse_proxy_exchange",
    "sse_client": "isthmus.core.wire.http.legacy_sse_client",
    "credential": "isthmus.core.logins.credentials",
    "lease": "isthmus.core.replicas.leases",
}

SECTIONS: Final = (
    "core",
    "auth",
    "storage",
    "cluster",
    "sessions",
    "uploads",
    "artifacts",
    "tasks",
    "telemetry",
    "pins",
    "clean",
    "ui",
)
LISTED: Final[dict[str, type[msgspec.Struct]]] = {
    "core.tls": Tls,
    "core.management": Management,
    "telemetry.traces": Traces,
    "telemetry.audit": Audit,
    "auth.tokens[]": Token,
    "auth.issuers[]": Issuer,
    "auth.issuers[].introspect": Introspection,
    "auth.issuers[].client": IssuerClient,
    "profiles[]": Profile,
    "profiles[].servers[]": ProfileServer,
    "auth.client_certificates": ClientCertificates,
    "auth.proxy": TrustedProxy,
    "servers[]": Server,
    "servers[].upstream": Upstream,
    "servers[].upstream.auth (type: oauth)": OAuth,
    "servers[].upstream.auth (type: client_credentials)": ClientCredentials,
    "servers[].upstream.auth (type: exchange)": Exchange,
    "servers[].upstream.auth (type: enterprise)": Enterprise,
    "servers[].upstream.auth.provider": IdentityProvider,
    "servers[].access": Access,
    "servers[].access.tools.NAME": Rule,
    "servers[].access.prompts.NAME": Rule,
    "servers[].access.resources.NAME": Rule,
    "servers[].tools": ToolFilter,
    "servers[].tools.overrides.NAME": ToolOverride,
    "servers[].prompts": Filter,
    "servers[].resources": Filter,
    "servers[].adapters[] (type: upload_consumer)": UploadConsumerAdapter,
    "servers[].adapters[] (type: artifact_producer)": ArtifactProducerAdapter,
    "servers[].adapters[].output_locator": OutputLocator,
    "servers[].files": Files,
    "servers[].shared[]": SharedFolder,
    "servers[].tasks": ServerTasks,
    "servers[].rate_limits[]": RateLimit,
    "servers[].forwarding": Forwarding,
}


def main() -> None:
    for page, text in pages().items():
        page.write_text(text, encoding="utf-8")


def pages() -> dict[Path, str]:
    """Every page with a generated part, as it should be."""
    parts = {
        "settings": _settings(),
        "commands": command_line(_table),
        "limits": _limits(),
        "losses": _losses(),
        "rules": _rules(),
        "clients": _clients(),
        "client keys": _client_keys(),
        "ways": _ways(),
        "interceptors": _interceptors(),
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
    made[DOCS / "architecture.svg"] = _picture()
    return made


_UNITS_OF_TIMEOUT: Final = {
    "s": "seconds",
    "ms": "milliseconds",
    "ns": "seconds below 1,000,000, otherwise nanoseconds",
    "start": "milliseconds, for the start",
    "": "seconds up to 3600, otherwise milliseconds",
}


def _clients() -> str:
    heads = ["Client", "Key of the servers", "Unit of `timeout`", "More variables", "Notes"]
    rows = [
        [
            client.title,
            ", ".join(f"`{place}`" if place else "the document" for place in client.places),
            _UNITS_OF_TIMEOUT[client.timeout],
            client.variables,
            client.note,
        ]
        for client in CLIENTS
    ]
    return _table(heads, rows)


def _client_keys() -> str:
    refused = (Meaning.REFUSED, Meaning.SIGN_IN)
    rows = [
        [
            ", ".join(f"`{name}`" for name in row.names),
            f"*error*: write {row.about}" if row.meaning in refused else row.about,
        ]
        for row in KEYS
    ]
    return _table(["Key", "Meaning"], rows)


def _ways() -> str:
    """The number of files and functions that each kind of call enters, and those of a plain call by name."""
    told = stories()
    heads = ["Call", "Files up", "Functions up", "Files down", "Functions down"]
    counts = [
        [story.title, *(str(count) for way in story[1:] for count in (len(way.files), way.function_count))]
        for story in told
    ]
    plain = [
        [direction, f"`{file}`", ", ".join(f"`{name}`" for name in names)]
        for direction, way in (("up", told[0].up), ("down", told[0].down))
        for file, names in way.files.items()
    ]
    named = _table(["Way", "File of `core/`", "Functions, in the order of their first call"], plain)
    return f"{_table(heads, counts)}\nA plain call in detail:\n\n{named}"


def _interceptors() -> str:
    rows = [[str(place), name, reason] for place, (name, reason) in enumerate(ORDER.items(), 1)]
    return _table(["Place", "Interceptor", "Why it stands there"], rows)


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


FIXED_THEMES: Final = {
    "Fixed: messages": ("core/jsonrpc", "core/bridge"),
    "Fixed: identity": ("core/access",),
    "Fixed: logins": ("core/logins", "app/logins"),
    "Fixed: HTTP and other transports": ("core/wire", "transports"),
    "Fixed: sessions, questions, tasks": (
        "core/caching",
        "core/downstream",
        "core/endpoints",
        "core/state",
        "core/input_required",
        "core/tasks",
    ),
    "Fixed: files": ("core/files", "app/disk"),
    "Fixed: profiles": ("core/profiles",),
    "Fixed: search": ("core/search",),
    "Fixed: replicas": ("core/replicas",),
    "Fixed: servers": ("core/upstream",),
    "Fixed: the live page and the terminal": ("app/watch", "app/terminal"),
    "Fixed: telemetry": ("app/telemetry", "core/base", "core/tracing"),
}
"""The themes of constants that limit what peers can do, with their folders."""

_LIMIT_HEADS: Final = ("Limit", "Default", "Unit", "What it bounds", "What happens when it is reached", "Key", "Test")
_UNITS: Final = {"bytes": "bytes", "s": "seconds", "ms": "milliseconds", "chars": "characters"}


def _limits() -> str:
    """A table for each theme: those of `Limits`, then those of the constants that say what happens at them."""
    keys, themes = _keys_of_limits(), _themes(inspect.getsource(Limits))
    defaults = msgspec.structs.asdict(Limits())
    parts = []
    for theme, docs in themes.items():
        rows = [
            _limit_row(f"`{name}`", name, defaults[name], doc, ", ".join(f"`{key}`" for key in keys.get(name, ())))
            for name, doc in docs.items()
        ]
        parts.append(f"### {theme}\n\n{_table(list(_LIMIT_HEADS), rows)}")
    fixed = fixed_limits()
    for theme, folders in FIXED_THEMES.items():
        rows = []
        for key, doc in fixed.items():
            path, name = key.split("::")
            if path.startswith(folders):
                module = importlib.import_module("isthmus." + path.removesuffix(".py").replace("/", "."))
                rows.append(_limit_row(f"[`{name}`](../{path})", key, getattr(module, name), doc))
        heads = [head for head in _LIMIT_HEADS if head != "Key"]
        parts.append(f"### {theme}\n\n{_table(heads, rows)}")
    return "\n".join(parts)


def _limit_row(shown: str, key: str, value: float, doc: str, *set_by: str) -> list[str]:
    """The row of a limit, from the text after it: what it bounds, then what happens `At it: `."""
    unit = _UNITS.get(key.rpartition("_")[2].lower(), "count")
    reason, _, outcome = doc.partition(" At it: ")
    path, test = LIMIT_TESTS[key].split("::")
    default = size_text(int(value)) if unit == "bytes" else f"{value:.12g}"
    outcome = outcome[:1].upper() + outcome[1:]
    return [shown, default, unit, reason, outcome, *set_by, f"[`{test}`](../tests/{path})"]


def _themes(source: str) -> dict[str, dict[str, str]]:
    """The texts after the fields of a class, by the comments that head them."""
    docs = dict(_docs_in(source))
    themes: dict[str, dict[str, str]] = {}
    for heading, name in re.findall(r"^    (?:# (.+)|(\w+): .+)$", source, re.MULTILINE):
        if heading:
            themes[heading] = {}
        elif name in docs:
            themes[list(themes)[-1]][name] = docs[name]
    return themes


def fixed_limits() -> dict[str, str]:
    """The texts after the constants that say what happens at them, by file and name."""
    return {
        f"{path.relative_to(ROOT)}::{name}": doc
        for folders in FIXED_THEMES.values()
        for folder in folders
        for path in sorted((ROOT / folder).glob("**/*.py"))
        for name, doc in _docs_in(path.read_text(encoding="utf-8"))
        if " At it: " in doc
    }


def _docs_in(source: str) -> Iterator[tuple[str, str]]:
    """The text that follows each annotated name of a class or a module."""
    tree: ast.AST = ast.parse(source)
    assert isinstance(tree, ast.Module)
    body = tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else tree.body
    for field, after in itertools.pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            assert isinstance(field.target, ast.Name)
            yield field.target.id, " ".join(str(after.value.value).split())


def _keys_of_limits() -> dict[str, list[str]]:
    """The keys of a configuration that set each limit, found by setting each key and looking what changes."""
    keys: dict[str, list[str]] = {}
    plain = to_limits(Settings())
    for section in SECTIONS:
        defaults = getattr(Settings(), section)
        for field in msgspec.structs.fields(defaults):
            value = getattr(defaults, field.name)
            if value is None and _unwrap(field.type)[0] is not int:
                continue
            if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
                continue
            changed = msgspec.structs.replace(defaults, **{field.name: (value or 1) + 1})
            limits = to_limits(Settings(**{section: changed}))
            for name in Limits.__struct_fields__:
                if getattr(limits, name) != getattr(plain, name):
                    keys.setdefault(name, []).append(f"{section}.{field.encode_name}")
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
    inputs = list(_inputs(module))
    rows = []
    for state in _states(module):
        row = table[state]
        rows.append([f"**{state.value}**", *(row[one].value if one in row else "" for one in inputs)])
    parts = [
        f"{_first_sentence(module)}\n",
        _diagram(module),
        _table(["", *(f"*{one.value}*" for one in inputs)], rows),
        _table(["State", "Meaning"], [[state.value, _meaning(module, state, table)] for state in _states(module)]),
    ]
    told = [[one.value, comment] for one, comment in _comments(_inputs(module)).items() if comment]
    if told:
        parts.append(_table(["Input", "Meaning"], told))
    return "\n".join(parts)


def _states(module: types.ModuleType) -> type[enum.Enum]:
    """The enumeration of the states in a module's table."""
    return type(next(iter(module.TRANSITIONS)))


def _inputs(module: types.ModuleType) -> type[enum.Enum]:
    """The enumeration of the inputs in a module's table."""
    return type(next(taken for row in module.TRANSITIONS.values() for taken in row))


def _first_sentence(module: types.ModuleType) -> str:
    text = inspect.getdoc(module) or ""
    return f"`{module.__name__}`: " + " ".join(text.split("\n\n")[0].split())


def _diagram(module: types.ModuleType) -> str:
    """Mermaid, with the inputs that lead from one state to one other on one arrow."""
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {next(iter(_states(module))).value}"]
    for state in _states(module):
        arrows: dict[str, list[str]] = {}
        for one, following in module.TRANSITIONS[state].items():
            arrows.setdefault(following.value, []).append(one.value)
        lines += [f"    {state.value} --> {following}: {', '.join(names)}" for following, names in arrows.items()]
        if not arrows:
            lines.append(f"    {state.value} --> [*]")
    return "\n".join([*lines, "```\n"])


def _meaning(module: types.ModuleType, state: enum.Enum, table: dict[Any, Any]) -> str:
    comment = _comments(_states(module))[state]
    end = "" if table[state] else "terminal"
    return "; ".join(part for part in (comment, end) if part)


def _comments(members: type[enum.Enum]) -> dict[enum.Enum, str]:
    """The comment behind each member of an enumeration."""
    source = inspect.getsource(members)
    found = dict(re.findall(r"^ +(\w+) = .*?  # (.*)$", source, re.MULTILINE))
    return {member: found.get(member.name, "") for member in members}


# --- The picture of the rooms ---------------------------------------------------------------------------------------

ROW: Final = 22
"""Pixels, as are all sizes of the picture."""
NAME_WIDTH: Final = 190
CAPTION_WIDTH: Final = 560
CAPTION_MAX: Final = 82
DOT: Final = 18
MARGIN: Final = 16
PARTS_DRAWN: Final = (("app", APP), ("transports", TRANSPORTS), ("storage", STORAGE), ("core", CORE))
COLOURS: Final = {"app": "#dbe9f6", "transports": "#e3f1df", "storage": "#f6ecd2", "core": "#f3dfe4"}


def _picture() -> str:
    """The rooms as an SVG: a row each, the lowest room of a part at the bottom, and a dot for each room it imports."""
    parts: list[str] = []
    y = MARGIN
    widest = max(len(rooms) for _, rooms in PARTS_DRAWN)
    width = 2 * MARGIN + NAME_WIDTH + CAPTION_WIDTH + widest * DOT
    for part, rooms in PARTS_DRAWN:
        note = f", which may import {', '.join(PARTS[part])}" if PARTS[part] else ", which imports no other part"
        parts.append(_text(MARGIN, y + 15, f"{part}/{note}", "bold"))
        y += ROW
        rows = list(rooms)
        for at in reversed(range(len(rows))):
            parts += _row(rows[at], rows, at, y, COLOURS[part])
            y += ROW
        y += MARGIN
    parts.append(_text(MARGIN, y + 6, "A large dot in column n: the room imports room n of the same part."))
    y += ROW
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{y}" viewBox="0 0 {width} {y}"'
    style = 'font-family="sans-serif" font-size="12"'
    return "\n".join([f"{head} {style}>", '<rect width="100%" height="100%" fill="white"/>', *parts, "</svg>", ""])


def _row(room: str, rows: list[str], at: int, y: int, colour: str) -> Iterator[str]:
    left = MARGIN + NAME_WIDTH + CAPTION_WIDTH
    box = f'x="{MARGIN}" y="{y}" width="{NAME_WIDTH + CAPTION_WIDTH - 8}" height="{ROW - 3}" rx="3"'
    yield f'<rect {box} fill="{colour}"/>'
    yield _text(MARGIN + 6, y + 14, _room_name(room), "bold")
    yield _text(MARGIN + NAME_WIDTH, y + 14, _caption(room))
    for column in range(at):
        x, middle = left + column * DOT + DOT // 2, y + ROW // 2 - 1
        is_imported = rows[column] in ROOMS[room]
        title = f"<title>{room} imports {rows[column]}</title>"
        if is_imported:
            yield f'<circle cx="{x}" cy="{middle}" r="5" fill="#555">{title}</circle>'
        else:
            yield f'<circle cx="{x}" cy="{middle}" r="1.5" fill="#ccc"/>'
    yield _text(left + at * DOT + 3, y + 14, str(at + 1))


def _room_name(room: str) -> str:
    if room in LOOSE:
        return ", ".join(sorted(LOOSE[room] - {"gateway"}))
    return room.partition("/")[2].removesuffix(".py") or room


def _caption(room: str) -> str:
    """The first sentence of the docstring of a room."""
    if room == "core":
        return "The engine, built of the rooms; recording and replay; the status of servers"
    path = ROOT / room if room.endswith(".py") else ROOT / room / "__init__.py"
    source = path if room not in LOOSE else ROOT / room / ("memory.py" if room == "transports" else "main.py")
    text = ast.get_docstring(ast.parse(source.read_text(encoding="utf-8"))) or ""
    sentence = " ".join(text.split("\n\n")[0].split()).partition(". ")[0].rstrip(".").replace("`", "")
    if len(sentence) <= CAPTION_MAX:
        return sentence
    return re.split(r"[,:;(]\s?(?=[^,:;(]*$)", sentence[:CAPTION_MAX])[0].rstrip()  # to the last pause that fits


def _text(x: int, y: int, text: str, weight: str = "normal") -> str:
    return f'<text x="{x}" y="{y}" font-weight="{weight}">{html.escape(text)}</text>'


if __name__ == "__main__":
    main()
