"""The GRPO trainer: whole small runs with real rollouts, and what one update does, to the number."""

import copy
import json
import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

from paravt_cli.main import app
from paravt_infer.backends.base import Request
from paravt_infer.backends.launch import SGLangServer
from paravt_infer.errors import BackendError, SettingsError
from paravt_infer.model import load_pretrained
from paravt_infer.rollout import Rollout
from paravt_infer.rollout_files import load_rollouts
from paravt_training.grpo.recipe import load_grpo_recipe
from paravt_training.grpo.trainer import GrpoTrainer, NothingToLearnError
from paravt_training.grpo.trajectory import with_advantage
from paravt_training.model.distributed import DistributedContext
from paravt_training.model.encode import EncodedSample
from paravt_training.model.packing import join, pack
from tests.fixtures.grpo_run import LOGPROB, MINI, BackendSpec, Policy, recipe, talk, write_recipe
from tests.fixtures.processes import run, run_killed, run_processes


def metrics(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "run/metrics.jsonl").read_text().splitlines()]


def rollouts(folder: Path, step: int) -> list[Rollout]:
    """Those that update number `step` (from 0) learned from."""
    return list(load_rollouts(folder / f"run/rollouts/step-{step:06}.jsonl"))


def generated(made: Sequence[Rollout]) -> list[list[int]]:
    subs = [call.sub_agent for rollout in made for call in rollout.evidence if call.sub_agent]
    return [one.output_ids for one in [*(turn for rollout in made for turn in rollout.turns), *subs]]


def samples(trainer: GrpoTrainer, gains: Sequence[float] = (1.0, -1.0)) -> list[EncodedSample]:
    """The first step's contexts, with one of `gains` for each rollout in turn."""
    with trainer.rollout_producer(print) as producer:
        trainer.update_rollout_weights(producer)
        groups = producer.groups(0)
    made = [own for group in groups for own in group.samples]
    return [with_advantage(one, gains[number % len(gains)]) for number, own in enumerate(made) for one in own]


def trainer(folder: Path, start: Path, *, say: Any = talk, **changes: Any) -> GrpoTrainer:
    """A trainer whose rollouts say what a test tells them to."""
    engine = BackendSpec(instance=Policy(start, say))
    return GrpoTrainer.from_recipe(recipe(folder, start, **changes), DistributedContext(), engine=engine)


