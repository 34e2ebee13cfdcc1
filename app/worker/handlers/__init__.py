"""The handlers of a worker, one for each kind of job. Only `generate` names decoding."""
