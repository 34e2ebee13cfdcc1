"""The connection to Redis, shared by the queue, the store and the rate limits."""
