from __future__ import annotations

from store_servers import postgres_server, record_server, redis_server, s3_server

__all__ = ["postgres_server", "record_server", "redis_server", "s3_server"]
