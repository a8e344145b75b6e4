"""The sample world: synthetic videos, questions about them and training traces, without limit, from seeds."""
