"""The lmms-eval plug-in: the adapter, and one folder a benchmark. Nothing is here yet."""
