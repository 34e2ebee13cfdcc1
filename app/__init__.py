"""ABS Server: text generation that provably satisfies a constraint.

`main` builds the FastAPI application, and `cli` has the command `abs`. `api` and `openai` read HTTP requests, `service`
turns them into jobs, and `worker` runs the jobs with `compiler` and `decoding`. Jobs, events and results pass through
`broker`, compiled constraints through `store`. `wiring` chooses the implementations from `settings`.
"""

__version__ = "0.1.0"
