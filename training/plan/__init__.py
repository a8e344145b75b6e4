"""What a training run needs, computed before a model is loaded."""
