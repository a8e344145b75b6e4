"""``python -m paravt_training.grpo``: what torchrun starts."""

from paravt_training.grpo.recipe import load_grpo_recipe
from paravt_training.grpo.trainer import train
from paravt_training.loop.run import main

if __name__ == "__main__":
    main("paravt_training.grpo", "Reinforcement learning by a recipe.", load_grpo_recipe, train)
