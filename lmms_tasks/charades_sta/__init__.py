"""Charades-STA, test: temporal grounding."""
