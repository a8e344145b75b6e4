"""Files to frames: probing, readers, sampling, decoding workers and their cache."""
