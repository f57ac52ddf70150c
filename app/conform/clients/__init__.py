"""Scripted clients that play conversations with a server under test.

Each transport has a module. `targets.Target` names a server and chooses its client.
"""
