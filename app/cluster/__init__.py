"""This process among the replicas of its stores: its lease, and the way to the others."""
