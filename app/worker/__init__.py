"""A worker process: the loop, its handlers, and the compile sandbox.

The loop takes jobs and runs each by its handler in a thread, with deadline, progress and cancellation. Only the
generate handler names `decoding`. Compilations run in child processes with limits on memory and time.
"""
