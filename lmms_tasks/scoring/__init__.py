"""Named scorers, and what a task's rows come to under one of them."""
