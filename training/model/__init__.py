"""Conversations as tensors, and the model that reads them: encoding, packing, attention, sharding, checkpoints."""
