"""A copy of `core/` under a foreign name, with msgspec and nothing else, is a whole proxy engine."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

ROOT = Path(__file__).parent.parent

CONVERSATION = """
import random
import sys

sys.path.insert(0, sys.argv[1])
from acme_gateway.proxy import trace
from acme_gateway.proxy.base import effects, events, plan
from acme_gateway.proxy.engine import Engine

lines = []
engine = trace.Recorder(
    plan.Plan(servers=(plan.ServerPlan(id="echo", kind=plan.Kind.PIPE),)),
    entropy=random.Random(7).randbytes,
    unix_at_zero=1.0e9,
    write=lines.append,
)
assert isinstance(engine, Engine)

def only(orders, kind):
    found = [order for order in orders if isinstance(order, kind)]
    assert len(found) == 1, orders
    return found[0]

post = engine.new_channel()
assert engine.receive_open(post, events.PostOpening(server="echo"), 0.0) == []
handshake = b'{"jsonrpc":"2.0","id":"a","method":"initialize","params":{"protocolVersion":"2025-11-25"}}'
dial = only(engine.receive_message(post, handshake, 0.0), effects.Dial)
assert isinstance(dial.target, effects.Spawn)
asked = only(engine.receive_open(dial.channel, events.Connected(), 0.1), effects.Send)
assert b'"method":"initialize"' in asked.message
welcome = b'{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25"}}'
orders = engine.receive_message(dial.channel, welcome, 0.2)
opened, confirmed = [order for order in orders if isinstance(order, effects.Send)]
assert opened.channel == post and opened.is_last and opened.session
assert opened.message == b'{"jsonrpc":"2.0","id":"a","result":{"protocolVersion":"2025-11-25"}}'
assert confirmed.message == b'{"jsonrpc":"2.0","method":"notifications/initialized"}'
engine.receive_close(post, events.Cause(events.End.DONE), 0.2)

post = engine.new_channel()
engine.receive_open(post, events.PostOpening(server="echo", session=opened.session), 0.3)
call = b'{"jsonrpc":"2.0","id":1.0,"method":"tools/call","params":{"name":"echo", "arguments":{"n":1e400}}}'
asked = only(engine.receive_message(post, call, 0.3), effects.Send)
assert asked.channel == dial.channel
assert asked.message.endswith(b'"params":{"name":"echo", "arguments":{"n":1e400}}}')
answer = b'{"jsonrpc":"2.0","id":2,"result":{"content":[ ]}}'
answered = only(engine.receive_message(dial.channel, answer, 0.4), effects.Send)
assert (answered.channel, answered.is_last) == (post, True)
assert answered.message == b'{"jsonrpc":"2.0","id":1.0,"result":{"content":[ ]}}'
engine.receive_sent(post, len(answered.message), 0.4)
engine.receive_stop(0.5)

assert list(trace.replay(lines)) == []
loaded = {name.split(".")[0] for name in sys.modules} - sys.stdlib_module_names
assert loaded <= {"__main__", "acme_gateway", "msgspec", "random"}, loaded
sys.stdout.buffer.write(b"".join(lines))
"""


@pytest.fixture
def vendored(tmp_path: Path) -> Path:
    """A folder with msgspec and a package that has taken the core in under a name of its own."""
    (tmp_path / "msgspec").symlink_to(Path(msgspec.__file__).parent)
    package = tmp_path / "acme_gateway"
    package.mkdir()
    (package / "__init__.py").touch()
    shutil.copytree(ROOT / "core", package / "proxy", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def converse(folder: Path, hash_seed: int) -> bytes:
    """Run the conversation in an interpreter without site packages. Returns its trace."""
    done = subprocess.run(
        [sys.executable, "-S", "-s", "-P", "-B", "-c", CONVERSATION, str(folder)],
        env={"PYTHONHASHSEED": str(hash_seed)},
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def test_a_copy_under_another_name_holds_a_conversation(vendored: Path) -> None:
    """Handshake, call, answer, replay; byte for byte the same however the interpreter orders its sets."""
    trace = converse(vendored, 1)
    assert trace.count(b"\n") > 10
    assert trace == converse(vendored, 2)


LEAVABLE = ("files", "input_required", "oracle", "tasks")
"""The folders of `core/` that a copy may leave out. docs/vendoring.md says what goes with each."""


@pytest.mark.parametrize("left_out", [*((name,) for name in LEAVABLE), LEAVABLE], ids="+".join)
def test_a_copy_may_leave_folders_out(vendored: Path, left_out: tuple[str, ...]) -> None:
    """The copy holds the same conversation: nothing in it needs what is left out.

    Without questions, no key is drawn for them, so all names that are drawn later are others.
    """
    whole = converse(vendored, 1)
    for name in left_out:
        shutil.rmtree(vendored / "acme_gateway" / "proxy" / name)
    part = converse(vendored, 1)
    assert part.count(b"\n") == whole.count(b"\n")
    assert "input_required" in left_out or part == whole


REFUSALS = """
import sys

