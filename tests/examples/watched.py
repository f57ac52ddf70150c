"""Runs an example with a `WatchedEngine`, and with limits of its own.

    watched.py BREACHES LIMITS threaded.py COMMAND ARG…
    watched.py BREACHES LIMITS asgi:app

BREACHES is a file, and LIMITS a JSON object of the fields that differ from their defaults. The example is not changed
for that: it takes the names from its copy of the core when it is imported.
"""

import functools
import json
import runpy
import signal
import sys
import threading

import mcp_engine
from mcp_engine.testing import WatchedEngine

_, breaches, limits, program, *arguments = sys.argv
engines = []


def report(text):
    with open(breaches, "a") as file:
        file.write(text + "\n")


class Engine(WatchedEngine):
    def __init__(self, *given, **named):
        super().__init__(*given, **named, report=report, lock=threading.RLock())
        engines.append(self)


mcp_engine.Limits = functools.partial(mcp_engine.Limits, **json.loads(limits))
mcp_engine.Engine = Engine
sys.argv = [program, *arguments]
try:
    if program.endswith(".py"):
        runpy.run_path(program, run_name="__main__")
    else:
        import uvicorn

        signal.signal(signal.SIGTERM, lambda *_: None)  # uvicorn passes the signal on once it has ended
        sys.path.insert(0, "")
        uvicorn.run(program, port=0, access_log=False, timeout_graceful_shutdown=1)
finally:
    for engine in engines:
        engine.finish()
