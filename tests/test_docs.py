"""Tests that the pages agree with the code: their tables, their code, their commands and the messages they quote."""

from __future__ import annotations

import ast
import functools
import importlib
import importlib.util
import json
import os
import re
import select
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, get_args

import msgspec
import pytest
from each_row import each_row
from isthmus.app.admin import metrics
from isthmus.app.base.sizes import parse_size
from isthmus.app.cli import arguments
from isthmus.app.commands.losses import LOSSES, Fate
from isthmus.app.config.load import loads, schema
from isthmus.app.config.settings import Settings
from isthmus.app.telemetry.counters import Counters
from isthmus.app.telemetry.histogram import STEPS_S, Histogram
from isthmus.app.telemetry.measurements import Measurements
from isthmus.app.telemetry.store_times import StoreTimes
from isthmus.core.base.limits import Limits
from isthmus.core.files.calls import artifact, offers
from isthmus.core.state.records import FileStatus, TaskStatus
from limit_tests import LIMIT_TESTS

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", *ROOT.glob("docs/*.md"), *ROOT.glob("docs/changes.d/*.md")])
PACKAGES = ("core", "transports", "storage", "app")
PORT = "8932"  # the port on the pages; the tests take a free one
TIMEOUT_S = 60

HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}


# --- Reading pages --------------------------------------------------------------------------------------------------


class Block(NamedTuple):
    """A fenced block: its language, the name after it, its text."""

    page: Path
    language: str
    name: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.stem}-{self.name or self.language}"


FENCE = re.compile(r"^( *)```(\w+)(?: ([^\n]+))?\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)


def blocks(language: str) -> list[Block]:
    return [
        Block(page, match[2], match[3] or "", re.sub(rf"^{match[1]}", "", match[4], flags=re.MULTILINE))
        for page in PAGES
        for match in FENCE.finditer(page.read_text(encoding="utf-8"))
        if match[2] == language
    ]


def block(page: str, name: str) -> Block:
    language = {".py": "python", ".yaml": "yaml"}[Path(name).suffix]
    (found,) = (one for one in blocks(language) if (one.page.name, one.name) == (page, name))
    return found


class Command(NamedTuple):
    page: Path
    text: str
    output: str


def commands() -> list[Command]:
    """Returns every line after a `$ ` on a page, with the output that the page shows."""
    found = []
    for one in blocks("console"):
        for part in re.split(r"^\$ ", one.text, flags=re.MULTILINE)[1:]:
            line, _, output = re.sub(r"\\\n +", "", part).partition("\n")
            found.append(Command(one.page, line, output))
    return found


def shown(command: str) -> str:
    (output,) = (one.output for one in commands() if one.text == command and one.output)
    return output


def assert_looks_like(printed: str, expected: str) -> None:
    """Asserts that the texts are equal, where `…` on the page stands for anything."""
    pattern = ".*?".join(re.escape(part) for part in expected.strip().split("…"))
    assert re.fullmatch(pattern, printed.strip(), re.DOTALL), f"printed:\n{printed}\non the page:\n{expected}"


def load_generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


generate = load_generator()


# --- Generated tables -----------------------------------------------------------------------------------------------


def test_generated_parts_are_as_generated() -> None:
    """`make docs` would change nothing."""
    made = generate.pages()
    pages = {"architecture", "client-files", "command-line", "configuration", "eras", "limits", "machines", "proof"}
    assert {page.name for page in made} == {*(f"{page}.md" for page in pages), "architecture.svg"}
    for page, text in made.items():
        assert page.read_text(encoding="utf-8") == text, f"{page.name} is out of date: run `make docs`"


def tables_of(text: str) -> dict[str, dict[str, list[str]]]:
    """Returns, under each `###` heading, the rows of its table by their first cell."""
    found = {}
    for part in text.split("\n### ")[1:]:
        heading, _, rest = part.partition("\n")
        rows = [line.strip("| ").split(" | ") for line in rest.split("\n## ")[0].splitlines() if line.startswith("| `")]
        found[heading] = {row[0].strip("`"): row for row in rows}
    return found


def structs_in(kind: Any) -> list[type[msgspec.Struct]]:
    """Returns the structs that an annotation names, however deep."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return [kind]
    return [shape for inner in get_args(kind) for shape in structs_in(inner)]


def shapes_of(shape: type[msgspec.Struct], path: str = "") -> Iterator[tuple[str, type[msgspec.Struct]]]:
    """Yields every struct of a configuration, with the heading that it should have."""
    tag = shape.__struct_config__.tag
    yield (f"`{path}`" + (f" (type: {tag})" if tag else "") if path else "The file"), shape
    for field in msgspec.structs.fields(shape):
        for inner in structs_in(field.type):
            text = str(field.type)
            many = "[]" if "tuple[" in text else ".NAME" if "dict[" in text else ""
            yield from shapes_of(inner, f"{path}.{field.encode_name}{many}".lstrip("."))


def test_every_key_of_the_configuration_is_on_the_page() -> None:
    """Each key of a struct of the settings is on the page with its default, and no other key is."""
    tables = tables_of((ROOT / "docs" / "configuration.md").read_text(encoding="utf-8"))
    reached = set()
    for heading, shape in shapes_of(Settings):
        reached.add(heading)
        rows = tables[heading]
        fields = {field.encode_name: field for field in msgspec.structs.fields(shape)}
        assert list(rows) == list(fields)
        for name, field in fields.items():
            cell = rows[name][2].strip("`*")
            if field.required:
                assert cell == "required", name
                continue
            value = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
            if isinstance(value, msgspec.Struct):
                assert value == type(value)(), f"{name}: the default is not made of defaults"
            elif isinstance(value, int) and rows[name][1].startswith("size"):
                assert parse_size(cell) == value, name
            else:
                plain = msgspec.json.decode(msgspec.json.encode(value))
                assert (cell if isinstance(plain, str) else json.loads(cell)) == plain, name
    assert reached == set(tables)


def test_every_limit_is_on_the_page() -> None:
    """Each limit is there with its default, with what happens at it, and with a test that reaches it."""
    text = (ROOT / "docs" / "limits.md").read_text(encoding="utf-8")
    rows = {
        key: row.split(" | ")
        for row in re.findall(r"^\| (.+) \|$", text, re.MULTILINE)
        if (key := row.partition(" | ")[0].strip("`")) in Limits.__struct_fields__
    }
    defaults = msgspec.structs.asdict(Limits())
    assert list(rows) == list(defaults)
    for name, value in defaults.items():
        _, shown, _, bounded, outcome, _, _ = rows[name]
        assert (parse_size(shown) if name.endswith("_bytes") else float(shown)) == value, name
        assert len(bounded) > 10 and len(outcome) > 2, f"{name}: say after its reason what happens, from `At it: ` on"
    assert {*defaults, *generate.fixed_limits()} == set(LIMIT_TESTS)


@each_row("limit", LIMIT_TESTS)
def test_the_test_of_each_limit_mentions_it(limit: str) -> None:
    """The test names the limit, or uses something of its module that does."""
    path, name = LIMIT_TESTS[limit].split("::")
    parts = top_level_parts(ROOT / "tests" / path)
    assert name in parts, f"there is no test {name} in {path}"
    unread, read = [name], set()
    while unread:
        read.add(part := unread.pop())
        unread += set(re.findall(r"\w+", parts[part])) & parts.keys() - read
    mentioned = limit.rpartition("::")[2]
    assert any(re.search(rf"\b{mentioned}\b", parts[part]) for part in read), f"{name} does not reach {mentioned}"


@functools.cache
def top_level_parts(path: Path) -> dict[str, str]:
    """Returns the source of each function, class and constant of a module, by name."""
    source, parts = path.read_text(encoding="utf-8"), {}
    lines = source.splitlines()  # `ast.get_source_segment` would split them anew for each part
    for node in ast.parse(source).body:
        first = min(part.lineno for part in (*getattr(node, "decorator_list", []), node))
        text = "\n".join(lines[first - 1 : node.end_lineno])
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            parts[node.name] = text
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            parts.update({target.id: text for target in targets if isinstance(target, ast.Name)})
    return parts


def test_every_metric_is_on_the_page() -> None:
    text = (ROOT / "docs" / "operating.md").read_text(encoding="utf-8").split("## Metrics")[1].split("## ")[0]
    measurements = Measurements(Counters((), ()), StoreTimes(), Histogram(STEPS_S))
    rest: dict[str, Any] = {"measurements": measurements, "disk": (1, 2), "audit_failures": 0}
    exposition = metrics.exposition("1", [], [], 0.0, replicas=1, spans_dropped={"x": 0}, **rest).decode()
    exposition = exposition.replace("# TYPE process_", "# ")  # those have one row
    types = re.findall(r"^# TYPE (\w+) (?!gauge$)|^# TYPE (\w+?)(?:_gsum|_gcount)? gauge$", exposition, re.MULTILINE)
    assert set(re.findall(r"^\| `(isthmus_\w+)` \|", text, re.MULTILINE)) == {one or other for one, other in types}


def test_every_field_of_a_task_is_on_the_page() -> None:
    text = (ROOT / "docs" / "tasks.md").read_text(encoding="utf-8")
    (row,) = re.findall(r"^\| `GET /tasks/ID` \| (.*) \|$", text, re.MULTILINE)
    words = set(re.findall(r"`(\w+)`", row)) - {"proxied", "local"}
    assert words == {*TaskStatus.__struct_fields__, "age_s", "expires_in_s"}


def test_every_field_of_a_file_is_on_the_page() -> None:
    text = (ROOT / "docs" / "operating.md").read_text(encoding="utf-8")
    (row,) = re.findall(r"^\| `GET /files/ID` \| (.*) \|$", text, re.MULTILINE)
    times = {"age_s", "idle_s", "expires_in_s"}
    assert set(re.findall(r"`(\w+)`", row)) == {*FileStatus.__struct_fields__, *times} - {"blob"}


def test_every_loss_is_on_the_page() -> None:
    """The words for the fate of a lost member are explained too."""
    text = (ROOT / "docs" / "eras.md").read_text(encoding="utf-8")
    rows = [line.strip("| ").split(" | ") for line in text.split("<!-- begin losses -->")[1].splitlines()[4:]]
    found = {row[0]: (row[1].split()[1], row[4], row[-1]) for row in rows if len(row) == 6}
    assert found == {loss.feature: (loss.speaker, loss.fate, loss.carried) for loss in LOSSES}
    for fate in get_args(Fate):
        assert f"*{fate}*" in text


def test_every_machine_is_on_the_page() -> None:
    """Each module of the core that holds a table is on the page, and the page's cells agree with the table."""
    modules = {
        "isthmus." + ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in ROOT.glob("core/**/*.py")
        if re.search(r"^TRANSITIONS\b", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert modules == set(generate.MACHINES.values())
    text = (ROOT / "docs" / "machines.md").read_text(encoding="utf-8")
    for name, module_name in generate.MACHINES.items():
        part = text.split(f"<!-- begin machine {name} -->")[1].split("<!-- end")[0]
        heads = re.findall(r"\*([\w ]+)\*", part.split("|  |")[1].splitlines()[0])
        rows = re.findall(r"^\| \*\*([\w ]+)\*\* \| (.*) \|$", part, re.MULTILINE)
        read = {
            state: {one: cell.strip() for one, cell in zip(heads, cells.split(" | "), strict=True) if cell.strip()}
            for state, cells in rows
        }
        table = importlib.import_module(module_name).TRANSITIONS
        assert read == {
            state.value: {one.value: following.value for one, following in row.items()} for state, row in table.items()
        }


# --- Links, commands, configurations --------------------------------------------------------------------------------


def test_links_lead_somewhere() -> None:
    """The site of `make docs` checks the same, with another reader."""
    for page in PAGES:
        for target, anchor in re.findall(r"\]\(([^)#\s]*)#?([^)\s]*)[^)]*\)", FENCE.sub("", page.read_text("utf-8"))):
            if not target.startswith("https://"):
                path = page.parent / target if target else page
                assert path.exists(), f"{page.name}: {target}"
                assert not anchor or anchor in anchors(path), f"{page.name}: {target}#{anchor}"


@functools.cache
def anchors(page: Path) -> set[str]:
    """Returns the names of the headings of a page, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_each_page_is_in_the_site() -> None:
    """The navigation has each page, and no other."""
    listed = re.findall(r"^ +- .+: ([\w-]+\.md)$", (ROOT / "docs/site/mkdocs.yml").read_text("utf-8"), re.MULTILINE)
    assert sorted(listed) == sorted(page.name for page in ROOT.glob("docs/*.md"))


def test_tests_that_pages_name_exist() -> None:
    """A link whose text is the name of a test leads to the file with that test."""
    named = 0
    for page in PAGES:
        for name, target in re.findall(r"\[`(test_\w+)`\]\(([^)]+)\)", page.read_text(encoding="utf-8")):
            text = (page.parent / target).read_text(encoding="utf-8")
            assert re.search(rf"^(?:async )?def {name}\(", text, re.MULTILINE), f"{page.name}: {name} in {target}"
            named += page.name == "security.md"
    assert named > 50


@each_row("command", commands())
def test_commands_are_ones_that_exist(command: Command) -> None:
    """The command line takes each `isthmus …` on a page, and the Makefile has each target."""
    words = shlex.split(command.text)
    if words[0] == "make":
        makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
        assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in words[1:] if "=" not in target)
    elif words[0] == "isthmus" and words[1:] != ["--version"]:
        options = words[1 : words.index("--")] if "--" in words else words[1:]
        arguments.parser().parse_args(options)


def test_make_targets_in_prose_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for page in PAGES:
        for target in re.findall(r"`make (\w+)`", page.read_text(encoding="utf-8")):
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"{page.name}: make {target}"


@pytest.mark.parametrize("example", [one for one in blocks("yaml") if "kubernetes" not in one.name], ids=str)
def test_configurations_on_pages_are_valid(example: Block) -> None:
    variables = dict.fromkeys(("ALICE_SHA256", "LINK_KEY", "STATE_KEY", "PASSWORD", "CLUSTER_SECRET"), "0" * 64)
    assert loads(example.text, "yaml", "/somewhere", variables).servers


def test_the_promises_of_the_configuration_page() -> None:
    """Text is no number, a variable may be one, and the message names the replacement of a home folder."""
    server = "servers: [{id: a, upstream: {command: [a]}}]\n"
    with pytest.raises(Exception, match=r'core.port: got "8932", expected a whole number'):
        loads(server + 'core: {port: "8932"}', "yaml", "/", {})
    assert loads(server + "core: {port: '${PORT}'}", "yaml", "/", {"PORT": "80"}).core.port == 80
    with pytest.raises(Exception, match=r"write \$\{HOME\} for ~"):
        loads(server + "storage: {root: ~/data}", "yaml", "/", {})
    assert loads(server, "yaml", "/there", {}).storage.root == "/there/data"


def test_shapes_on_the_files_page_are_the_ones_sent() -> None:
    """The members of each JSON example, in order, are those that clients get."""
    shapes = {one.name: json.loads(one.text) for one in blocks("json") if "." not in one.name}
    offer = offers.upload_offer(
        server_id="demo",
        tool="demo_get_upload_url",
        upload_url="http://h/upload/demo",
        sid="s",
        ttl_seconds=int(Limits().upload_link_ttl_s),
        max_file_bytes=Limits().upload_size_max_bytes,
        sha256_required=False,
        max_files=Limits().upload_files_max,
    )
    shown_offer, sent_offer = shapes.pop("offer"), json.loads(offer)["structuredContent"]
    assert_same_shape(shown_offer, sent_offer)
    assert {k: v for k, v in shown_offer.items() if isinstance(v, bool | int)} == {
        k: v for k, v in sent_offer.items() if isinstance(v, bool | int)
    }
    file = offers.UploadedFile(upload_id="u", filename="f", mime_type="text/plain", size_bytes=1, sha256="0")
    assert_same_shape(shapes.pop("upload"), json.loads(offers.upload_reply("demo", "s", [file])))
    one = artifact.Artifact(
        artifact_uri="artifact://",
        artifact_id="a",
        filename="f",
        mime_type="text/plain",
        size_bytes=1,
        sha256="0",
        expose_as_resource=True,
        expires_at_unix=0.0,
        download_url="http://h/",
        version=2,
        replaces="artifact://",
    )
    sent = json.loads(artifact.attach(b'{"content":[]}', [one], resource_links=True))
    assert_same_shape(shapes.pop("artifact"), sent["_meta"]["artifact"], ordered=False)
    assert not shapes


def assert_same_shape(left: Any, right: Any, *, ordered: bool = True) -> None:
    assert type(left) is type(right)
    if isinstance(left, dict):
        assert (list(left) == list(right)) if ordered else (set(left) == set(right))
        for key in left:
            assert_same_shape(left[key], right[key])
    elif isinstance(left, list):
        assert_same_shape(left[0], right[0])


# --- Messages and codes ---------------------------------------------------------------------------------------------


def sources() -> Iterator[ast.Module]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).glob("**/*.py")):
            yield ast.parse(path.read_text(encoding="utf-8"))


def texts_in_the_code() -> list[str]:
    """Returns every string in the product, with a NUL where something is formatted in."""
    found = []
    for tree in sources():
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
            elif isinstance(node, ast.JoinedStr):
                parts = [part.value if isinstance(part, ast.Constant) else "\0" for part in node.values]
                found.append("".join(str(part) for part in parts))
    return found


def test_messages_under_troubleshooting_are_in_the_code() -> None:
    text = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    replicas = (ROOT / "docs" / "scaling.md").read_text(encoding="utf-8").partition("\n## Troubleshooting")[2]
    messages = re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE)
    named = re.findall(r"^\| [^`|]*`([^`]+)`", replicas, re.MULTILINE)
    assert len(messages) > 15
    assert len(named) > 15
    messages += named
    texts = texts_in_the_code()
    for message in messages:
        for part in message.split("…"):
            assert any(part.strip(" ,") in one for one in texts), f"nothing says {part!r} (of {message!r})"


def test_codes_of_uploads_and_downloads_are_on_the_page() -> None:
    """Each code that the file endpoints can answer with is on the page, and no other."""
    used = {"not_found", "method_not_allowed", "forbidden"}  # of routing
    used |= {"bad_request"}  # of a header that cannot be read
    used |= {"timed_out", "storage_failed"}  # of a silent client, of a broken disk
    for tree in sources():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in (
                "UploadRefused",
                "Refusal",
                "_refuse",
                "_undo",
                "_malformed",
            ):
                words = [argument.value for argument in node.args if isinstance(argument, ast.Constant)]
                used.update(
                    word for word in words if isinstance(word, str) and re.fullmatch(r"[a-z0-9]+_?[a-z0-9_]+", word)
                )
    text = (ROOT / "docs" / "files-reference.md").read_text(encoding="utf-8").split("## Errors")[1]
    rows = re.findall(r"^\| \d{3} \| ([^|]+) \|", text, re.MULTILINE)
    assert {code for row in rows for code in re.findall(r"`(\w+)`", row)} == used


# --- Running commands of the pages ------------------------------------------------------------------------------------


@pytest.fixture
def environment() -> dict[str, str]:
    """Our environment, with this Python's programs first, as in an activated environment."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return {**os.environ, "PATH": path, "PYTHONDONTWRITEBYTECODE": "1"}


def run(words: list[str], folder: Path, environment: dict[str, str]) -> str:
    done = subprocess.run(  # noqa: PLW1510 (the assertion says more)
        words, cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT_S
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_isthmus_schema(tmp_path: Path, environment: dict[str, str]) -> None:
    assert json.loads(run(["isthmus", "schema"], tmp_path, environment)) == json.loads(msgspec.json.encode(schema()))


def read_until(descriptor: int, wanted: bytes) -> str:
    """Reads up to and with `wanted`."""
    read, give_up_at = b"", time.monotonic() + TIMEOUT_S
    while wanted not in read:
        assert time.monotonic() < give_up_at, read
        if select.select([descriptor], [], [], 1.0)[0]:
            data = os.read(descriptor, 65536)
            assert data, f"it ended after {read!r}"
            read += data
    return read.decode()


SPECIAL = {"client.py", "driver.py", "gateway.py", "my_driver.py", "replay_trace.py", "test_my_driver.py", "tools.py"}


@pytest.mark.parametrize("example", [one for one in blocks("python") if one.name not in SPECIAL], ids=str)
def test_code_on_pages_runs(example: Block, tmp_path: Path, environment: dict[str, str]) -> None:
    assert run([sys.executable, "-c", example.text], tmp_path, environment) == ""


@contextmanager
def conversation(words: list[str], folder: Path, environment: dict[str, str]) -> Iterator[tuple[int, int]]:
    """Runs a proxy on stdin and stdout, which ends with 0 once its stdin is closed."""
    process = subprocess.Popen(words, cwd=folder, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield process.stdin.fileno(), process.stdout.fileno()
        process.stdin.close()
        assert process.wait(TIMEOUT_S) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def talk(stdin: int, stdout: int) -> list[Any]:
    """Does the handshake, lists the tools and calls one. Returns the results."""
    results = []
    requests = (
        ("initialize", HELLO),
        ("tools/list", {}),
        ("tools/call", {"name": "count_words", "arguments": {"path": __file__}}),
    )
    for number, (method, params) in enumerate(requests):
        request = {"jsonrpc": "2.0", "id": f"id {number}", "method": method, "params": params}
        os.write(stdin, json.dumps(request).encode() + b"\n")
        answer = json.loads(read_until(stdout, b"\n"))
        assert answer["id"] == f"id {number}"
        results.append(answer["result"])
        if method == "initialize":
            os.write(stdin, b'{"jsonrpc": "2.0", "method": "notifications/initialized"}\n')
    return results


DEMO_SERVER = [sys.executable, "-m", "isthmus.app.commands.demo_server"]


def test_the_blocking_driver_is_a_proxy(tmp_path: Path, environment: dict[str, str]) -> None:
    """The driver has at most 60 lines. A client at its stdin reaches the server, and both end when the client
    leaves."""
    text = block("engine.md", "driver.py").text
    assert len(text.splitlines()) <= 60
    (tmp_path / "driver.py").write_text(text)
    with conversation([sys.executable, "driver.py", *DEMO_SERVER], tmp_path, environment) as (stdin, stdout):
        hello, tools, called = talk(stdin, stdout)
    assert hello["serverInfo"]["name"] == "demo-server"
    assert [tool["name"] for tool in tools["tools"]] == ["count_words", "write_report"]
    assert "words" in called["content"][0]["text"]


TASKING_SERVER = """
import json
import sys

ABLE = {"tools": {}, "tasks": {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}}
TOOL = {"name": "count_words", "inputSchema": {"type": "object"}, "execution": {"taskSupport": "optional"}}
for line in sys.stdin:
    said = json.loads(line)
    if said.get("method") == "initialize":
        info = {"name": "tasking", "version": "1"}
        result = {"protocolVersion": "2025-11-25", "capabilities": ABLE, "serverInfo": info}
    elif said.get("method") == "tools/list":
        result = {"tools": [TOOL]}
    elif said.get("method") == "tools/call" and "task" in said["params"]:
        times = {"createdAt": "2026-01-01T00:00:00Z", "lastUpdatedAt": "2026-01-01T00:00:00Z", "ttl": None}
        result = {"task": {"taskId": "t", "status": "working", **times}}
    elif said.get("method") == "tools/call":
        result = {"content": [{"type": "text", "text": "5 words"}]}
    else:
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": said["id"], "result": result}), flush=True)
"""


def test_the_blocking_driver_serves_a_server_with_tasks(tmp_path: Path, environment: dict[str, str]) -> None:
    """The driver has no storage: clients are offered no tasks, and a call that asks for one gets its result."""
    (tmp_path / "driver.py").write_text(block("engine.md", "driver.py").text)
    (tmp_path / "server.py").write_text(TASKING_SERVER)
    words = [sys.executable, "driver.py", sys.executable, "server.py"]
    with conversation(words, tmp_path, environment) as (stdin, stdout):
        hello, tools, called = talk(stdin, stdout)
        asked = {"name": "count_words", "arguments": {}, "task": {"ttl": 1000}}
        request = {"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": asked}
        os.write(stdin, json.dumps(request).encode() + b"\n")
        again = json.loads(read_until(stdout, b"\n"))["result"]
    assert hello["capabilities"] == {"tools": {}}
    assert "execution" not in tools["tools"][0] or "taskSupport" not in tools["tools"][0]["execution"]
    assert called == again == {"content": [{"type": "text", "text": "5 words"}]}


def test_the_blocking_driver_says_why_a_server_does_not_start(tmp_path: Path, environment: dict[str, str]) -> None:
    (tmp_path / "driver.py").write_text(block("engine.md", "driver.py").text)
    words = [sys.executable, "driver.py", "/nonexistent/server"]
    with conversation(words, tmp_path, environment) as (stdin, stdout):
        request = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO}
        os.write(stdin, json.dumps(request).encode() + b"\n")
        assert "No such file" in json.loads(read_until(stdout, b"\n"))["error"]["message"]


def test_a_trace_of_the_command_line_replays(tmp_path: Path, environment: dict[str, str]) -> None:
    """The commands of the page on operating work, and only the owner can read the trace."""
    words = ["isthmus", "wrap", "--listen", "stdio", "--trace", "trace.jsonl", "--", *DEMO_SERVER]
    with conversation(words, tmp_path, environment) as (stdin, stdout):
        talk(stdin, stdout)
    assert (tmp_path / "trace.jsonl").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "trace.jsonl").stat().st_size > 1000
    example = block("operating.md", "replay_trace.py").text
    assert run([sys.executable, "-c", example], tmp_path, environment) == ""
