"""Any text is given as a configuration: it becomes a plan that an engine runs, or lines that say what is wrong.

The first byte says the format: YAML, TOML or JSON; the rest is the text. Accepted outcomes: `ConfigError`, with no
empty line and without the value of a secret; or settings from which the plan, the limits and the surface can be made.
"""

from __future__ import annotations

import random

from isthmus.app.config.load import ConfigError, loads
from isthmus.app.config.plan import to_forward_target, to_header_rules, to_limits, to_plan
from isthmus.app.runtime.listeners import surface_of
from isthmus.core.engine import Engine
from isthmus.core.wire.http.routes import Head
from isthmus.core.wire.http.server import judge

KEY = b"the key of this target, long enough"
SECRET = "a-secret-of-the-environment"
ENVIRON = {"A": "1", "TOKEN": SECRET, "EMPTY": ""}


def test_one_input(data: bytes) -> None:
    form = ("yaml", "toml", "json")[(data[0] if data else 0) % 3]
    text = data[1:].decode("utf-8", "replace")
    try:
        settings = loads(text, form, "/base", ENVIRON)
    except ConfigError as error:
        lines = error.message.split("\n")
        assert all(line.strip() for line in lines)
        assert SECRET not in error.message
        return
    assert SECRET not in repr(settings)
    plan = to_plan(settings, KEY, "/workspaces", "http://localhost", state_key=KEY)
    Engine(plan, entropy=random.Random(1).randbytes, unix_at_zero=0.0, has_storage=True, limits=to_limits(settings))
    others = {server.id: server for server in settings.servers if not server.inspect}
    forward_targets = {name: to_forward_target(settings, server, KEY) for name, server in others.items()}
    for server in others.values():
        to_header_rules(server)
    surface = surface_of(settings, forward_targets)
    for server in settings.servers:
        judge(Head("GET", f"/mcp/{server.id}/x", ((b"host", b"localhost"),)), surface)
