"""MLVU dev, multiple choice."""
