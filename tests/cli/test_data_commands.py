"""`paravt data`: each command's output, files and exit code."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import Result
from typer.testing import CliRunner

from paravt_cli.data import app
from paravt_infer.errors import SettingsError
from paravt_infer.questions import Question
from paravt_infer.rollout import Rollout
from paravt_infer.rollout_files import save_rollouts
from paravt_training.world.build import build


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(one) for one in arguments], env={"COLUMNS": "160"})


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("traces"), "train", 300, 0, videos=False)[0]


@pytest.fixture
def spoiled(traces: Path, tmp_path: Path) -> Path:
    """The same with two rows that cannot be used."""
    columns = pq.read_table(traces).to_pydict()
    columns["messages"][4] = "[{"
    columns["messages"][9] = json.dumps([{"role": "assistant", "content": "hello"}])
    pq.write_table(pa.table(columns), tmp_path / "spoiled.parquet")
    return tmp_path / "spoiled.parquet"


def test_help_says_what_each_command_does() -> None:
    done = run("--help")
    assert done.exit_code == 0
    assert all(name in done.stdout for name in ("inspect", "convert", "check", "filter", "mix"))
    for name in ("inspect", "convert", "check", "filter", "mix"):
        assert run(name, "--help").exit_code == 0


def test_inspect_prints_a_table_or_json(spoiled: Path, tmp_path: Path) -> None:
    done = run("inspect", spoiled)
    assert done.exit_code == 0
    assert "perception" in done.stdout and "calls a turn" in done.stdout and "bad_json" in done.stdout
    assert done.stderr.startswith(f"{spoiled}, row 5: bad_json: messages is not JSON")
    (tmp_path / "clips").mkdir()
    found = json.loads(run("inspect", spoiled, "--json", "--map", f"videos/={tmp_path / 'clips'}").stdout)
    assert (found["rows"], found["bad_rows"]) == (299, {"bad_json": 1})
    assert found["missing_videos"] == {"videos/": 299}
    assert found["first_missing"]["videos/"].startswith(str(tmp_path / "clips/scene-"))


def test_inspect_counts_tokens_as_a_model_does(traces: Path, tiny: Path) -> None:
    found = json.loads(run("inspect", traces, "--json", "--model", tiny).stdout)
    assert 0 < found["tokens"]["median"] < found["characters"]["median"]


def test_check_prints_faults_and_exits_with_1_where_there_are(traces: Path, spoiled: Path) -> None:
    good = run("check", traces)
    assert (good.exit_code, good.stdout, good.stderr) == (0, "", "300 rows, 0 with faults\n")
    bad = run("check", traces, spoiled)
    assert bad.exit_code == 1 and bad.stderr == "600 rows, 2 with faults\n"
    one, two = bad.stdout.splitlines()
    assert one.startswith(f"{spoiled}, row 5: bad_json: ")
    assert two == f"{spoiled}, row 10: role_order: message 1 is assistant, first"


def test_convert_writes_parallel_traces_and_names_what_it_leaves_out(spoiled: Path, tmp_path: Path) -> None:
    done = run("convert", spoiled, tmp_path / "out.parquet")
    assert done.exit_code == 0 and done.stdout == ""
    *told, last, one, two = done.stderr.splitlines()
    assert [line.split(": ")[1] for line in told] == ["bad_json", "role_order"]
    assert last.startswith(f"{tmp_path / 'out.parquet'}: 298 of 300 rows, ") and last.endswith(" of them changed")
    assert {one, two} == {"  bad_json: 1 left out", "  role_order: 1 left out"}
    assert pq.read_metadata(tmp_path / "out.parquet").num_rows == 298
    assert run("check", tmp_path / "out.parquet").exit_code == 0
    before, after = (json.loads(run("inspect", file, "--json").stdout) for file in (spoiled, tmp_path / "out.parquet"))
    assert before["with_calls"] == after["with_calls"]
    calls = [sum(int(n) * turns for n, turns in found["calls_a_turn"].items()) for found in (before, after)]
    assert calls[0] == calls[1] and after["calls_a_turn"]["1"] < before["calls_a_turn"]["1"]


def test_filter_reports_by_reason(tmp_path: Path) -> None:
    path, _ = build(tmp_path, "rl", 30, 0, videos=False)
    rows = pq.read_table(path).to_pylist()
    answers = {row["extra_info"]["id"]: row["extra_info"]["answer"] for row in rows}
    first, second, *_ = answers
    made = [
        Rollout(question=Question(video="v", text="?", id=name), status="answered", answer=said)
        for name, said in ((first, answers[first]), (first, "zebra"), (second, "zebra"), (second, "zebra"))
    ]
    save_rollouts(made, tmp_path / "r.parquet")
    done = run("filter", path, tmp_path / "out.parquet", "--rollouts", tmp_path / "r.parquet")
    assert done.exit_code == 0
    assert done.stderr.splitlines() == [
        f"{tmp_path / 'out.parquet'}: 29 of 30 rows kept",
        "  never_right: 1 left out",
        "  28 kept rows have no rollouts",
    ]
    kept = [json.loads(row["extra_info"])["id"] for row in pq.read_table(tmp_path / "out.parquet").to_pylist()]
    assert kept == [name for name in answers if name != second]


def test_mix_prints_the_folder(traces: Path, tmp_path: Path) -> None:
    manifest = tmp_path / "m.yaml"
    manifest.write_text("name: m\nsources: [{name: world, files: ['*.parquet'], tool: false, count: 40}]\n")
    done = run("mix", manifest, "--out", tmp_path / "out", "--data", traces.parent)
    assert (done.exit_code, done.stdout) == (0, f"{tmp_path / 'out'}\n")
    assert "world: 40 rows of 300" in done.stderr and "40 rows in 1 files" in done.stderr
    assert pq.read_table(tmp_path / "out/m-00000-of-00001.parquet").num_rows == 40


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("inspect", "no.parquet"), "no.parquet: no such file"),
        (("inspect", "TRACES", "--videos", "nowhere"), "--videos nowhere: no such folder"),
        (("inspect", "TRACES", "--map", "selfqa/"), "--map selfqa/: write PREFIX=FOLDER"),
        (("check", "TRACES", "no.parquet"), "no.parquet: no such file"),
        (("convert", "no.parquet", "OUT"), "no.parquet: no such file"),
        (("filter", "TRACES", "OUT", "--rollouts", "no.jsonl"), "no.jsonl: no such file"),
        (("mix", "no_mix", "--out", "OUT"), "no_mix: no such manifest"),
    ],
)
def test_a_mistake_is_one_line_before_anything_is_written(
    traces: Path, tmp_path: Path, arguments: tuple[str, ...], told: str
) -> None:
    places = {"TRACES": traces, "OUT": tmp_path / "out.parquet"}
    done = run(*(places.get(one, one) for one in arguments))
    assert isinstance(done.exception, SettingsError) and told in str(done.exception)
    assert "\n" not in str(done.exception) and done.stdout == "" and not list(tmp_path.iterdir())
