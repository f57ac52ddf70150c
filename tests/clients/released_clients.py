"""The released clients of the journey: their packages and versions, and the script that drives each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple


class Client(NamedTuple):
    """A client.

    Attributes:
        packages: what is installed, with versions. The first is the one that is told of.
        script: the file in `agents/`.
        arguments: of the script.
        transport: `http` or `stdio`.
        on: the name of the environment, where it is not the client's own.
        options: further ones of `isthmus wrap --files`.
        fails: steps that fail, each with a text that its error contains. `late make` is a step with a server that
            starts late.
    """

    packages: tuple[str, ...]
    script: str
    arguments: tuple[str, ...] = ()
    transport: str = "http"
    on: str = ""
    options: tuple[str, ...] = ()
    fails: Mapping[str, str] = {}

    @property
    def is_node(self) -> bool:
        return self.script.endswith(".mjs")


NO_FILE_URLS: Final = dict.fromkeys(("make", "late make"), "OpenAI Chat Completions does not support file URLs")
NO_LINKS: Final = dict.fromkeys(("make", "late make"), "Unknown content type from server")
NOT_CALLED: Final = dict.fromkeys(("make", "late make"), "Failed to call tool")
"""Failures at a resource_link block, which `--links text` avoids."""

CLIENTS: Final[dict[str, Client]] = {
    "python-1": Client(("mcp==1.30.0",), "python1_agent.py"),
    "python-2": Client(("mcp==2.3.0",), "python2_agent.py"),
    "typescript-1": Client(("@modelcontextprotocol/sdk@1.32.2",), "typescript1_agent.mjs"),
    "typescript-2": Client(("@modelcontextprotocol/client@2.4.0",), "typescript2_agent.mjs"),
    "fastmcp": Client(("fastmcp==4.2.3",), "fastmcp_agent.py"),
    "langchain": Client(
        ("langchain-mcp-adapters==0.3.2", "langchain==1.5.2", "langchain-openai==1.7.4"),
        "langchain_agent.py",
        fails=NO_FILE_URLS,
    ),
    "langchain-text": Client((), "langchain_agent.py", options=("--links", "text"), on="langchain"),
    "llamaindex": Client(("llama-index-tools-mcp==0.6.0",), "llamaindex_agent.py"),
    "pydantic-ai": Client(("pydantic-ai-slim[mcp]==2.68.0",), "pydantic_ai_agent.py"),
    "pydantic-ai-runs": Client((), "pydantic_ai_agent.py", ("runs",), on="pydantic-ai"),
    "openai-agents": Client(
        ("openai-agents==0.24.0",),
        "openai_agents_agent.py",
        fails={"late make": "An error occurred while running the tool"},
    ),
    "openai-agents-patient": Client((), "openai_agents_agent.py", ("patient",), on="openai-agents"),
    "autogen": Client(("autogen-ext[mcp]==0.7.5", "autogen-agentchat==0.7.5", "mcp==1.30.0"), "autogen_agent.py"),
    "autogen-workbench": Client((), "autogen_agent.py", ("workbench",), on="autogen", fails=NO_LINKS),
    "autogen-workbench-text": Client((), "autogen_agent.py", ("workbench",), options=("--links", "text"), on="autogen"),
    "semantic-kernel": Client(("semantic-kernel[mcp]==1.45.0",), "semantic_kernel_agent.py", fails=NOT_CALLED),
    "semantic-kernel-stdio": Client(
        (), "semantic_kernel_agent.py", transport="stdio", on="semantic-kernel", fails=NOT_CALLED
    ),
    "semantic-kernel-text": Client((), "semantic_kernel_agent.py", options=("--links", "text"), on="semantic-kernel"),
    "semantic-kernel-stdio-text": Client(
        (), "semantic_kernel_agent.py", transport="stdio", options=("--links", "text"), on="semantic-kernel"
    ),
    "ai-sdk": Client(("@ai-sdk/mcp@2.0.99", "ai@7.0.173"), "ai_sdk_agent.mjs"),
    "mastra": Client(
        ("@mastra/mcp@2.0.0", "@mastra/core@1.71.0", "ai@7.0.173", "node@22"),
        "mastra_agent.mjs",
    ),
    "adk": Client(("google-adk[mcp]==2.13.0",), "adk_agent.py"),
    "adk-patient": Client((), "adk_agent.py", ("patient",), on="adk"),
}
