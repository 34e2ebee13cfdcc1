"""The `abs` command and what runs behind it.

`main` defines the commands. `processes` and `worker_process` start servers and workers, `demo` and `doctor` run in one
process against the service, and `render` prints results for a terminal. Modules are imported when their command runs,
so that help is fast.
"""
