"""The lmms-eval plug-in: the model adapter, the benchmarks, scorers, and reports on results."""