sys.path.insert(0, sys.argv[1])
from acme_gateway.proxy import DownloadOpening, Engine, Kind, LocalProtocolError, PipeOpening, Plan, PostOpening
from acme_gateway.proxy import Send, ServerPlan
from acme_gateway.proxy.base.plan import AutoFiles

try:
    Engine(
        Plan(servers=(ServerPlan(id="s", kind=Kind.PIPE, auto_files=AutoFiles()),), link_key=bytes(32)),
        entropy=bytes,
        unix_at_zero=0.0,
    )
except LocalProtocolError as error:
    print(error)
engine = Engine(Plan(servers=(ServerPlan(id="s", kind=Kind.PIPE),)), entropy=bytes, unix_at_zero=0.0)
try:
    engine.receive_open(engine.new_channel(), DownloadOpening("s", "x", "y", "f", {}), 0.0)
except LocalProtocolError as error:
    print(error)
meta = b'{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}'
request = b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":%b}}' % meta
for opening in (PipeOpening(server="s"), PostOpening(server="s", revision="2026-07-28")):
    channel = engine.new_channel()
    engine.receive_open(channel, opening, 0.0)
    (sent,) = [effect for effect in engine.receive_message(channel, request, 0.0) if isinstance(effect, Send)]
    print(sent.message.decode())
assert (engine.tasks(), engine.files(), engine.file_ends()) == ((), (), ())
"""


def test_a_copy_says_what_it_lacks(vendored: Path) -> None:
    """A plan with files, a download, and a client without sessions are refused, by both kinds of channels."""
    for name in LEAVABLE:
        shutil.rmtree(vendored / "acme_gateway" / "proxy" / name)
    planned, opened, *answers = run_alone(vendored, REFUSALS).decode().splitlines()
    assert planned == "server s has files, and this copy has no folder files/"
    assert opened == "this copy of the engine lacks the folder that handles DownloadOpening"
    assert len(answers) == 2
    supported = '"supported":["2024-11-05","2025-03-26","2025-06-18","2025-11-25"]'
    assert all('"code":-32022' in answer and supported in answer for answer in answers)


@pytest.fixture
def linked(tmp_path: Path) -> Path:
    """A folder like `vendored`, of links instead of copies: they need not be compiled again."""
    (tmp_path / "msgspec").symlink_to(Path(msgspec.__file__).parent)
    package = tmp_path / "acme_gateway"
    package.mkdir()
    for name in ("proxy", "older", "mcp_engine"):
        (package / name).symlink_to(ROOT / "core")
    return tmp_path


def run_alone(folder: Path, text: str) -> bytes:
    """Run a program in an interpreter without site packages. Returns what it printed."""
    done = subprocess.run(
        [sys.executable, "-S", "-s", "-P", "-W", "error", "-c", text, str(folder)],
        env={"PYTHONHASHSEED": "1", "PYTHONPATH": str(folder)},
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def test_the_page_s_gateway_works(linked: Path) -> None:
    """The gateway of `docs/vendoring.md` has another name, a server that is a function, and msgspec alone."""
    page = (ROOT / "docs" / "vendoring.md").read_text(encoding="utf-8")
    (gateway,) = re.findall(r"^```python gateway\.py\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert run_alone(linked, gateway) == b""


def test_every_module_of_a_copy_can_be_imported(linked: Path) -> None:
    """Every module loads, not only those that the engine needs."""
    paths = sorted(path.relative_to(ROOT / "core").with_suffix("") for path in (ROOT / "core").rglob("*.py"))
    names = [".".join(("acme_gateway.proxy", *path.parts)).removesuffix(".__init__") for path in paths]
    assert len(names) > 100
    assert run_alone(linked, "\n".join(f"import {name}" for name in names)) == b""


def test_two_copies_do_not_meet(linked: Path) -> None:
    """Two copies in one process do what each would do alone, and replay it."""
    both = run_alone(linked, CONVERSATION + CONVERSATION.replace("acme_gateway.proxy", "acme_gateway.older"))
    half = len(both) // 2
    assert both[:half] == both[half:] != b""


def test_a_copy_is_not_this_package(vendored: Path) -> None:
    """The copy fails where this package is named absolutely: the check above can fail."""
    engine = vendored / "acme_gateway" / "proxy" / "engine.py"
    engine.write_text(
        engine.read_text(encoding="utf-8").replace("from .state.context", "from isthmus.core.state.context"),
        encoding="utf-8",
    )
    with pytest.raises(AssertionError, match="isthmus"):
        converse(vendored, 1)
