"""The connection to Redis, shared by the queue, the store and the rate limits.

`connection` opens one for each server, sends the scripts of many callers together and waits out faults.
`server_checks` refuses a server whose settings would lose what it acknowledged.
"""
