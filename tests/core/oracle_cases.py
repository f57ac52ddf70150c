"""For each rule of the oracle a conversation that keeps it, and the same with one thing in it that breaks it."""

from __future__ import annotations

from importlib import import_module

from oracle_casing import CASES, Case, found

__all__ = ["CASES", "Case", "found"]

for kind in ("messages", "methods", "http", "stateless", "tasks"):
    import_module(f"oracle_cases_{kind}")  # which puts its cases into `CASES`
