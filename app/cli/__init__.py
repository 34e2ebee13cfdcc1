"""The `abs` command and what runs behind it."""
