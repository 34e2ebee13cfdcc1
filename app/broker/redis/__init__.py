"""The queue of jobs on a Redis server.

`broker` implements the protocol of `app.broker.base`. `records` keeps the jobs with Lua scripts, and `consumer` leases
them to workers through a stream. `notifications` reports events and results to waiting processes. `signatures` signs
the bodies, events and results, so that a process takes only those of its own service.
"""
