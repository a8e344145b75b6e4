"""LVBench."""
