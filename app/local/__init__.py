"""`abs up`: Redis, server and workers of one machine under a supervisor.

`up` starts what is missing and follows it until it stops. `server` writes the configuration of a Redis of its own into
`folder`, and `launcher` runs one program and ends it with its supervisor. `health` asks a running process whether it is
well.
"""
