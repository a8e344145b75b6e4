"""PARA-GRPO: prompts, rollouts, the objective, and the trainer that joins them (paper, section 3.2)."""
