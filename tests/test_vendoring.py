"""A copy of `core/` under a foreign name, with msgspec and nothing else, is a whole proxy engine."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from isthmus.app.commands.core_copy import LEAVABLE, SPDX_LINE, write_copy
from isthmus.core.trace import replay

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
def ground(tmp_path: Path) -> Path:
    """A folder with msgspec, and with a package that has room for copies of the core."""
    (tmp_path / "msgspec").symlink_to(Path(msgspec.__file__).parent)
    (tmp_path / "acme_gateway").mkdir()
    (tmp_path / "acme_gateway" / "__init__.py").touch()
    return tmp_path


@pytest.fixture
def vendored(ground: Path) -> Path:
    """A folder with msgspec and a package that has taken the core in under a name of its own."""
    write_copy(ground / "acme_gateway" / "proxy", ())
    return ground


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
    assert list(replay(trace.splitlines())) == []


OF_ENGINE = tuple(name for name in LEAVABLE if name != "testing")
COUNTS = range(len(OF_ENGINE) + 1) if os.environ.get("THOROUGH") else (0, 1, len(OF_ENGINE))
COMBINATIONS = [chosen for count in COUNTS for chosen in itertools.combinations(OF_ENGINE, count)]
COMBINATIONS += [("testing",), LEAVABLE]


def imports_of(folder: Path) -> str:
    """A program that imports every module of the copy in `folder`."""
    paths = sorted(path.relative_to(folder).with_suffix("") for path in folder.rglob("*.py"))
    assert len(paths) > 100
    names = [".".join(("acme_gateway.proxy", *path.parts)).removesuffix(".__init__") for path in paths]
    return "\n".join(f"import {name}" for name in names)


@pytest.mark.parametrize("left_out", COMBINATIONS, ids=lambda left_out: "+".join(left_out) or "nothing")
def test_a_copy_may_leave_folders_out(ground: Path, left_out: tuple[str, ...]) -> None:
    """Each module that is left can be imported, and the copy serves one conversation, which a whole engine replays."""
    folder = ground / "acme_gateway" / "proxy"
    write_copy(folder, left_out)
    assert {path.name for path in folder.iterdir()} >= {"engine.py", "LICENSE"}
    assert {name for name in LEAVABLE if (folder / name).exists()} == set(LEAVABLE) - set(left_out)
    lines = run_alone(ground, CONVERSATION + imports_of(folder)).splitlines()
    assert len(lines) > 10
    assert list(replay(lines)) == []


def test_each_module_of_a_copy_names_its_licence(vendored: Path) -> None:
    folder = vendored / "acme_gateway" / "proxy"
    assert all(path.read_bytes().count(SPDX_LINE) == 1 for path in folder.rglob("*.py"))
    assert (folder / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


REFUSALS = """
import sys

sys.path.insert(0, sys.argv[1])
from acme_gateway.proxy import DownloadOpening, Engine, Kind, LocalProtocolError, PipeOpening, Plan, PostOpening
from acme_gateway.proxy import Era, Offer, Send, ServerPlan, TaskRules
from acme_gateway.proxy.base.plan import AutoFiles

for asked in (
    {"auto_files": AutoFiles()},
    {"tasks": TaskRules(offer=Offer.ALWAYS)},
    {"tasks": TaskRules(offer=Offer.OWN)},
    {"tasks": TaskRules(offer=Offer.NEVER, tools=(("slow_*", Offer.AUTO),))},
    {"era": Era.STATELESS},
):
    server = ServerPlan(id="s", kind=Kind.PIPE, **asked)
    try:
        Engine(Plan(servers=(server,), link_keys=(bytes(32),)), entropy=bytes, unix_at_zero=0.0, has_storage=True)
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


def test_a_copy_says_what_it_lacks(ground: Path) -> None:
    """A plan that asks for what is left out is refused, as are a download and, on both kinds of channels, a client
    without sessions."""
    write_copy(ground / "acme_gateway" / "proxy", LEAVABLE)
    *planned, opened, one, other = run_alone(ground, REFUSALS).decode().splitlines()
    assert planned == [
        "server s has files, and this copy was made without files",
        *["server s offers tasks, and this copy was made without tasks"] * 3,
        "server s has the stateless era, and this copy was made without input_required",
    ]
    assert opened == "this copy of the engine lacks the folder that handles DownloadOpening"
    supported = '"supported":["2024-11-05","2025-03-26","2025-06-18","2025-11-25"]'
    assert all('"code":-32022' in answer and supported in answer for answer in (one, other))


TASKS = """
import sys

sys.path.insert(0, sys.argv[1])
from acme_gateway.proxy import Connected, Dial, Kind, PipeOpening, Plan, Recorder, ServerPlan

plan = Plan(servers=(ServerPlan(id="s", kind=Kind.PIPE),))
engine = Recorder(plan, entropy=bytes, unix_at_zero=0.0, write=sys.stdout.buffer.write)
client = engine.new_channel()
engine.receive_open(client, PipeOpening("s"), 0.0)
begin = b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{}}}'
(dial,) = [order for order in engine.receive_message(client, begin, 0.0) if isinstance(order, Dial)]
engine.receive_open(dial.channel, Connected(), 0.0)
able = b'{"tools":{},"tasks":{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}}'
begun = b'{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":%b}}' % able
engine.receive_message(dial.channel, begun, 0.0)
"""


def test_a_trace_tells_of_the_plan_without_what_the_copy_lacks(ground: Path) -> None:
    """A whole engine replays it, although it would have offered the tasks of this server."""
    write_copy(ground / "acme_gateway" / "proxy", ("tasks",))
    lines = run_alone(ground, TASKS).splitlines()
    assert list(replay(lines)) == []
    (ready,) = [number for number, line in enumerate(lines) if b'"input":"receive_message"' in line][1:]
    offering = [line.replace(b'"offer":"never"', b'"offer":"own"') for line in lines]
    assert [difference.line for difference in replay(offering)] == [ready + 1]


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
