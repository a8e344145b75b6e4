"""Reports: runs read as they were written, the numbers of their tables, figures of the metrics they have, one page."""

import base64
import io
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from typer.testing import CliRunner

from paravt_cli.train import report
from paravt_infer.errors import SettingsError
from paravt_training.loop.metrics import MetricsLog
from paravt_training.report.figures import accuracy_path, running_mean
from paravt_training.report.page import write_report
from paravt_training.report.runs import average_seeds, read_runs


def run(folder: Path, records: Iterable[dict[str, Any]], *, name: str | None = None, rest: str = "") -> Path:
    """A run's folder, as training leaves it."""
    folder.mkdir(parents=True)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records) + rest)
    if name:
        (folder / "run.json").write_text(json.dumps({"start": "m", "recipe": {"name": name}}))
    return folder


def grpo(steps: int = 40, *, rising: float = 0.5) -> list[dict[str, Any]]:
    """Metrics under the names that the GRPO trainer gives them; a measure before the first step."""
    first: dict[str, Any] = {"step": 0, "held_out/accuracy": 0.4, "held_out/format": 0.8, "held_out/failed": 0}
    lines = [first]
    for step in range(1, steps + 1):
        way = rising * step / steps
        line = {"step": step, "loss": 0.1 - way / 5, "f_tau": 0.1 + way, "kappa": 2.5 - 2 * way, "kl": way / 100}
        line |= {"reward/total": way, "reward/accuracy": way, "reward/tool": 0.1, "calls_ok": 2.0, "with_calls": 0.9}
        line |= {"closure/think": 0.5 + way / 2, "opened/think": 1.0, "tool_code": 0.2}
        if step % 10 == 0:
            line |= {"held_out/accuracy": 0.4 + way / 2, "held_out/format": 0.9, "held_out/failed": 0}
        lines.append(line)
    return lines


def sft(steps: int = 30) -> list[dict[str, Any]]:
    return [
        {"step": step, "phase": "mix", "loss": 5.0 / step} | ({"held_out/answer": step / 30} if step % 10 == 0 else {})
        for step in range(1, steps + 1)
    ]


def test_a_running_mean_takes_fewer_values_at_the_ends() -> None:
    assert running_mean(np.array([0.0, 3.0, 0.0, 3.0]), 3).tolist() == [1.5, 1.0, 2.0, 1.5]
    assert running_mean(np.array([2.0]), 9).tolist() == [2.0]
    assert running_mean(np.array([]), 3).tolist() == []


def test_start_and_end_are_means_of_the_first_and_last_tenth_of_the_steps_measured(tmp_path: Path) -> None:
    records = [{"step": step, "kappa": float(step)} for step in range(1, 21)] + [{"step": 21, "loss": 1.0}]
    (one,) = read_runs([run(tmp_path / "a", records)])
    assert one.ends("kappa") == (1.5, 19.5)
    assert one.ends("loss") == (1.0, 1.0)
    assert one.ends("f_tau") is None


def test_values_that_are_not_finite_numbers_are_not_drawn(tmp_path: Path) -> None:
    records = [{"step": 1, "loss": float("nan")}, {"step": 2, "loss": 3.0}, {"step": 3, "loss": "much"}]
    (one,) = read_runs([run(tmp_path / "a", records)])
    assert [series.tolist() for series in one.series("loss")] == [[2.0], [3.0]]


def test_each_held_out_metric_is_paired_with_the_format_at_its_step(tmp_path: Path) -> None:
    (one,) = read_runs([run(tmp_path / "a", grpo(10))])  # so few steps are not smoothed
    steps, form, accuracy = accuracy_path(one, "f_tau")
    assert steps.tolist() == [0, 10]
    assert form.tolist() == pytest.approx([0.15, 0.6])  # before the first step: as in the first
    assert accuracy.tolist() == pytest.approx([0.4, 0.65])
    assert accuracy_path(one, "held_out/format")[1].tolist() == [0.8, 0.9]


