"""nFrames Gating: even, one draw a visit, the same in all processes and after a resume."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from pydantic import ValidationError

from paravt_infer.video.sampling import sample_times
from paravt_training.grpo.gating import BUDGETS, GatingConfig, nframes

ROOT = Path(__file__).parents[2]
PROMPTS = [f"video_{number // 3}.mp4#{number}" for number in range(21)]
RUN = """
import json, sys
from paravt_training.grpo.gating import nframes
first, last, prompts = int(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3])
print(json.dumps([[nframes(5, step, prompt) for prompt in prompts] for step in range(first, last)]))
"""


def run(first: int, last: int, *, hash_seed: str) -> list[list[int]]:
    """The draws of steps `first` to `last` (excluded), by a process of its own."""
    command = [sys.executable, "-c", RUN, str(first), str(last), json.dumps(PROMPTS)]
    environment = os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
    drawn: list[list[int]] = json.loads(subprocess.check_output(command, env=environment))
    return drawn


def test_every_process_draws_alike_and_a_resumed_run_goes_on_as_it_would_have() -> None:
    """The release draws with Python's salted hash: each process has budgets of its own."""
    whole = run(0, 8, hash_seed="0")
    assert whole == [[nframes(5, step, prompt) for prompt in PROMPTS] for step in range(8)]
    assert whole == run(0, 3, hash_seed="1") + run(3, 8, hash_seed="random")


def test_draws_are_even() -> None:
    """Chi-square over 5 budgets: 18.5 is met by chance once in a thousand; the draws are fixed."""
    draws = Counter(nframes(0, step, prompt) for step in range(500) for prompt in PROMPTS)
    expected = sum(draws.values()) / len(BUDGETS)
    assert set(draws) == set(BUDGETS)
    assert sum((count - expected) ** 2 / expected for count in draws.values()) < 18.5


@pytest.mark.parametrize("vary", ["run", "step", "prompt"])
def test_each_visit_has_a_draw_of_its_own(vary: str) -> None:
    """In the release a video keeps one budget for a process's life, whichever question is asked."""

    def draw(number: int) -> int:
        return nframes(number * (vary == "run"), number * (vary == "step"), f"v.mp4#{number * (vary == 'prompt')}")

    pairs = Counter((draw(number), draw(number + 1)) for number in range(1000))
    assert len(pairs) == 25 and max(pairs.values()) < 80  # about 40 each: a draw tells nothing of the next


def test_a_group_shares_its_draw() -> None:
    config = GatingConfig()
    assert len({config.frames_at(run_seed=1, step=4, prompt_id="v#1") for _ in range(8)}) == 1


@pytest.mark.parametrize("budget", BUDGETS)
def test_the_budget_holds_at_one_frame_a_second(budget: int) -> None:
    """In the release `fps: 1` takes the budget away and gating does nothing."""
    assert len(sample_times(0, 300.0, fps=1.0, limit=budget)) == budget


def test_gating_off_gives_every_visit_the_same_frames() -> None:
    config = GatingConfig(enabled=False, frames=48)
    assert {config.frames_at(run_seed=0, step=step, prompt_id="v#1") for step in range(50)} == {48}


def test_budgets_can_be_others() -> None:
    config = GatingConfig(budgets=(2, 2, 6))
    draws = Counter(config.frames_at(run_seed=0, step=step, prompt_id="v#1") for step in range(600))
    assert set(draws) == {2, 6} and 340 < draws[2] < 460


@pytest.mark.parametrize("values", [{"budgets": []}, {"budgets": [0, 4]}, {"frames": 0}, {"off": True}])
def test_gating_that_makes_no_sense_is_refused(values: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        GatingConfig.model_validate(values)
