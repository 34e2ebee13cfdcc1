"""Runs compilations in child processes with limits on memory and time.

`client` is the side of the worker, and `server` forks a process for each job.
`compile_task` is the job itself: it maps request bytes to answer bytes. A compilation that crashes or exceeds a limit
ends its own process only.
"""
