"""What broker and store share when they are on a Redis server: the connection, scripts, and what the server must be."""
