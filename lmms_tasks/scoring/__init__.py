"""Named scorers, a task's summary under one of them, and several compared."""
