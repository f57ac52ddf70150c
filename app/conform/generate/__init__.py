"""Hypothesis strategies that make up conversations and behaviours.

`conversations`, for tests of servers, is built from `moves`; `behaviours`, for tests of clients, from `deeds`.
"""
