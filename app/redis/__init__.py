"""The connection of queue, store and rate limits to Redis.

`connection` opens one for each server, shares it among all callers and waits out faults.
`server_checks` refuses a server whose settings would lose what it acknowledged.
"""
