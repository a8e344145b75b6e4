"""Reports on results: paired statistics of an A/B run, its page, and the comparison with the paper's Table 1."""
