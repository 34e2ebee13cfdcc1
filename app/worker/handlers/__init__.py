"""The handlers of a worker, one module for each queue or model.

`base` defines the interface between a worker and its handlers. `compile` compiles, explains and checks constraints in
the sandbox. `generate` runs the language model, and `decode` decodes a matrix of log-probs. `step_events` publishes
each step of a generation. Only `generate` imports `decoding`.
"""
