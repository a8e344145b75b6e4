"""A new benchmark is two files: written into a copy of the package, it is listed, run, scored and put in Table 1."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lmms_tasks

MODULE = '''
"""Spots: which colour a spot has."""

from lmms_tasks.results import EvalResult
from lmms_tasks.tasks.base import Benchmark, Doc, RowFields, Table1Column, mean_score, recall_at
from lmms_tasks.tasks.options import options_by_letter, row_id


def read_row(doc: Doc) -> RowFields:
    options = options_by_letter(doc["colours"])
    groups = {"size": doc["size"]}
    return RowFields(
        id=row_id(doc["film"], doc, ""), video=doc["film"], text="Which colour?", options=options, gold=doc["right"],
        groups=groups,
    )


def upstream(result: EvalResult, response: str) -> float:
    return 0.5


SPOTS = Benchmark(
    name="spots",
    task="paravt_spots",
    title="Spots",
    order=8,
    hub="example/spots",
    split="test",
    size=100,
    videos="spots",
    read_row=read_row,
    metrics={"accuracy": mean_score, "sure": recall_at(0.9)},
    groups={"size": ("big", "very small")},
    upstream=upstream,
    official=lambda answer: "C",
    table1=Table1Column(title="Spots!", numbers=(*[50.0] * 14, 60.0)),
)
process_docs, metric_list = SPOTS.process_docs, SPOTS.metric_list
'''
YAML = """
include: paravt_common.yaml
task: paravt_spots
dataset_path: parquet
dataset_kwargs: {{data_files: {{test: {rows}}}}}
test_split: test
process_docs: !function lmms_tasks.tasks.spots.process_docs
metric_list: !function lmms_tasks.tasks.spots.metric_list
"""
SCRIPT = """
import json, sys
from pathlib import Path
from typer.testing import CliRunner
from lmms_eval.tasks import TaskManager
from lmms_tasks.fixture import write_tasks
from lmms_tasks.tasks import BENCHMARKS, INCLUDE
from paravt_cli.main import app

out, seven, *evaluate = sys.argv[1:]

def run(*arguments):
    done = CliRunner().invoke(app, arguments, env={"COLUMNS": "160"})
    assert done.exit_code == 0, (arguments, done.output, done.exception)
    return done.stdout

manager = TaskManager(include_path=[str(INCLUDE)], include_defaults=False)
print(json.dumps({
    "benchmarks": list(BENCHMARKS),
    "tag": manager.task_index["paravt_benchmarks"]["task"],
    "tasks": run("tasks", "paravt_spots"),
    "eval": run("eval", *evaluate, "--out", out),
    "rescore": run("rescore", out, "--scorer", "lmms-eval", "--scorer", "official"),
    "table1": run("table1", out, "--all"),
    "lines": json.loads(run("table1", out, "--json")),
    "fixture": sorted(file.name for file in write_tasks(Path(seven)).iterdir()),
}))
"""


def test_a_benchmark_of_two_files_goes_all_the_way(tmp_path: Path, tiny: Path, video: str, seven: Path) -> None:
    package = shutil.copytree(Path(lmms_tasks.__file__).parent, tmp_path / "lmms_tasks")
    films, rows = tmp_path / "films" / "spots", tmp_path / "rows.parquet"
    films.mkdir(parents=True)
    shutil.copy(video, films / "spot.mp4")
    docs = [
        {"film": "spot.mp4", "colours": ["A. red", "B. blue", "C. green"], "right": right, "size": size}
        for right, size in (("A", "big"), ("B", "very small"), ("C", "big"))
    ]
    pq.write_table(pa.Table.from_pylist(docs), rows)
    (package / "tasks" / "spots.py").write_text(MODULE)
    (package / "tasks" / "spots.yaml").write_text(YAML.format(rows=json.dumps(str(rows))))
    data = shutil.copytree(seven / "rows", tmp_path / "seven" / "rows").parent

    found = _run(
        tmp_path,
        *(tmp_path / "out", data, "--tasks", "paravt_spots", "--videos", tmp_path / "films", "--model", tiny),
        *("--backend", "transformers", "--protocol", "direct", "--frames", "2"),
        *("--set", 'turn_regex=["<answer>B</answer>"]'),
    )
    assert found["benchmarks"][-1] == "paravt_spots" and len(found["benchmarks"]) == 8
    assert sorted(found["tag"]) == sorted(found["benchmarks"])
    assert "Spots: example/spots, split test\n" in found["tasks"] and "PARAVT_SPOTS_VIDEOS" in found["tasks"]

    results = json.loads((tmp_path / "out" / "results.json").read_text())
    summary = results["summaries"]["paravt_spots"]
    assert (summary["headline"]["name"], summary["count"], summary["failed"]) == ("accuracy", 3, 0)
    assert summary["metrics"] == pytest.approx({"accuracy": 100 / 3, "sure": 100 / 3})
    shown = {name.removesuffix(",none"): value for name, value in results["lmms_eval"]["paravt_spots"].items()}
    groups = (shown["accuracy_big"], shown["accuracy_very_small"])
    assert shown["accuracy"] == pytest.approx(100 / 3) and (*groups, shown["failed"]) == (0, 100, 0)
    assert "size very small" in found["eval"]

    assert "spread: 16.7 points" in found["rescore"]  # 50 and 33.3
    assert "Spots!" in found["table1"] and "3 of 100" in found["table1"] and "GPT-4o" in found["table1"]
    [line] = found["lines"]["results"][str(tmp_path / "out")]
    assert (line["published"]["ParaVT-8B"], line["difference"]) == (60.0, pytest.approx(100 / 3 - 60))
    assert "paravt_spots.yaml" not in found["fixture"] and "paravt_mlvu.yaml" in found["fixture"]


def _run(package: Path, *arguments: object) -> dict:
    """The script's JSON, in a process that imports `lmms_tasks` from `package`."""
    root = Path(__file__).parents[3]
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("PARAVT_", "LMMS_"))}
    variables |= {"PYTHONPATH": f"{package}{os.pathsep}{root}", "HF_HOME": str(package / "home")}
    variables |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", SCRIPT, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env=variables, cwd=package, timeout=240)
    assert done.returncode == 0, done.stderr
    found: dict = json.loads(done.stdout.splitlines()[-1])
    return found
