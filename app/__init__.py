"""Everything that touches the world: HTTP, jobs, stores, environment, processes."""

__version__ = "0.1.0"
