"""The connection of queue, store and rate limits to Redis.

`connection` opens one for each server, sends the scripts of many callers together and waits out faults.
`server_checks` refuses a server whose settings would lose what it acknowledged.
"""
