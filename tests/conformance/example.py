"""A small server on whichever Python framework its environment has: FastMCP, or the official SDK of either generation.

example.py stdio | http      http: Streamable HTTP on a free port of 127.0.0.1, which it prints
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import anyio
import uvicorn

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "real" / "peers"))
from serving import PrintingServer  # the module is in the folder of the tests that share it

FRAMEWORKS = (("fastmcp", "FastMCP"), ("mcp.server.mcpserver", "MCPServer"), ("mcp.server.fastmcp", "FastMCP"))
"""Module and class, the most specific first: an environment with FastMCP has the SDK too."""


def framework() -> tuple[Any, Any]:
    """Returns the class of servers, and that of contexts."""
    for module, name in FRAMEWORKS:
        try:
            found = importlib.import_module(module)
        except ModuleNotFoundError:
            continue
        return getattr(found, name), found.Context
    raise SystemExit("there is no framework here")


Server, Context = framework()
server = Server("example")


@server.tool()
def echo(text: str) -> str:
    """Say it again."""
    return text


@server.tool()
def add(a: int, b: int) -> dict[str, int]:
    """Add, with structured content."""
    return {"sum": a + b}


@server.tool()
def fail() -> str:
    """Raise."""
    raise ValueError("this is what it does")


@server.tool()
async def work(context: Context) -> str:
    """Report progress, a little at a time."""
    for step in range(3):
        await context.report_progress(step + 1, 3)
        await anyio.sleep(0.01)
    return "done"


@server.tool()
async def note(context: Context) -> str:
    """Write to the client's log."""
    await context.info("noted")
    return "noted"


@server.resource("example://one")
def one() -> str:
    return "the first"


@server.resource("example://of/{name}")
def of(name: str) -> str:
    return f"of {name}"


@server.prompt()
def greet(name: str) -> str:
    return f"Say hello to {name}."


def application() -> Any:
    make = getattr(server, "streamable_http_app", None) or server.http_app
    return make()


async def over_http() -> None:
    await PrintingServer(uvicorn.Config(application(), host="127.0.0.1", port=0, log_level="warning")).serve()


if __name__ == "__main__":
    if sys.argv[1] == "http":
        anyio.run(over_http)
    else:
        server.run()
