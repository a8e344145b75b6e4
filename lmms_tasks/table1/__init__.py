"""The group of all seven tasks."""
