"""The HTTP listener: Streamable HTTP, uploads, downloads, pages, WebSocket upgrades and forwarded requests.

The app uses `HttpServer` and the type `Pages`.
"""
