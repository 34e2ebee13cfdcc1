"""The broker on a Redis server. Our records of jobs lie beside streaQ's queues, which deliver them."""
