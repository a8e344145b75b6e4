"""LongVideoBench, validation."""
