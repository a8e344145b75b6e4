"""Measurements, not tests: speed as tables and ratios. Run one with ``python -m measures.NAME``."""
