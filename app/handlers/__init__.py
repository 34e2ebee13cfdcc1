"""From a job to its result: plain functions, run in a worker's thread."""
