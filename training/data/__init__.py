"""Conversations in the paper's Parquet layout: read, checked, converted, filtered, mixed, counted."""
