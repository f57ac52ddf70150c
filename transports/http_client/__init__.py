"""HTTP to upstream servers: a client with pooled connections, over streams or asyncio protocols.

The app and `sse` use `HttpClient`; `sse` also uses `Exchange`.
"""
