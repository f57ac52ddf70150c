"""The governance of what servers list: what was approved of it (`pins`, `lock`), what is invisible in it (`clean`), and
how its tools are shown (`names`, `shorten`).

The rules are pure. `upstream/definition_filter.py` and `upstream/presentation.py` apply them to messages.
"""
