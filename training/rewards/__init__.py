"""Rewards of a rollout: accuracy, format and tool use, each a pure function of the record, and their sum."""