# Whole runs, rollouts in process


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that nothing has stopped: real rollouts, sub-agents learned, held-out episodes."""
    folder = tmp_path_factory.mktemp("whole")
    GrpoTrainer.from_recipe(recipe(folder, MINI, **LIVELY), DistributedContext()).run()
    return folder


LIVELY: dict[str, Any] = {
    "temperature": 1.3,
    "learning_rate": 1e-4,
    "settings": {"think_prefix": "every"},
    "rollouts": {"concurrency": 1},
    "checkpoints": {"every": 1, "keep": 2},
    "held_out": {"every": 2, "questions": 2, "frames": 4},
}
"""One episode at a time, so that no timing decides which requests run in one batch, and with them the last digits."""


def test_each_step_learns_on_policy_and_measures_its_drift(whole: Path) -> None:
    """What generates and what learns agree on each token: fp32, within 0.005."""
    steps = metrics(whole)[1:]
    assert [one["step"] for one in steps] == [1, 2, 3] and [one["version"] for one in steps] == [0, 1, 2]
    for number, one in enumerate(steps):
        made = rollouts(whole, number)
        assert one["learned_tokens"] == one["drift/tokens"] == sum(map(len, generated(made))) > 100
        assert one["drift/most"] < 0.005 and one["drift/all"] == pytest.approx(one["drift/mean"], abs=1e-6)
        assert one["behaviour_weight"] == pytest.approx(1, abs=1e-3) and one["ratio"] == 1.0
        assert (one["staleness/most"], one["rollouts"], one["rollouts_failed"]) == (0, 4, 0)
        assert {turn.weight_version for rollout in made for turn in rollout.turns} == {str(number)}
        assert one["kappa"] == sum(len(rollout.evidence) for rollout in made) / 4
    assert sum(one["kappa"] for one in steps) > 0  # sub-agents are among what was learned


def test_a_step_writes_what_the_paper_looks_at(whole: Path) -> None:
    first, *steps = metrics(whole)
    assert first["step"] == 0 and {"held_out/accuracy", "held_out/kappa", "held_out/failed"} <= set(first)
    names = (
        "loss surrogate kl ratio clipped behaviour_weight capped gradient_norm reward/total reward/accuracy "
        "reward/format reward/tool f_tau kappa with_calls response_tokens opened/think groups_flat "
        "staleness/mean idle seconds seconds/rollout seconds/learn seconds/weights tokens_per_second learning_rate"
    )
    assert all(set(names.split()) <= set(one) for one in steps)
    assert all(math.isfinite(value) for one in steps for value in one.values() if isinstance(value, float))
    assert ["held_out/accuracy" in one for one in steps] == [False, True, False]
    assert steps[0]["kl"] == 0.0 and any(one["kl"] > 0 for one in steps[1:])  # the reference stays where it was


def test_the_think_prefix_is_fed_and_the_model_that_comes_out_is_one(whole: Path) -> None:
    assert all(turn.prefix == "<think>\n" for rollout in rollouts(whole, 0) for turn in rollout.turns)
    network = load_pretrained(str(whole / "run/export"), "AutoModelForImageTextToText", dtype="auto")
    assert network.dtype == torch.float32
    learned, start = (load_file(folder / "model.safetensors") for folder in (whole / "run/export", MINI))
    moved = [name for name, tensor in learned.items() if not torch.equal(tensor, start[name].float())]
    assert any(".visual." in name for name in moved) and any(".language_model." in name for name in moved)


@pytest.mark.parametrize(("dispatch", "evidence"), [("parallel", "frames"), ("sequential", "text")])
def test_the_other_ways_to_look_are_learned_as_exactly(tmp_path: Path, dispatch: str, evidence: str) -> None:
    settings = {"dispatch": dispatch, "evidence": evidence}
    GrpoTrainer.from_recipe(
        recipe(tmp_path, MINI, **(LIVELY | {"steps": 1, "settings": settings, "held_out": {}})), DistributedContext()
    ).run()
    (step,) = metrics(tmp_path)
    made = rollouts(tmp_path, 0)
    assert step["kappa"] > 0 and step["drift/tokens"] == sum(map(len, generated(made))) and step["drift/most"] < 0.005
    assert all((call.sub_agent is None) == (evidence == "frames") for r in made for call in r.evidence if call.used)


def test_a_killed_run_goes_on_with_the_same_steps(whole: Path, tmp_path: Path) -> None:
    """Killed with SIGKILL while it writes a checkpoint; then nothing tells it from a run that nothing stopped."""
    command = ("paravt_training.grpo", "--recipe", str(write_recipe(tmp_path, MINI, **LIVELY)))
    run_killed(r"/\.step-00000002\.part/", *command)
    folders = sorted(path.name for path in tmp_path.glob("run/checkpoints/*"))
    assert folders == [".step-00000002.part", "step-00000001"]
    with pytest.raises(SettingsError, match=r"run: holds a run of 1 steps; use --resume, or choose another out"):
        GrpoTrainer.from_recipe(recipe(tmp_path, MINI, **LIVELY), DistributedContext())
    run("-m", *command, "--resume")
    once, again = metrics(whole), metrics(tmp_path)
    assert [one["step"] for one in again] == [0, 1, 2, 3]
    for one, other in zip(once, again, strict=True):
        told = {name: value for name, value in one.items() if "second" not in name}
        assert {name: other[name] for name in told} == pytest.approx(told, rel=1e-6, abs=1e-9)
    for step in range(3):
        assert generated(rollouts(whole, step)) == generated(rollouts(tmp_path, step))
    weights, others = (load_file(folder / "run/export/model.safetensors") for folder in (whole, tmp_path))
    assert all(torch.allclose(tensor, others[name], atol=1e-6) for name, tensor in weights.items())


def test_rollouts_ahead_of_the_learner_are_learned_too(tmp_path: Path) -> None:
    """Up to two versions behind, and weighed for it; the drift of fresh tokens is as small as ever."""
    changes = LIVELY | {"steps": 4, "rollouts": {"staleness": 2, "concurrency": 64}, "held_out": {}}
    GrpoTrainer.from_recipe(recipe(tmp_path, MINI, **changes), DistributedContext()).run()
    steps = metrics(tmp_path)
    assert max(one["staleness/most"] for one in steps) in (1, 2) and all(one["drift/most"] < 0.005 for one in steps)
    stale = [one for one in steps if one["drift/tokens"] < one["learned_tokens"]]
    assert stale and all(one["behaviour_weight"] != 1.0 for one in stale)


# Rollouts by SGLang


@pytest.mark.parametrize("weights", ["disk", "distributed"])
def test_rollouts_of_a_real_server_are_on_policy_after_each_update(
    tmp_path: Path, server_of: Callable[..., SGLangServer], weights: str
) -> None:
    """In fp32, log-probabilities of server and learner are within 0.005, with weights handed over on the way."""
    url = server_of(MINI, "--dtype", "float32").url
    # The server draws by no seed of ours, so all groups may be flat: decay alone then changes the weights.
    where = {"backend": "sglang", "servers": [url], "weights": weights}
    changes = LIVELY | {"rollouts": where, "held_out": {}, "weight_decay": 10.0, "export_dtype": "fp32"}
    GrpoTrainer.from_recipe(recipe(tmp_path, MINI, **changes), DistributedContext()).run()
    steps = metrics(tmp_path)
    assert [one["step"] for one in steps] == [1, 2, 3]
    for number, one in enumerate(steps):
        made = rollouts(tmp_path, number)
        assert {turn.weight_version for rollout in made for turn in rollout.turns} == {str(number)}
        assert one["drift/tokens"] == sum(map(len, generated(made))) > 100 and one["drift/most"] < 0.005
        assert one["rollouts_failed"] == 0
    assert sum(one["kappa"] for one in steps) > 0
    assert (tmp_path / "run/weights").exists() == (weights == "disk")
    learned, start = (load_file(folder / "model.safetensors") for folder in (tmp_path / "run/export", MINI))
    change = max(float((tensor - start[name].float()).abs().max()) for name, tensor in learned.items())
    assert change > 1e-4  # far more than the drift, had the server gone on with old weights


@pytest.mark.parametrize("weights", ["disk", "distributed"])
def test_in_bf16_several_processes_and_a_server_agree_as_far_as_bf16_does(
    tmp_path: Path, tiny: Path, server: SGLangServer, weights: str
) -> None:
    rollouts_by = {"backend": "sglang", "servers": [server.url], "weights": weights}
    file = write_recipe(tmp_path, tiny, steps=1, precision="bf16", rollouts=rollouts_by)
    try:
        run_processes(2, "-m", "paravt_training.grpo", "--recipe", str(file))
    finally:
        httpx.post(server.url + "/flush_cache?timeout=60", timeout=90)  # waits until it is idle
        body = {"model_path": str(tiny), "weight_version": "default"}
        httpx.post(server.url + "/update_weights_from_disk", json=body, timeout=60).raise_for_status()
    (step,) = metrics(tmp_path)
    assert step["drift/tokens"] > 100 and step["drift/mean"] < 0.02


# One update


def learn(learning: GrpoTrainer, batch: list[EncodedSample]) -> dict[str, Any]:
    return learning.learn(pack(batch, learning.recipe.row_tokens))


def test_what_did_better_becomes_likelier_and_what_did_worse_less_likely(tmp_path: Path, start: Path) -> None:
    learning = trainer(tmp_path, start, objective={"kl": 0.0})
    batch = samples(learning)

    def weighed() -> float:
        """Each token's log-probability times its advantage, summed: what an update is to raise."""
        with torch.no_grad():
            rows = [learning.logprobs(learning.learner, join([one]))[0] for one in batch]
        return sum(float((row * one.advantages).sum()) for row, one in zip(rows, batch, strict=True))

    before = weighed()
    told = learn(learning, batch)
    assert weighed() > before + 1
    assert told["loss"] == pytest.approx(-told["surrogate"]) and told["gradient_norm"] > 0


