"""A whole evaluation without any real data: lmms-eval loads the generated rows under the real tasks, and scores."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lmms_tasks.fixture import rows_file, write_tasks
from lmms_tasks.tasks import BENCHMARKS
from lmms_tasks.tasks.base import ALL_VIDEOS
from paravt_infer.errors import SettingsError
from paravt_training.world.benchmark_fixture import benchmark_rows, write_benchmarks

for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"):  # before lmms-eval is imported
    os.environ.setdefault(name, "1")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_benchmarks(tmp_path_factory.mktemp("seven"))


@pytest.fixture(autouse=True)
def places(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_HOME", *(one.variable for one in BENCHMARKS.values())):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(ALL_VIDEOS, str(folder))
    monkeypatch.setenv("LMMS_EVAL_DATASETS_CACHE", str(tmp_path / "cache"))


def evaluate(folder: Path, task: str, said: str, *, chat: bool = True) -> dict[str, Any]:
    """lmms-eval's results and samples where a model says the same to everything."""
    from lmms_eval.api.model import lmms
    from lmms_eval.evaluator import simple_evaluate
    from lmms_eval.tasks import TaskManager

    class Constant(lmms):
        is_simple = not chat
        seen: list[Any]

        def generate_until(self, requests: list[Any]) -> list[str]:
            self.seen = [request.args for request in requests]
            return [said] * len(requests)

        def loglikelihood(self, requests: list[Any]) -> list[Any]:
            raise NotImplementedError

        def generate_until_multi_round(self, requests: list[Any]) -> list[Any]:
            raise NotImplementedError

    manager = TaskManager(include_path=[str(write_tasks(folder))], include_defaults=False)
    model = Constant()
    found = simple_evaluate(model=model, tasks=[task], task_manager=manager, bootstrap_iters=0)
    return {**found, "seen": model.seen, "docs": model.task_dict}


def test_the_real_task_files_load_over_the_generated_rows(folder: Path) -> None:
    from lmms_eval.tasks import TaskManager, get_task_dict

    manager = TaskManager(include_path=[str(write_tasks(folder))], include_defaults=False)
    assert set(manager.all_subtasks) == {*BENCHMARKS} and manager.all_groups == ["paravt_table1"]
    [loaded] = get_task_dict(["paravt_table1"], manager, "chat").values()
    assert set(loaded) == set(BENCHMARKS)
    for name, task in loaded.items():
        docs = task.dataset[BENCHMARKS[name].split]
        expected = list(benchmark_rows(BENCHMARKS[name].name))
        assert [{key: doc[key] for key in expected[0]} for doc in docs] == expected
        assert all(Path(BENCHMARKS[name].item(doc).question.video).is_file() for doc in docs)
        assert task.config.generation_kwargs["until"] == []


@pytest.mark.parametrize("said", ["B", "<think>A?</think><answer>(b)</answer>"])
def test_a_constant_answer_scores_as_counted_by_hand(folder: Path, said: str) -> None:
    found = evaluate(folder, "paravt_mlvu", said)
    docs = list(benchmark_rows("mlvu"))
    right: dict[str, list[bool]] = {}
    for doc in docs:
        right.setdefault(doc["task_type"], []).append(doc["answer"] == "B")
    by_type = {task_type: 100 * sum(one) / len(one) for task_type, one in right.items()}
    figures = found["results"]["paravt_mlvu"]
    assert figures["accuracy,none"] == pytest.approx(100 * sum(map(sum, right.values())) / len(docs))
    assert figures["macro,none"] == pytest.approx(sum(by_type.values()) / 7)
    assert {name: figures[f"accuracy_{name},none"] for name in by_type} == pytest.approx(by_type)
    assert (figures["failed,none"], figures["no_answer,none"]) == (0, 0)


def test_spans_are_averaged_over_rows_that_are_there_twice(folder: Path) -> None:
    found = evaluate(folder, "paravt_charades_sta", "[5.0, 9.0]")
    spans = [tuple(doc["timestamp"]) for doc in benchmark_rows("charades_sta")]
    assert len(spans) == 16 and spans[-1] == spans[-2]
    shared = [max(0.0, min(9.0, end) - max(5.0, start)) for start, end in spans]
    ious = [both / (4.0 + end - start - both) for both, (start, end) in zip(shared, spans, strict=True)]
    figures = found["results"]["paravt_charades_sta"]
    assert figures["miou,none"] == pytest.approx(100 * sum(ious) / 16)
    assert figures["r@0.5,none"] == pytest.approx(100 * sum(iou >= 0.5 for iou in ious) / 16) != 0
    docs = found["docs"]["paravt_charades_sta"]["test"]
    assert len({BENCHMARKS["paravt_charades_sta"].item(doc).question.id for doc in docs}) == 16


