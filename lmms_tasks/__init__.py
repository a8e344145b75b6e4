"""The lmms-eval plug-in: the adapter, one folder a benchmark, scorers, and what is made of results."""