def test_runs_are_named_by_recipe_and_by_folder_where_names_repeat(tmp_path: Path) -> None:
    a, b = run(tmp_path / "a", sft(), name="grpo"), run(tmp_path / "b", sft(), name="grpo")
    c, d = run(tmp_path / "c", sft(), name="other"), run(tmp_path / "d", sft())
    names = [one.name for one in read_runs([a, b, c, d, a])]
    assert names == [f"grpo ({a})", f"grpo ({b})", "other", "d"]


def test_seeds_are_averaged_at_the_steps_that_all_of_them_reached(tmp_path: Path) -> None:
    a = [{"step": 1, "kappa": 1.0, "phase": "a"}, {"step": 2, "kappa": 2.0, "kl": 0.5}, {"step": 3, "kappa": 9.0}]
    b = [{"step": 1, "kappa": 2.0}, {"step": 2, "kappa": 4.0, "kl": float("nan")}]
    runs = read_runs(
        [run(tmp_path / "a", a, name="grpo"), run(tmp_path / "c", sft()), run(tmp_path / "b", b, name="grpo")]
    )
    grpo, other = average_seeds(runs)
    assert (grpo.name, other.name) == ("grpo × 2", "c") and grpo.seeds == (runs[0], runs[2])
    assert grpo.records == [{"step": 1, "kappa": 1.5}, {"step": 2, "kappa": 3.0, "kl": 0.5}]


def test_seeds_without_a_common_step_are_an_error(tmp_path: Path) -> None:
    runs = [run(tmp_path / str(step), [{"step": step}], name="grpo") for step in (1, 2)]
    with pytest.raises(SettingsError, match=r"/1, .*/2: no step in common; draw these runs without averaging seeds"):
        average_seeds(read_runs(runs))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"step": 1}\n{"step": 2, "lo\n{"step": 3}\n', "metrics.jsonl, line 2: not JSON"),
        ('{"step": 1}\n[2]\n', "metrics.jsonl, line 2: not an object"),
        ('{"loss": 1}\n', "metrics.jsonl, line 1: not an object with an integer step"),
        ("", "metrics.jsonl: no step recorded yet"),
        ('{"step": 1, "lo', "metrics.jsonl: no step recorded yet"),
        (None, "metrics.jsonl: cannot read"),
        (b"\xff\xfe", "metrics.jsonl: cannot read as text"),
    ],
)
def test_broken_metrics_are_reported_with_file_and_line(tmp_path: Path, text: str | bytes | None, told: str) -> None:
    if text is not None:
        (tmp_path / "metrics.jsonl").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(SettingsError) as caught:
        read_runs([tmp_path])
    assert told in str(caught.value) and str(tmp_path) in str(caught.value) and "\n" not in str(caught.value)