def test_how_rows_are_packed_changes_nothing(tmp_path: Path, start: Path) -> None:
    told, weights = [], []
    for row_tokens in (2048, 700):
        learning = trainer(tmp_path, start, row_tokens=row_tokens)
        told.append(learn(learning, samples(learning)))
        weights.append(learning.learner.state_dict())
    one, other = told
    assert other == pytest.approx(one, rel=1e-4, abs=1e-7) and one["tokens"] > 1400
    for name, tensor in weights[0].items():
        torch.testing.assert_close(tensor, weights[1][name], atol=2e-3, rtol=1e-2)


def test_gradient_checkpointing_computes_layers_again_and_the_same(tmp_path: Path, start: Path) -> None:
    told, passes = [], []
    for checkpointing in (False, True):
        learning = trainer(tmp_path, start, gradient_checkpointing=checkpointing)
        batch = samples(learning)
        count: list[int] = []
        layer = learning.learner.model.model.language_model.layers[0].self_attn
        layer.register_forward_pre_hook(lambda *_, count=count: count.append(1))
        told.append(learn(learning, batch))
        passes.append(len(count))
    assert told[1] == pytest.approx(told[0], rel=1e-5) and passes[1] == 2 * passes[0]


def test_the_learner_and_the_reference_say_the_same_before_the_first_update(tmp_path: Path, start: Path) -> None:
    learning = trainer(tmp_path, start)
    batch = samples(learning)
    assert learn(learning, batch)["kl"] == 0.0
    assert learn(learning, batch)["kl"] > 0
    alone = trainer(tmp_path, start, objective={"kl": 0.0})
    assert alone.reference is None and learn(alone, batch)["kl"] == 0.0


