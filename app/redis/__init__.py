"""The connection to Redis, shared by the queue, the store and the rate limits.

`connection` opens one for each server and waits out its faults. `protocol` batches the commands of many callers on one
line. `server_checks` refuses a server whose settings would lose what it acknowledged.
"""
