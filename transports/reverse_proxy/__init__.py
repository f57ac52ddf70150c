"""Transparent servers: HTTP requests and responses that are forwarded without the engine.

The app uses `Forwarder` and `TransparentServer`; `http_server` uses `Forwarder`, `UpstreamRequest` and what they share.
"""
