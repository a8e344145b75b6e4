"""Whole runs: two processes as one, killed runs that go on to the last bit, and the model that comes out."""

import json
import math
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file

from paravt_infer.errors import SettingsError
from paravt_infer.model import load_model_files, load_pretrained
from paravt_training.loop.export import export_run
from paravt_training.recipe import Phase, TraceMix, load_recipe
from paravt_training.sft import learning_rate_at, train
from paravt_training.world.build import build
from tests.fixtures.processes import run, run_killed, run_processes
from tests.fixtures.sft_run import command, metrics, write_recipe


@pytest.fixture(scope="module")
def whole(start: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recipe of a run in one process that nothing has stopped."""
    recipe = write_recipe(tmp_path_factory.mktemp("whole"), model={"start": str(start)})
    run("-m", *command(recipe))
    return recipe


def test_two_processes_lose_what_one_loses(whole: Path, start: Path, tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path, model={"start": str(start)})
    run_processes(2, "-m", *command(recipe))
    one, two = metrics(whole), metrics(recipe)
    assert len(one) == len(two) == 6
    for a, b in zip(one, two, strict=True):
        assert b["loss"] == pytest.approx(a["loss"], rel=1e-5)
        assert b["gradient_norm"] == pytest.approx(a["gradient_norm"], rel=1e-3)
        for name in ("tokens", "learned_tokens", "samples", "learning_rate"):
            assert a[name] == b[name]
    assert [a["samples"] for a in one] == [5, 5, 5, 1, 1, 1]  # at last one process has none
    weights, others = (load_file(path.parent / "run/export/model.safetensors") for path in (whole, recipe))
    for name, tensor in weights.items():
        torch.testing.assert_close(tensor, others[name], atol=2e-3, rtol=1e-2)


def test_a_killed_run_goes_on_to_the_last_bit(whole: Path, start: Path, tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path, model={"start": str(start)}, loaders=1)
    out = tmp_path / "run"
    run_killed(r"/\.step-00000002\.part/", *command(recipe))  # in the middle of its first checkpoint
    assert [path.name for path in out.glob("checkpoints/*")] == [".step-00000002.part"]
    run_killed(r"/\.step-00000004\.part$", *command(recipe, "--resume"))  # before the second has its name
    assert sorted(path.name for path in out.glob("checkpoints/*")) == [".step-00000004.part", "step-00000002"]
    with pytest.raises(SettingsError, match=r"holds a run of 2 steps; use --resume, or choose another out"):
        train(load_recipe(recipe))
    run("-m", *command(recipe, "--resume"))
    assert [path.name for path in sorted(out.glob("checkpoints/*"))] == ["step-00000004", "step-00000006"]
    for name in ("loss", "gradient_norm", "tokens", "learning_rate", "step"):
        assert [one[name] for one in metrics(recipe)] == [one[name] for one in metrics(whole)]
    weights, others = (load_file(path.parent / "run/export/model.safetensors") for path in (whole, recipe))
    assert all(torch.equal(tensor, others[name]) for name, tensor in weights.items())


def test_the_exported_folder_is_a_model(whole: Path, start: Path, tmp_path: Path) -> None:
    out = whole.parent / "run"
    folder = out / "export"
    files = {path.name for path in folder.iterdir()}
    assert files == {path.name for path in start.iterdir()} >= {
        "config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json",
        "chat_template.jinja", "preprocessor_config.json", "video_preprocessor_config.json",
    }  # fmt: skip
    model = load_pretrained(str(folder), "AutoModelForImageTextToText", dtype="auto")
    tokenizer = load_model_files(str(folder)).chat.tokenizer
    assert model.dtype == torch.bfloat16 and model.config._attn_implementation == "sdpa"
    assert model.generation_config.eos_token_id == [
        tokenizer.convert_tokens_to_ids(token) for token in ("<|im_end|>", "<|endoftext|>")
    ]
    fp32 = load_file(export_run(out, tmp_path / "x", dtype="fp32") / "model.safetensors")
    assert all(tensor.dtype == torch.float32 for tensor in fp32.values())
    assert all(torch.equal(tensor.bfloat16(), load_file(folder / "model.safetensors")[n]) for n, tensor in fp32.items())
    earlier = load_file(export_run(out, tmp_path / "y", step=4) / "model.safetensors")
    assert any(not torch.equal(tensor, fp32[name].bfloat16()) for name, tensor in earlier.items())
    with pytest.raises(SettingsError, match="no checkpoint of step 5; choose from steps 4, 6"):
        export_run(out, tmp_path / "z", step=5)
    with pytest.raises(SettingsError, match="not the folder of a run"):
        export_run(tmp_path, tmp_path / "z")


def test_a_run_measures_what_is_held_out_and_learns(start: Path, tmp_path: Path) -> None:
    mix = {"perception": 1, "parallel": 1, "sequential": 0, "overview": 0, "reasoning": 0, "direct": 0, "budgets": [4]}
    recipe = write_recipe(
        tmp_path,
        model={"start": str(start)},
        held_out={"every": 10, "traces": 6, "mix": mix},
        phases=[{"steps": 30, "learning_rate": 5e-3, "mix": mix}],
        checkpoints={"every": 100},
    )
    train(load_recipe(recipe))
    lines = metrics(recipe)
    measured = [line for line in lines if "held_out/loss" in line]
    assert [line["step"] for line in measured] == [10, 20, 30]
    assert measured[-1]["held_out/loss"] < measured[0]["held_out/loss"] and lines[-1]["loss"] < lines[0]["loss"] * 0.7
    assert {"held_out/window", "held_out/calls", "held_out/answer", "held_out/calls_parallel"} <= set(measured[0])
    assert all(
        0 <= value <= 1 for name, value in measured[0].items() if name.startswith("held_out/") and "loss" not in name
    )
    assert list((tmp_path / "run/tensorboard").glob("events*"))
    # Another model's checkpoint is no place to go on from.
    shutil.rmtree(tmp_path / "run/export")
    other = write_recipe(tmp_path, model={"mini": {"layers": 2}}, phases=[{"steps": 31, "learning_rate": 1e-3}])
    with pytest.raises(SettingsError, match="does not fit this recipe's model"):
        train(load_recipe(other), resume=True)


def test_a_run_on_files_says_what_it_leaves_out(start: Path, tmp_path: Path) -> None:
    build(tmp_path, "train", 2, 4, mix=TraceMix(overview=0, reasoning=0, direct=0))
    gone = [
        {"role": "user", "content": [{"type": "video", "video": "gone.mp4"}]},
        {"role": "assistant", "content": "a"},
    ]
    pq.write_table(pa.table({"messages": [json.dumps(gone)]}), tmp_path / "other.parquet")
    recipe = write_recipe(
        tmp_path,
        model={"start": str(start)},
        data={"kind": "parquet", "files": [str(tmp_path / "*.parquet")], "min_pixels": 4096, "max_pixels": 4096},
        phases=[{"steps": 2, "learning_rate": 1e-3, "batch": 3}],
    )
    train(load_recipe(recipe))
    assert [(line["samples"], line["left_out"]) for line in metrics(recipe)] == [(2, 1)] * 2  # an epoch each
    told = (tmp_path / "run/left_out.txt").read_text().splitlines()
    assert len(told) == 2 and all("gone.mp4: no such file" in line for line in told)


def test_what_cannot_be_is_told_before_a_model_is_loaded(tmp_path: Path) -> None:
    recipe = load_recipe(write_recipe(tmp_path, precision="bf16"))
    with pytest.raises(SettingsError, match="recipe precision: bf16 needs a GPU or torchrun"):
        train(recipe)
    assert not (tmp_path / "run").exists()


def test_the_rate_rises_falls_and_begins_anew_in_each_phase() -> None:
    phase = Phase(steps=200, learning_rate=2e-5, warmup=0.05, final=0.1)
    rates = [learning_rate_at(phase, step) for step in range(200)]
    assert rates[9] == rates[10] == max(rates) == 2e-5 and rates[0] == pytest.approx(2e-6)
    assert rates[:10] == sorted(rates[:10]) and rates[10:] == sorted(rates[10:], reverse=True)
    assert rates[105] == pytest.approx(2e-5 * 0.55, rel=0.02) and rates[-1] == pytest.approx(2e-6, rel=0.05)
    assert all(math.isfinite(learning_rate_at(Phase(steps=1, learning_rate=1), 0)) for _ in range(1))
