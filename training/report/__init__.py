"""Training runs compared: their metrics, the paper's figures, one HTML page."""
