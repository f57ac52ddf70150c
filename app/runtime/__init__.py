"""The running proxy: hub, connections to servers, listeners, event loop and signals.

`Hub` drives the engine, `Upstreams` connects to servers, `OwnSessions` are sessions of our own.
"""