def test_frames_tokens_have_no_probability(tmp_path: Path, start: Path) -> None:
    """The rollouts ban them, so the learner's distribution is over the others alone."""
    learning = trainer(tmp_path, start, temperature=0.7)
    row = join(samples(learning)[:1])
    logits, _ = learning.learner(row)
    logits[:, list(learning.encoder.chat.media_token_ids)] = float("-inf")
    expected = (logits / 0.7).log_softmax(-1).gather(-1, row.targets[:, None])[:, 0]
    torch.testing.assert_close(learning.logprobs(learning.learner, row)[0], expected)


def test_a_step_without_samples_changes_nothing(tmp_path: Path, start: Path) -> None:
    learning = trainer(tmp_path, start)
    before = copy.deepcopy(learning.learner.state_dict())
    told = learning.learn([])
    assert (told["loss"], told["learned_tokens"], told["gradient_norm"]) == (0.0, 0, 0.0)
    assert all(torch.equal(tensor, before[name]) for name, tensor in learning.learner.state_dict().items())


def test_a_stale_token_is_weighed_and_one_too_far_off_is_cut(tmp_path: Path, start: Path) -> None:
    """The policy says e^LOGPROB of its tokens; the learner's own opinion over that is the behaviour weight."""
    learning = trainer(tmp_path, start, objective={"behaviour_cap": 1.0001})
    batch = samples(learning)
    with torch.no_grad():
        own = torch.cat([learning.logprobs(learning.learner, join([one]))[0] for one in batch])
    weights = (own - LOGPROB).exp()
    told = learn(learning, batch)
    assert told["capped"] == pytest.approx(float((weights > 1.0001).float().mean())) and 0 < told["capped"] < 1
    assert told["behaviour_weight"] == pytest.approx(float(weights[weights <= 1.0001].sum()) / len(weights), rel=1e-4)
    assert told["drift/mean"] == pytest.approx(float((own - LOGPROB).abs().mean()), rel=1e-4)


# Nothing to learn from


def alike(request: Request) -> str:
    return "<think>I have seen enough now</think><answer>of nothing here</answer>"


@pytest.mark.parametrize("dropped", [False, True])
def test_groups_without_spread_are_kept_or_dropped_as_configured(tmp_path: Path, start: Path, dropped: bool) -> None:
    trainer(tmp_path, start, say=alike, steps=1, objective={"drop_flat_groups": dropped}).run()
    (step,) = metrics(tmp_path)
    assert (step["groups_flat"], step["groups_dropped"], step["idle"]) == (2, 2 * dropped, 1)
    assert (step["learned_tokens"] == 0) == dropped
    weights, old = (load_file(folder / "model.safetensors") for folder in (tmp_path / "run/export", start))
    same = all(torch.equal(tensor, old[name].float()) for name, tensor in weights.items())
    assert same or not dropped  # those that are kept are held to the reference, and decay


