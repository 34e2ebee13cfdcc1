"""Compilations in child processes, with limits on memory and time."""
