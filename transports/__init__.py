"""Thin anyio drivers round the codecs of `core.wire`."""
