"""What every training run has: its start, checkpoints, metrics, held-out measures and the exported model."""
