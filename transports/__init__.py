"""Transports for MCP: sockets, pipes and processes around the codecs of `core.wire`, on anyio or on asyncio protocols.

Each sub-folder holds one transport. Its classes carry out the orders of an engine's owner and report to its `Port`.
"""
