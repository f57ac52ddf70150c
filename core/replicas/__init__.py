"""The leases by which replicas of one store know each other.

`leases` has the machine of one replica, and `records` the form of a lease in the store.
"""
