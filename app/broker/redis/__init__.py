"""The broker on a Redis server: our records of jobs beside streaQ's queues, which deliver them."""
