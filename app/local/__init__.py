"""`abs up`: Redis, server and workers of one machine under a supervisor.

`up` starts the processes in order and waits until they are ready, and `supervisor` keeps them alive. `server` finds a
Redis and writes its configuration into `folder`, and `launcher` runs one program and ends it with its supervisor.
`health` is the health check of a container.
"""