def test_a_run_with_nothing_to_learn_says_so_and_stops_with_the_reason(
    tmp_path: Path, start: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    running = trainer(tmp_path, start, say=alike, steps=9, rollouts={"idle_steps": 3})
    with pytest.raises(NothingToLearnError) as stopped:
        running.run()
    assert "3 steps in a row had nothing to learn from; in the last step 0 rollouts failed and 4 succeeded" in str(
        stopped.value
    )
    assert [one["idle"] for one in metrics(tmp_path)] == [1, 2, 3]
    said = capsys.readouterr().err
    assert "warning: step 1: nothing to learn from (2 of 2 groups flat)" in said and "3 steps in a row" in said


def test_a_run_whose_rollouts_all_fail_names_the_failure(
    tmp_path: Path, start: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    running = trainer(tmp_path, start, say=lambda request: BackendError("no memory"), rollouts={"idle_steps": 2})
    with pytest.raises(NothingToLearnError, match=r"in the last step 4 rollouts failed \(no memory\) and 0 succeeded"):
        running.run()
    assert [one["rollouts_failed"] for one in metrics(tmp_path)] == [4, 4]
    assert "step 1: 4 rollouts failed and were dropped (no memory)" in capsys.readouterr().err


# Several processes


def test_two_processes_learn_what_one_learns(tmp_path: Path, start: Path) -> None:
    """FSDP2 on gloo; the first process makes the rollouts, weights go through a folder."""
    runs = []
    for processes in (1, 2):
        folder = tmp_path / str(processes)
        folder.mkdir()
        file = write_recipe(folder, start, rollouts={"backend": "sglang"})
        run_processes(processes, "-m", "tests.fixtures.grpo_run", "--recipe", str(file))
        runs.append(folder)
    one, two = (metrics(folder) for folder in runs)
    assert len(one) == len(two) == 3
    for a, b in zip(one, two, strict=True):
        for key in ("loss", "kl", "surrogate", "behaviour_weight", "drift/mean", "drift/most"):
            assert b[key] == pytest.approx(a[key], rel=1e-4, abs=1e-7), key
        assert b["gradient_norm"] == pytest.approx(a["gradient_norm"], rel=1e-3)
        for key in ("tokens", "learned_tokens", "reward/total", "kappa", "groups_flat", "drift/tokens"):
            assert a[key] == b[key], key
    for step in range(3):
        assert generated(rollouts(runs[0], step)) == generated(rollouts(runs[1], step))
    for folder in ("export", "weights"):
        weights, others = (load_file(run / f"run/{folder}/model.safetensors") for run in runs)
        for name, tensor in weights.items():
            torch.testing.assert_close(tensor, others[name], atol=2e-3, rtol=1e-2)


# What cannot be


@pytest.mark.parametrize("world", [1, 8])
def test_processes_that_would_share_a_servers_gpu_are_refused_before_a_model_is_loaded(
    tmp_path: Path, world: int
) -> None:
    cold = load_grpo_recipe("paragrpo_8b", [f"out={tmp_path}"])
    told = r"gpus\.train: 7, but the number of processes is \d; start it with torchrun --nproc-per-node 7 -m paravt_tr"
    with pytest.raises(SettingsError, match=told):
        GrpoTrainer.from_recipe(cold, DistributedContext(world_size=world, device=torch.device("cuda")))


def test_sizes_that_do_not_divide_are_refused_before_a_model_is_loaded(tmp_path: Path) -> None:
    chosen = recipe(tmp_path, tmp_path / "none", rollouts={"backend": "sglang"})
    told = "2 x 2 = 4 rollouts do not divide by 3 training processes; with group 2, prompts must be 3"
    with pytest.raises(SettingsError, match=told):
        GrpoTrainer.from_recipe(chosen, DistributedContext(world_size=3))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("distributed", "changes", "told"),
    [
        (DistributedContext(), {"precision": "bf16"}, "recipe precision: bf16 needs a GPU or torchrun"),
        (
            DistributedContext(world_size=2),
            {},
            "recipe rollouts.backend: transformers works in one process only; use sglang",
        ),
    ],
)
def test_what_does_not_go_together_is_told_before_a_model_is_loaded(
    tmp_path: Path, distributed: DistributedContext, changes: dict[str, Any], told: str
) -> None:
    with pytest.raises(SettingsError, match=told):
        GrpoTrainer.from_recipe(recipe(tmp_path, tmp_path / "none", **changes), distributed)


def test_a_resumed_run_takes_the_recipes_learning_rate(tmp_path: Path, start: Path) -> None:
    trainer(tmp_path, start, steps=1).run()
    changed = recipe(tmp_path, start, learning_rate=0.5, vision_rate=0.1)
    rates = {
        g["vision"]: g["lr"]
        for g in GrpoTrainer.from_recipe(changed, DistributedContext(), resume=True).optimiser.param_groups
    }
    assert rates == {False: 0.5, True: pytest.approx(0.05)}


def test_the_command_trains_and_prints_the_folder(tmp_path: Path) -> None:
    changes = LIVELY | {"steps": 1, "held_out": {}, "settings": {"max_new_tokens": 8}}
    path = write_recipe(tmp_path, MINI, **changes)
    result = CliRunner().invoke(app, ["train", "grpo", "--recipe", str(path), "--set", "prompts=1"])
    assert result.exit_code == 0, result.output
    assert result.stdout.strip() == str(tmp_path / "run/export") and os.path.isdir(result.stdout.strip())  # noqa: PTH112
