"""All cases of the oracle: for each rule a conversation that keeps it, and breaks it with one change."""

from __future__ import annotations

from importlib import import_module

from oracle_case import CASES, Case, found

__all__ = ["CASES", "Case", "found"]

for kind in ("messages", "methods", "http", "stateless", "tasks"):
    import_module(f"oracle_cases_{kind}")  # which puts its cases into `CASES`
