"""The lease of this process among the replicas of its stores, and the way to the others."""
