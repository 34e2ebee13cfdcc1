"""Policies of public agent benchmarks: agents under our decisions, under masks, and free."""
