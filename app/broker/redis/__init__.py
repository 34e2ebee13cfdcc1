"""The queue of jobs on a Redis server.

`broker` implements the protocol of `app.broker.base`. `scripts` calls the Lua scripts that keep the jobs, and
`consumer` leases them to workers through a stream. `notifications` reports events and results to waiting processes.
"""
