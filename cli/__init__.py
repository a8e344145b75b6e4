"""The `paravt` command, one file a sub-command."""
