"""pytest's fixtures `mcp_conform` and `mcp_conform_client`: a test of a server or a client, in its author's own suite.

It is loaded in every run of pytest where isthmus is installed, and loads nothing itself until a test asks for it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Protocol

import pytest


class Conform(Protocol):
    """Tests a server: a command that starts it on stdio, or a URL. It fails if a rule is broken that must be kept.

    Args:
        command: the program and its arguments.
        url: where it listens, as for `isthmus conform`.
        transport: what is spoken at the URL: "auto", "streamable_http", "sse" or "websocket".
        safe: call only tools whose annotations say `readOnlyHint: true`.
        revision: speak this one only.
        only: look for these rules only.
        ignore: do not look for these.
        strict: fail for what only should be kept, too.
        examples: conversations that are made up.
        seconds: begin no new one after so many.
        timeout: seconds for an answer.
        headers: sent to the URL.
        env: environment of the command, besides PATH, HOME and the like.
        inherit_env: hand this whole environment on to the command.
        cwd: where it runs.

    Returns:
        The rules that were kept, of those that could have been broken.
    """

    def __call__(
        self,
        *command: str,
        url: str | None = None,
        transport: str = "auto",
        safe: bool = False,
        revision: str | None = None,
        only: Collection[str] = (),
        ignore: Collection[str] = (),
        strict: bool = False,
        examples: int = 100,
        seconds: float | None = 60.0,
        timeout: float = 20.0,
        headers: Mapping[str, str] | None = None,
        env: Mapping[str, str] | None = None,
        inherit_env: bool = False,
        cwd: str | None = None,
    ) -> frozenset[str]: ...


class ConformClient(Protocol):
    """Tests a client by playing its server: `{url}` or `{server}` in the command stands for our end.

    The arguments are those of `Conform`. `transport` is what our end speaks at the URL that takes the place of `{url}`,
    by default Streamable HTTP.
    """

    def __call__(
        self,
        *command: str,
        transport: str = "auto",
        revision: str | None = None,
        only: Collection[str] = (),
        ignore: Collection[str] = (),
        strict: bool = False,
        examples: int = 100,
        seconds: float | None = 60.0,
        timeout: float = 10.0,
        env: Mapping[str, str] | None = None,
        inherit_env: bool = False,
        cwd: str | None = None,
    ) -> frozenset[str]: ...


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("mcp-conform", "tests of MCP servers and clients (isthmus)")
    group.addoption(
        "--mcp-conform-examples", type=int, metavar="N", help="conversations of each test, whatever it says"
    )
    group.addoption("--mcp-conform-seconds", type=float, metavar="N", help="seconds of each test, whatever it says")
    group.addoption(
        "--mcp-conform-seed", type=int, default=0, metavar="N", help="what all choices follow from; default 0"
    )
    group.addoption(
        "--mcp-conform-record",
        metavar="FILE",
        help="add the conversations that break a rule, for isthmus conform --replay",
    )


@pytest.fixture
def mcp_conform(pytestconfig: pytest.Config) -> Conform:
    """Call it with the command that starts a server, or with its `url`; see `isthmus conform`."""

    def conform(*command: str, **wishes: Any) -> frozenset[str]:
        __tracebackhide__ = True
        from .suite import server_of, test

        return test(pytestconfig, lambda: server_of(command, wishes), wishes)

    return conform


@pytest.fixture
def mcp_conform_client(pytestconfig: pytest.Config) -> ConformClient:
    """Call it with the command that starts a client, `{url}` or `{server}` in it; see `isthmus conform --client`."""

    def conform(*command: str, **wishes: Any) -> frozenset[str]:
        __tracebackhide__ = True
        from .suite import client_of, test

        return test(pytestconfig, lambda: client_of(command, wishes), wishes)

    return conform
