"""Score stored rollouts: no model and no video is needed, so rewards can be changed and computed again.

Usage: python examples/ask_many.py && python examples/score_rollouts.py [FILE]
"""

import sys
from pathlib import Path

from paravt_infer.bundled import sample_videos
from paravt_infer.rollout_files import load_rollouts
from paravt_training.rewards.accuracy import GoldAnswer
from paravt_training.rewards.config import RewardConfig
from paravt_training.rewards.format import tag_closure
from paravt_training.rewards.total import compute_reward


def main(file: Path) -> None:
    expected = {sample.question: sample.answer for sample in sample_videos()}
    recipes = {"full": RewardConfig(), "without R_tool": RewardConfig(tool=False)}
    for rollout in load_rollouts(file):  # .parquet, .jsonl or .json
        if rollout.status == "failed":
            print(f"{rollout.question.id}: failed ({rollout.error}); a failure has no reward")
            continue
        gold = GoldAnswer(answer=expected[rollout.question.text], kind="choice", options=rollout.question.options)
        for name, config in recipes.items():
            scored = compute_reward(rollout, gold, config)
            parts = ", ".join(f"{part} {scored.parts[part]:.2f}" for part in ("accuracy", "format", "tool"))
            print(f"{rollout.question.id}, {name}: {scored.total:.2f} ({parts})")
        opened, closed = tag_closure(rollout)["think"]
        print(f"{rollout.question.id}: {closed} of {opened} <think> closed, {rollout.usage.calls_ok} calls ran")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/ask_many/results.parquet"))
