"""What is measured of a step's rollouts, each name with a worked value."""

from typing import Any

import pytest

from paravt_infer.protocols.calls import parse_calls
from paravt_infer.questions import Question
from paravt_infer.rollout import Evidence, GenerationRecord, Rollout, Turn
from paravt_training.grpo.objective import ObjectiveConfig, advantages
from paravt_training.grpo.prompts import Prompt
from paravt_training.grpo.rollouts import RolloutGroup
from paravt_training.grpo.step_metrics import batch_values, episode_values, held_out_values
from paravt_training.rewards.accuracy import GoldAnswer
from paravt_training.rewards.config import RewardConfig
from paravt_training.rewards.total import group_rewards
from tests.fixtures.responses import call_text

QUESTION = Question(video="v.mp4", text="Which?", options={"A": "red", "B": "blue"})
PROMPT = Prompt(id="p", question=QUESTION, gold=GoldAnswer(answer="B", kind="choice", options=QUESTION.options))
THOUGHT = "<think>the red one moves first</think>"
CODE = "<tool_code>crop_video(1, 2)</tool_code>"


def rollout(*said: str, answer: str | None = "B", version: str = "2", tokens: int = 10, **more: Any) -> Rollout:
    """An episode of these responses, `tokens` long each; calls ran where they were written well."""
    turns = [Turn(text=text, output_ids=[0] * tokens, weight_version=version) for text in said]
    evidence = [
        Evidence(turn=number, tool=call.name, raw=call.raw, syntax=call.syntax, used=[1, 2], status="ok")
        for number, turn in enumerate(turns)
        for call in parse_calls(turn.text)
    ]
    status = "answered" if answer else "no_answer"
    values = {"question": QUESTION, "status": status, "answer": answer, "answer_text": answer, **more}
    return Rollout(turns=turns, evidence=evidence, **values)


DIRECT = rollout(THOUGHT + "<answer>B</answer>")
CALLED = rollout(THOUGHT + call_text(1, 2) + call_text(3, 4), THOUGHT + "<answer>A</answer>", answer="A")
OPEN = rollout("<think>the red one moves first <answer>B")
CODED = rollout(THOUGHT + CODE, THOUGHT + "<answer>B</answer>")


def test_form_tool_use_and_length_are_means_over_rollouts() -> None:
    """The form, by hand: 1; 1; 0.2 + 0.3 - 0.15 for a thought that stays open; nothing less 0.15."""
    values = episode_values([DIRECT, CALLED, OPEN, rollout("<think>never", answer=None)])
    assert values == {
        "f_tau": pytest.approx((1 + 1 + 0.35 - 0.15) / 4),
        "kappa": 2 / 4,
        "calls_ok": 2 / 4,
        "with_calls": 1 / 4,
        "response_tokens": (10 + 20 + 10 + 10) / 4,
        "no_answer": 1 / 4,
        "tool_code": 0.0,
        "opened/think": 5 / 4,
        "closure/think": 3 / 5,
        "opened/answer": 3 / 4,
        "closure/answer": 2 / 3,
        "opened/tool_call": 2 / 4,
        "closure/tool_call": 1.0,
    }


def test_reversions_are_a_share_of_the_calls() -> None:
    values = episode_values([CODED, CALLED])
    assert values["tool_code"] == pytest.approx(1 / 3)
    assert values["opened/tool_call"] == 1.0  # those in the competing form are not among them


def test_what_nobody_did_has_no_rate() -> None:
    values = episode_values([DIRECT])
    assert "tool_code" not in values and "closure/tool_call" not in values and values["opened/tool_call"] == 0.0
    assert episode_values([])["f_tau"] == 0.0


def group(*rollouts: Rollout, **more: Any) -> RolloutGroup:
    rewards = group_rewards(rollouts, PROMPT.gold, RewardConfig())
    return RolloutGroup(prompt=PROMPT, frames=8, rollouts=list(rollouts), rewards=rewards, **more)


