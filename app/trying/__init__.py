"""Trying a server by hand: what it has, for people, and calls whose arguments are given as text.

`schemas`, `values`, `call_words`, `descriptions` and `results` are pure. `session` speaks with the server.
"""
