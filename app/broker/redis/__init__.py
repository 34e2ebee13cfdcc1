"""The broker on a Redis server. Lua scripts keep the jobs, and a stream keeps the leases of running ones."""
