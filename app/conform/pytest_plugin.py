"""The pytest fixtures `mcp_conform` and `mcp_conform_client`, which test a server or a client in its author's suite.

pytest loads this plugin in every run if isthmus is installed, so it imports nothing of ours until a test needs it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Protocol

import pytest


class Conform(Protocol):
    """Tests a server, by its command (on stdio) or its URL. Fails if a rule is broken that must be kept.

    Args:
        command: the program and its arguments.
        url: the URL of the server, as for `isthmus conform`.
        transport: the transport at the URL: "auto", "streamable_http", "sse" or "websocket".
        safe: call only tools whose annotations say `readOnlyHint: true`.
        revision: speak this one only.
        only: check these rules only.
        ignore: do not check these rules.
        strict: fail also if a rule is broken that only should be kept.
        examples: number of conversations that are made up.
        seconds: begin no new conversation after so many seconds.
        timeout: timeout of a response in seconds.
        headers: HTTP headers sent to the URL.
        env: environment of the command, besides PATH, HOME and the like.
        inherit_env: pass this whole environment to the command.
        cwd: working directory of the command.

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

    The arguments are those of `Conform`. `transport` is the transport of our server at `{url}`, by default Streamable
    HTTP.
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

    def conform(*command: str, **options: Any) -> frozenset[str]:
        __tracebackhide__ = True
        from .suite import server_of, test

        return test(pytestconfig, lambda: server_of(command, options), options)

    return conform


@pytest.fixture
def mcp_conform_client(pytestconfig: pytest.Config) -> ConformClient:
    """Call it with the command that starts a client, `{url}` or `{server}` in it; see `isthmus conform --client`."""

    def conform(*command: str, **options: Any) -> frozenset[str]:
        __tracebackhide__ = True
        from .suite import client_of, test

        return test(pytestconfig, lambda: client_of(command, options), options)

    return conform
