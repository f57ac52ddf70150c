"""Workers: several processes that serve one port, started, watched and replaced by a supervisor."""