@pytest.mark.parametrize("chat", [True, False])
def test_another_model_is_given_the_video_and_the_question(folder: Path, chat: bool) -> None:
    found = evaluate(folder, "paravt_lvbench", "A", chat=chat)
    [first] = [arguments for arguments in found["seen"] if arguments[3] == 0]
    doc = found["docs"]["paravt_lvbench"]["train"][0]
    question = BENCHMARKS["paravt_lvbench"].item(doc).question
    text = "\n".join([question.text, *(f"{letter}. {option}" for letter, option in question.options.items())])
    if chat:
        [message] = first[1](doc)
        assert message["content"] == [{"type": "video", "url": question.video}, {"type": "text", "text": text}]
    else:
        assert first[0] == text and first[2](doc) == [question.video]


def test_a_folder_without_rows_is_told_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"rows: no rows found; make the folder with `paravt tasks"):
        write_tasks(tmp_path)


def test_a_fixture_may_stand_at_any_path_and_be_moved(folder: Path, tmp_path: Path) -> None:
    from lmms_eval.tasks import TaskManager

    here = tmp_path / "a: 'folder' #1"
    here.mkdir()
    for name in ("rows", "tasks"):
        (here / name).mkdir()
    for benchmark in BENCHMARKS.values():
        rows_file(benchmark, here).parent.mkdir(exist_ok=True)
        rows_file(benchmark, here).write_bytes(rows_file(benchmark, folder).read_bytes())
    write_tasks(here)
    moved = here.rename(tmp_path / "moved")
    manager = TaskManager(include_path=[str(moved / "tasks")], include_defaults=False)
    [task] = manager.load_task_or_group("paravt_mmvu").values()
    assert len(task.dataset["validation"]) == 15


# The command.


def command(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`paravt tasks` in a process of its own, which has no data but what is in `home`."""
    code = "import sys, typer; from paravt_cli.tasks import tasks; typer.run(tasks)"
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("PARAVT_", "LMMS_"))}
    variables |= {"HF_HOME": str(home), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, env=variables, timeout=120
    )


def test_tasks_are_listed_with_their_data_and_where_videos_are_looked_for(tmp_path: Path) -> None:
    done = command(tmp_path)
    assert done.returncode == 0, done.stderr
    for benchmark in BENCHMARKS.values():
        assert f"{benchmark.title}: {benchmark.hub}, split {benchmark.split}\n" in done.stdout
        assert f"videos in {tmp_path / benchmark.videos} ({benchmark.variable})" in done.stdout
    assert done.stdout.count("not counted yet") == len(BENCHMARKS)


def test_missing_videos_of_rows_that_were_loaded_are_counted_and_listed(folder: Path, tmp_path: Path) -> None:
    import datasets

    source = {"test": str(folder / "rows" / "videomme" / "test.parquet")}
    builder = datasets.load_dataset_builder("parquet", data_files=source, cache_dir=str(tmp_path / "scratch"))
    builder.dataset_name = "video-mme"  # as the hub's own is kept
    builder.download_and_prepare(str(tmp_path / "datasets" / "lmms-eval___video-mme" / "default" / "0.0.0" / "0"))
    assert "  3 of 3 are missing; 0 have subtitles\n" in command(tmp_path).stdout
    done = command(tmp_path, "paravt_videomme_w_subtitle", "--videos", f"videomme:{folder / 'videomme'}")
    assert done.stdout.splitlines()[2:] == ["  0 of 3 are missing; 2 have subtitles"]
    done = command(tmp_path, "paravt_videomme")
    assert done.stdout.splitlines()[2:] == [
        "  3 of 3 are missing",
        *(f"    {tmp_path}/videomme/data/world-{number}.mp4" for number in (1, 2, 3)),
    ]


def test_the_fixtures_include_path_is_alone_on_stdout(tmp_path: Path) -> None:
    done = command(tmp_path, "--fixture", str(tmp_path / "new"))
    assert done.stdout == f"{tmp_path}/new/tasks\n" and f"{ALL_VIDEOS}={tmp_path}/new" in done.stderr
    assert (tmp_path / "new" / "tasks" / "paravt_table1.yaml").is_file()


def test_the_real_tasks_include_path_is_alone_on_stdout(tmp_path: Path) -> None:
    done = command(tmp_path, "--path")
    assert (Path(done.stdout.strip()) / "mlvu.yaml").is_file()


def test_results_are_plain_json(folder: Path) -> None:
    found = evaluate(folder, "paravt_videomme", "A")
    [sample] = [one for one in found["samples"]["paravt_videomme"] if one["doc_id"] == 0]
    assert json.loads(json.dumps(sample))["accuracy"]["row"]["rollout"]["answer"] == "A"
