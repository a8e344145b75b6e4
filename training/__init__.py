"""Data, the sample world, SFT and PARA-GRPO. So far: a tiny random checkpoint of the real architecture."""
