"""The `paravt` command: one file for each sub-command; `options`, `tables`, `view` and others are shared."""
