"""Who may ask what, and how much of it: keys, the paths that they open, and their limits."""