@given(st.integers(min_value=0, max_value=200))
def test_a_run_in_progress_may_end_anywhere(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    folder = tmp_path_factory.mktemp("cut")
    with MetricsLog(folder) as metrics:
        for step in range(1, 6):
            metrics.write(step, {"loss": 1 / 3, "phase": "a"})
    file = folder / "metrics.jsonl"
    text = file.read_text()[: len(file.read_text()) - cut]
    file.write_text(text)
    whole = [line for line in text.split("\n") if line.endswith("}")]
    if whole:
        (one,) = read_runs([folder])
        assert [record["step"] for record in one.records] == list(range(1, len(whole) + 1))
    else:
        with pytest.raises(SettingsError, match="no step recorded yet"):
            read_runs([folder])


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of two GRPO runs, one still going, and a supervised one."""
    root = tmp_path_factory.mktemp("drawn")
    runs = [
        run(root / "a", grpo(), name="grpo<b>"),
        run(root / "b", grpo(rising=0.0), name="anchoring", rest='{"step": 41, "f_t'),
        run(root / "c", sft(), name="cold"),
    ]
    files = write_report(runs, root / "out")
    names = ["dynamics.png", "closure.png", "format_accuracy.png", "tools.png", "learning.png", "report.html"]
    assert [file.name for file in files] == names and all(file.is_file() for file in files)
    return root / "out"


def test_figures_show_lines_in_the_colours_of_the_runs(drawn: Path) -> None:
    for file in drawn.glob("*.png"):
        with Image.open(file) as picture:
            assert picture.width == 1650 and picture.height > 500
            colours = {colour for _, colour in picture.convert("RGB").getcolors(1 << 20)}
        assert {(0x1D, 0x66, 0xA8), (0xC2, 0x57, 0x0C)} <= colours, file.name
    with Image.open(drawn / "learning.png") as picture:
        assert (0x15, 0x83, 0x6B) in {colour for _, colour in picture.convert("RGB").getcolors(1 << 20)}


def test_the_page_holds_all_and_fetches_nothing(drawn: Path) -> None:
    page = (drawn / "report.html").read_text()
    assert "<script" not in page and not re.findall(r"""(?:src|href)=["'](?!data:)""", page)
    assert "prefers-color-scheme: dark" in page
    inline = re.findall(r"data:image/png;base64,([\w+/=]+)", page)
    assert len(inline) == 10  # five pictures, for a light and a dark page
    assert base64.b64decode(inline[1]) == (drawn / "dynamics.png").read_bytes()
    for one in inline:
        Image.open(io.BytesIO(base64.b64decode(one))).verify()


def test_the_page_has_the_numbers_as_tables_and_names_as_text(drawn: Path) -> None:
    page = (drawn / "report.html").read_text()
    assert "grpo&lt;b&gt;" in page and "grpo<b>" not in page
    text = " ".join(re.sub(r"<[^>]*>", "", page).split())
    # The first and last four of forty steps: 0.1 + 0.5 * 2.5 / 40 and 0.1 + 0.5 * 38.5 / 40; closure likewise.
    assert "0.131→0.581" in text and "51.6 %→74.1 %" in text
    assert "Tag closure (Table 5): drawn without cold, which has no closure/think or closure/tool_call" in text


def test_a_supervised_run_gets_the_figures_it_has_metrics_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = write_report([run(tmp_path / "a", sft(), name="cold")], tmp_path / "out")
    assert [file.name for file in files] == ["learning.png", "report.html"]
    said = capsys.readouterr()
    assert said.out == ""
    assert "Format reward against held-out accuracy (Fig. 6): not drawn: no run has f_tau" in said.err
    assert "Tool use (Fig. 8): not drawn" in (tmp_path / "out" / "report.html").read_text()


def test_a_run_of_one_step_is_drawn(tmp_path: Path) -> None:
    files = write_report([run(tmp_path / "a", grpo(1))], tmp_path / "out")
    assert len(files) == 6


def test_seeds_are_drawn_as_their_mean_in_a_band(tmp_path: Path) -> None:
    low = (grpo(), grpo(rising=0.1), grpo(rising=0.3))
    folders = [run(tmp_path / str(number), records, name="grpo") for number, records in enumerate(low)]
    for name, seeds in (("mean", True), ("apart", False)):
        write_report(folders, tmp_path / name, seeds=seeds)
    page = (tmp_path / "mean/report.html").read_text()
    assert "1 training run<" in page and all(f"{folder}/metrics.jsonl" in page for folder in folders)
    text = " ".join(re.sub(r"<[^>]*>", "", page).split())
    assert "grpo × 340" in text and "0.119→0.389" in text  # 0.1 + 0.3 * 2.5 / 40 and 0.1 + 0.3 * 38.5 / 40
    band = np.array([0xE2, 0xEB, 0xF3])  # 13% of the run's blue on white
    for name, seen in (("mean", True), ("apart", False)):
        with Image.open(tmp_path / name / "dynamics.png") as picture:
            off = np.abs(np.asarray(picture.convert("RGB"), dtype=int) - band).max(axis=-1)
        assert (np.count_nonzero(off < 3) > 50_000) == seen


def test_the_command_prints_the_files_and_nothing_else(tmp_path: Path) -> None:
    app = typer.Typer()
    app.command()(report)
    result = CliRunner().invoke(app, [str(run(tmp_path / "a", sft())), "--out", str(tmp_path / "out")])
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [str(tmp_path / "out" / name) for name in ("learning.png", "report.html")]


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsError, match="file/out: cannot write"):
        write_report([run(tmp_path / "a", sft())], tmp_path / "file" / "out")