def test_a_steps_groups_are_counted() -> None:
    groups = [
        group(DIRECT, CALLED, retried=1, too_long=2),
        group(DIRECT, DIRECT),
        group(CALLED, failed=3, failure="v.mp4: no such file"),
    ]
    rewards = [[one.total for one in each.rewards] for each in groups]
    values = batch_values(groups, advantages(rewards, ObjectiveConfig(drop_flat_groups=True)), version=3)
    counted = {
        "groups": 3, "groups_flat": 2, "groups_dropped": 2, "rollouts": 5, "rollouts_failed": 3, "rollouts_retried": 1,
        "contexts_too_long": 2, "frames": 8, "version": 3, "failure": "v.mp4: no such file",
    }  # fmt: skip
    assert {name: values[name] for name in counted} == counted
    kept = batch_values(groups, advantages(rewards, ObjectiveConfig()), version=3)
    assert (kept["groups_flat"], kept["groups_dropped"]) == (2, 0)


def test_rewards_are_means_of_their_parts() -> None:
    """By hand: a direct right answer 1 + 1 + 0; a wrong one after two calls 0 + 1 + 0.3."""
    groups = [group(DIRECT, CALLED)]
    values = batch_values(groups, advantages([[2.0, 1.3]], ObjectiveConfig()), version=2)
    assert (values["reward/accuracy"], values["reward/format"], values["reward/tool"]) == (0.5, 1.0, 0.15)
    assert values["reward/total"] == pytest.approx((2.0 + 1.3) / 2)
    assert values["f_tau"] == values["reward/format"] and values["kappa"] == 1.0


def test_form_is_measured_alike_whatever_a_run_pays_for() -> None:
    """By hand: a direct answer is worth 0.3 + 0.2 + 0.1 + 0.1 where neither anchors nor the answer suffix are paid."""
    bare = RewardConfig(anchoring=False, answer_suffix=False)
    direct = RolloutGroup(
        prompt=PROMPT, frames=8, rollouts=[DIRECT], rewards=group_rewards([DIRECT], PROMPT.gold, bare), samples=[]
    )
    values = batch_values([direct], advantages([[1.7]], ObjectiveConfig()), version=2)
    assert (values["reward/format"], values["f_tau"]) == (pytest.approx(0.7), 1.0)
    spam = rollout("<|im_start|>" * 5 + "<answer>B</answer>")
    assert episode_values([spam])["f_tau"] == 0.0


def test_staleness_counts_versions_of_all_who_spoke() -> None:
    old = rollout(THOUGHT + call_text(1, 2), THOUGHT + "<answer>B</answer>", version="5")
    old.evidence[0].sub_agent = GenerationRecord(output_ids=[1], weight_version="4")
    values = batch_values([group(old, rollout("<answer>B</answer>", version="6"))], advantages([[1, 0]], _C), version=6)
    assert (values["staleness/mean"], values["staleness/most"]) == (1.0, 2)
    assert batch_values([], advantages([], _C), version=6)["staleness/most"] == 0


_C = ObjectiveConfig()


def test_held_out_episodes_that_failed_are_counted_and_left_out() -> None:
    open_question = Question(video="v.mp4", text="What?")
    spoken = rollout("<answer>a red car</answer>", answer="a red car", question=open_question)
    asked = Prompt(id="q", question=open_question, gold=GoldAnswer(answer="the car", kind="open"))
    failed = rollout("", answer=None, status="failed", error="gone")
    values = held_out_values([PROMPT, PROMPT, asked, PROMPT], [DIRECT, CALLED, spoken, failed], RewardConfig())
    assert values["held_out/accuracy"] == pytest.approx((1 + 0 + 2 / 3) / 3)
    assert values["held_out/accuracy_choice"] == 0.5
    assert values["held_out/kappa"] == pytest.approx(2 / 3) and values["held_out/failed"] == 1
