"""What a rollout is worth: accuracy, form and tool use, each a pure function of the record, and their sum."""
