"""Rows of the seven splits as items, where their videos are looked for, and the errors of bad rows and flags."""

from collections import Counter
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from lmms_tasks.results import EvalItem
from lmms_tasks.tasks import BENCHMARKS, GROUP, INCLUDE, get_benchmark
from lmms_tasks.tasks.base import ALL_VIDEOS, ROW_COLUMN, VideoRoots
from lmms_tasks.tasks.options import gold_letter, options_by_letter, split_question
from lmms_tasks.videos import distinct_videos, parse_video_roots
from paravt_infer.errors import SettingsError
from paravt_training.world.benchmark_fixture import BENCHMARK_SPLITS, benchmark_rows

ROOTS = VideoRoots(folders={"": Path("/videos")})
TASKS = [task for task, benchmark in BENCHMARKS.items() if benchmark.table1]

VIDEOMME = {
    "video_id": "001",
    "duration": "short",
    "domain": "Film & Television",
    "sub_category": "Documentary",
    "videoID": "fFjv93ACGo8",
    "question_id": "001-1",
    "task_type": "Counting Problem",
    "question": "How many trees are there?",
    "options": ["A. Two.", "B. Three.", "C. Four.", "D. Five."],
    "answer": "C",
}
LONGVIDEOBENCH = {
    "id": "86CxyhFV9MI_0",
    "video_path": "86CxyhFV9MI.mp4",
    "question": "Which of these is seen?",
    "option0": "a hat",
    "option1": "a cup",
    "option2": "a bell",
    "option3": "N/A",
    "option4": "N/A",
    "correct_choice": 2,
    "duration": 190.2,
    "duration_group": 600,
}
LVBENCH = {
    "uid": "7",
    "video_path": "Cm73ma6Ibcs.mp4",
    "question": "What year is shown?\n(A) 1636\n(B) 1366\n(C) 1363\n(D) 1633",
    "answer": "D",
}
MLVU = {
    "video_name": "needle_32.mp4",
    "question": "What did he hold?\n(A) a pen\n(B) a cup\n(C) a key",
    "candidates": ["a pen", "a cup", "a key"],
    "answer": "B",
    "task_type": "needle",
    ROW_COLUMN: 9,
}
MMVU = {
    "id": "validation_0",
    "video_path": "Chemistry/0.mp4",
    "question": "Which reaction is this?",
    "question_type": "multiple-choice",
    "choices": {"A": "a", "B": "b", "C": "c", "D": "d", "E": "e"},
    "answer": "E",
}
MMVU_OPEN = MMVU | {"question_type": "open-ended", "choices": dict.fromkeys("ABCDE"), "answer": "depth-first search"}
CHARADES = {"video": "3MSZA.mp4", "caption": "person turn a light on.", "timestamp": [24.3, 30.4], ROW_COLUMN: 0}


def item(task: str, doc: dict[str, Any]) -> EvalItem:
    return BENCHMARKS[f"paravt_{task}"].item(doc, ROOTS)


@pytest.mark.parametrize(
    ("task", "doc", "id", "video", "gold", "groups"),
    [
        ("videomme", VIDEOMME, "001-1", "videomme/data/fFjv93ACGo8.mp4", "C",
         {"duration": "short", "domain": "Film & Television"}),
        ("longvideobench", LONGVIDEOBENCH, "86CxyhFV9MI_0", "datasets/longvideobench/videos/86CxyhFV9MI.mp4", "C",
         {"duration_group": "600"}),
        ("lvbench", LVBENCH, "7", "lvbench/Cm73ma6Ibcs.mp4", "D", {}),
        ("mlvu", MLVU, "needle_32#9", "mlvu/needle_32.mp4", "B", {"task_type": "needle"}),
        ("mmvu", MMVU, "validation_0", "mmvu/Chemistry/0.mp4", "E", {"question_type": "multiple_choice"}),
        ("mmvu", MMVU_OPEN, "validation_0", "mmvu/Chemistry/0.mp4", "depth-first search",
         {"question_type": "open_ended"}),
        ("charades_sta", CHARADES, "3MSZA#0", "charades_sta/Charades_v1_480/3MSZA.mp4", "[24.3, 30.4]", {}),
    ],
)  # fmt: skip
def test_a_row_is_an_item(
    task: str, doc: dict[str, Any], id: str, video: str, gold: str, groups: dict[str, str]
) -> None:
    found = item(task, doc)
    assert (found.task, found.question.id, found.gold, found.groups) == (f"paravt_{task}", id, gold, groups)
    assert found.question.video == f"/videos/{video}"


@pytest.mark.parametrize(
    ("task", "doc", "text", "options"),
    [
        ("videomme", VIDEOMME, "How many trees are there?", {"A": "Two.", "B": "Three.", "C": "Four.", "D": "Five."}),
        ("longvideobench", LONGVIDEOBENCH, "Which of these is seen?", {"A": "a hat", "B": "a cup", "C": "a bell"}),
        ("lvbench", LVBENCH, "What year is shown?", {"A": "1636", "B": "1366", "C": "1363", "D": "1633"}),
        ("mlvu", MLVU, "What did he hold?", {"A": "a pen", "B": "a cup", "C": "a key"}),
        ("mlvu", MLVU | {"candidates": None}, "What did he hold?", {"A": "a pen", "B": "a cup", "C": "a key"}),
        ("mlvu", MLVU | {"question": "What?"}, "What?", {"A": "a pen", "B": "a cup", "C": "a key"}),
        ("mmvu", MMVU, "Which reaction is this?", MMVU["choices"]),
        ("mmvu", MMVU_OPEN, "Which reaction is this?", {}),
        ("charades_sta", CHARADES, "From when to when is this seen: person turn a light on?", {}),
    ],
)
def test_the_question_and_its_options_are_apart(
    task: str, doc: dict[str, Any], text: str, options: dict[str, str]
) -> None:
    question = item(task, doc).question
    assert (question.text, question.options) == (text, options)
    assert question.kind == ("grounding" if task == "charades_sta" else "choice" if options else "open")


@pytest.mark.parametrize("task", TASKS)
def test_every_generated_row_is_an_item_with_the_right_gold(task: str) -> None:
    benchmark = BENCHMARKS[task]
    for doc in benchmark_rows(benchmark.name):
        found = benchmark.item(doc, ROOTS)
        right = found.question.options.get(found.gold)
        if benchmark.name == "videomme":
            assert f"{found.gold}. {right}" in doc["options"] and found.gold == doc["answer"]
        elif benchmark.name == "longvideobench":
            assert right == doc[f"option{doc['correct_choice']}"] and "N/A" not in found.question.options.values()
        elif benchmark.name == "charades_sta":
            assert found.gold == str(doc["timestamp"])
        elif found.question.kind == "open":
            assert (found.gold, doc["question_type"]) == (doc["answer"], "open-ended")
        else:
            assert found.gold == doc["answer"] and right
        assert set(found.groups) == set(benchmark.groups)
        assert "(A)" not in found.question.text
        assert benchmark.split == BENCHMARK_SPLITS[benchmark.name]


@pytest.mark.parametrize(("answer", "gold"), [("B", "B"), ("a cup", "B"), ("(C)", "C"), ("c", "C")])
def test_an_answer_may_be_a_letter_or_the_options_text(answer: str, gold: str) -> None:
    assert item("mlvu", MLVU | {"answer": answer}).gold == gold


def test_rows_that_are_there_twice_keep_names_of_their_own() -> None:
    datasets = pytest.importorskip("datasets")
    docs = BENCHMARKS["paravt_charades_sta"].process_docs(
        datasets.Dataset.from_list([{k: v for k, v in CHARADES.items() if k != ROW_COLUMN}] * 3)
    )
    assert [item("charades_sta", doc).question.id for doc in docs] == ["3MSZA#0", "3MSZA#1", "3MSZA#2"]


def test_a_row_without_a_number_is_named_by_what_it_says() -> None:
    without = {name: value for name, value in CHARADES.items() if name != ROW_COLUMN}
    assert item("charades_sta", without).question.id == "3MSZA#24.3-30.4#person turn a light on."
    assert item("charades_sta", without | {"timestamp": "[24.3, 30.4]"}).gold == "[24.3, 30.4]"


@pytest.mark.parametrize(
    ("task", "doc", "message"),
    [
        ("videomme", VIDEOMME | {"answer": "E"}, "row 001-1: the answer 'E' is not among the options A, B, C, D;"),
        ("videomme", {"question_id": "1"}, "row 1: column 'options' is missing;"),
        ("longvideobench", LONGVIDEOBENCH | {"correct_choice": -1}, "row 86CxyhFV9MI_0: the answer is missing;"),
        ("longvideobench", LONGVIDEOBENCH | {"correct_choice": 4}, "the answer 'E' is not among the options A, B, C;"),
        ("lvbench", LVBENCH | {"question": "What?"}, "row 7: the answer 'D' is not among the options"),
        ("mlvu", MLVU | {"answer": "a hat"}, "row 9: the answer 'a hat' is not among the options A, B, C;"),
        ("mmvu", MMVU | {"question_type": "essay"}, "question_type 'essay' is neither multiple-choice nor open-ended;"),
        ("mmvu", MMVU_OPEN | {"answer": None}, "row validation_0: the answer is missing;"),
        ("charades_sta", CHARADES | {"timestamp": "soon"}, "row 0: "),
        ("charades_sta", CHARADES | {"timestamp": None}, "row 0: "),
        ("mmvu", MMVU | {"question": ""}, "row validation_0: row field text: "),
    ],
)
def test_a_row_that_cannot_be_understood_is_named_in_one_line(task: str, doc: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        item(task, doc)
    line = str(caught.value)
    benchmark = BENCHMARKS[f"paravt_{task}"]
    assert message in line and "\n" not in line and line.startswith(f"paravt_{task}, row ")
    assert line.endswith(f"; rows must be those of {benchmark.hub}, split {benchmark.split}")


# Options.


@pytest.mark.parametrize(
    ("given", "bare"),
    [
        (["A. x", "B. y"], ["x", "y"]),
        (["(A) x", "(B) y", "(C) z"], ["x", "y", "z"]),
        (["A) x", "B: y"], ["x", "y"]),
        (["A. x", "B y", "C.z"], ["x", "B y", "z"]),
        (["x", "y"], ["x", "y"]),
        (["A.M.", "P.M."], ["A.M.", "P.M."]),
        (["B. Franklin", "A. Lincoln"], ["B. Franklin", "A. Lincoln"]),
        (["A. 3.5", "B. 4"], ["3.5", "4"]),
        ([3, 4], ["3", "4"]),
    ],
)
def test_labels_before_options_are_dropped_and_nothing_else(given: list[Any], bare: list[str]) -> None:
    assert list(options_by_letter(given).values()) == bare


@pytest.mark.parametrize(
    ("text", "stem", "options"),
    [
        ("Who?\n(A) Ann\n(B) Bo", "Who?", ["Ann", "Bo"]),
        ("Who?\nA. Ann\nB. Bo\nC. Cy\nD. Di\nE. Ed\nF. Flo", "Who?", ["Ann", "Bo", "Cy", "Di", "Ed", "Flo"]),
        ("Who? (A) Ann (B) Bo (C) Cy", "Who?", ["Ann", "Bo", "Cy"]),
        ("Who?\n A) Ann\n B) Bo", "Who?", ["Ann", "Bo"]),
        ("He said:\nA. is first\nWho?\n(A) Ann\n(B) Bo", "He said:\nA. is first\nWho?", ["Ann", "Bo"]),
        ("Who?\n(A) Ann,\nthe first\n(B) Bo", "Who?", ["Ann, the first", "Bo"]),
        ("Who?\n(A) vitamin (B) rich\n(B) Bo", "Who?", ["vitamin (B) rich", "Bo"]),
        ("Who?", "Who?", []),
        ("Plan A. or B.?", "Plan A. or B.?", []),
        ("", "", []),
    ],
)
def test_options_are_read_out_of_a_question(text: str, stem: str, options: list[str]) -> None:
    found, read = split_question(text)
    assert (found, list(read.values())) == (stem, options)
    assert list(read) == list("ABCDEFGH"[: len(options)])


words = st.lists(st.text("abcdefgh", min_size=1, max_size=6), min_size=1, max_size=4).map(" ".join)


@given(words, st.lists(words, min_size=2, max_size=10), st.sampled_from(["({}) ", "{}. ", "{}) ", "{}: "]))
def test_options_written_into_a_question_are_read_back(stem: str, texts: list[str], form: str) -> None:
    labelled = [form.format(letter) + text for letter, text in zip("ABCDEFGHIJ", texts, strict=False)]
    read = dict(zip("ABCDEFGHIJ", texts, strict=False))
    assert split_question("\n".join([stem, *labelled])) == (stem, read)
    assert split_question(stem, labelled) == (stem, read)


@given(st.text(max_size=200))
def test_any_text_is_parted_without_a_fault(text: str) -> None:
    _, options = split_question(text)
    assert len(options) != 1


def test_a_gold_text_that_two_options_share_is_refused() -> None:
    with pytest.raises(ValueError, match="not among the options"):
        gold_letter("x", {"A": "x", "B": "x"})


# Where videos are.


@pytest.mark.parametrize("ending", [".mp4", ".MP4", ".mkv"])
def test_a_video_is_found_with_any_of_its_endings(tmp_path: Path, ending: str) -> None:
    video = (tmp_path / "lvbench" / "Cm73ma6Ibcs").with_suffix(ending)
    video.parent.mkdir()
    video.touch()
    found = BENCHMARKS["paravt_lvbench"].item(LVBENCH, parse_video_roots([str(tmp_path)]))
    assert found.question.video == str(video)


def test_subtitles_are_for_the_task_that_is_named_for_them(tmp_path: Path) -> None:
    subtitles = tmp_path / "videomme" / "subtitle" / "fFjv93ACGo8.srt"
    subtitles.parent.mkdir(parents=True)
    roots = parse_video_roots([str(tmp_path)])
    assert BENCHMARKS["paravt_videomme_w_subtitle"].item(VIDEOMME, roots).question.subtitles is None
    subtitles.touch()
    assert BENCHMARKS["paravt_videomme_w_subtitle"].item(VIDEOMME, roots).question.subtitles == str(subtitles)
    assert BENCHMARKS["paravt_videomme"].item(VIDEOMME, roots).question.subtitles is None


@pytest.mark.parametrize(
    ("environment", "flags", "root"),
    [
        ({}, [], "home/.cache/huggingface/mlvu"),
        ({"HF_HOME": "hf"}, [], "hf/mlvu"),
        ({"HF_HOME": "hf", ALL_VIDEOS: "all"}, [], "all/mlvu"),
        ({"HF_HOME": "hf", ALL_VIDEOS: "all", "PARAVT_MLVU_VIDEOS": "own"}, [], "own"),
        ({"PARAVT_MLVU_VIDEOS": "own"}, ["flag"], "flag/mlvu"),
        ({"PARAVT_MLVU_VIDEOS": "own"}, ["flag", "mlvu:mine"], "mine"),
        ({}, ["paravt_mlvu:mine"], "mine"),
        ({"PARAVT_MLVU_VIDEOS": "own"}, ["mmvu:mine"], "own"),
        ({}, ["with:colon"], "with:colon/mlvu"),
    ],
)
def test_the_closest_word_says_where_videos_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], flags: list[str], root: str
) -> None:
    for name in ("HF_HOME", ALL_VIDEOS, *(one.variable for one in BENCHMARKS.values())):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "home")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    for folder in ("flag", "mine", "with:colon"):
        Path(folder).mkdir()
    assert parse_video_roots(flags).folder(BENCHMARKS["paravt_mlvu"]) == Path(root)


@pytest.mark.parametrize("flag", ["nowhere", "mlvu:nowhere", "imagenet:/tmp"])
def test_a_flag_for_videos_that_names_no_folder_is_told_its_forms(flag: str) -> None:
    with pytest.raises(SettingsError, match=f"^videos '{flag}': no such folder; give FOLDER, or benchmark:FOLDER"):
        parse_video_roots([flag])


def test_videos_that_rows_ask_about_are_listed_each_once(tmp_path: Path) -> None:
    docs = list(benchmark_rows("mmvu"))
    there = tmp_path / "mmvu" / "Art" / "world-2.mp4"
    there.parent.mkdir(parents=True)
    there.touch()
    questions = distinct_videos(BENCHMARKS["paravt_mmvu"], docs, parse_video_roots([str(tmp_path)]))
    assert len(questions) == 3 and not any(question.subtitles for question in questions)
    missing = [Path(question.video).name for question in questions if not Path(question.video).is_file()]
    assert missing == ["world-1.mp4", "world-3.mp4"]


# The registry and the files of the tasks.


def test_a_task_that_does_not_exist_is_told_those_that_do() -> None:
    with pytest.raises(SettingsError, match=r"^unknown task 'x'; choose from paravt_videomme, "):
        get_benchmark("x")


class _Loader(yaml.SafeLoader):
    """YAML with lmms-eval's tag read as plain text."""


_Loader.add_constructor("!function", lambda loader, node: loader.construct_scalar(node))


def _config(file: Path) -> dict[str, Any]:
    config: dict[str, Any] = yaml.load(file.read_text(), Loader=_Loader)
    return (_config(file.with_name(config.pop("include"))) if "include" in config else {}) | config


def _named(path: str) -> Any:
    """What lmms-eval's `!function` gives for a name."""
    module, _, name = path.rpartition(".")
    return getattr(import_module(module), name)


_VIDEOMME = [
    *("accuracy", "accuracy_short", "accuracy_medium", "accuracy_long", "accuracy_Knowledge"),
    *("accuracy_Film_Television", "accuracy_Sports_Competition", "accuracy_Artistic_Performance"),
    *("accuracy_Life_Record", "accuracy_Multilingual", "failed", "no_answer"),
]
METRICS = {
    "paravt_videomme": _VIDEOMME,
    "paravt_videomme_w_subtitle": _VIDEOMME,
    "paravt_longvideobench": [
        *("accuracy", "accuracy_15", "accuracy_60", "accuracy_600", "accuracy_3600", "failed", "no_answer"),
    ],
    "paravt_lvbench": ["accuracy", "failed", "no_answer"],
    "paravt_mlvu": [
        *("macro", "accuracy", "accuracy_anomaly_reco", "accuracy_count", "accuracy_ego", "accuracy_needle"),
        *("accuracy_order", "accuracy_plotQA", "accuracy_topic_reasoning", "failed", "no_answer"),
    ],
    "paravt_mmvu": ["accuracy", "accuracy_multiple_choice", "accuracy_open_ended", "failed", "no_answer"],
    "paravt_charades_sta": ["miou", "r@0.3", "r@0.5", "r@0.7", "failed", "no_answer"],
}
"""Task to the metrics that lmms-eval reports, in their order."""


@pytest.mark.parametrize("task", TASKS)
def test_a_tasks_file_says_what_the_registry_says(task: str) -> None:
    benchmark = BENCHMARKS[task]
    config = _config(INCLUDE / benchmark.yaml)
    assert (config["task"], config["dataset_path"], config["test_split"]) == (task, benchmark.hub, benchmark.split)
    assert config["output_type"] == "generate_until"
    kwargs = config["generation_kwargs"]
    assert (kwargs["max_new_tokens"], kwargs["temperature"], kwargs["until"]) == (2048, 0, [])
    for hook in ("doc_to_visual", "doc_to_text", "doc_to_target", "process_results"):
        assert config[hook] == f"lmms_tasks.hooks.{hook}"
    assert _named(config["process_docs"]) == benchmark.process_docs
    listed = [one["metric"] for one in _named(config["metric_list"])]
    assert listed == METRICS[task] and [one["metric"] for one in benchmark.metric_list] == listed
    assert listed[: len(benchmark.metrics)] == list(benchmark.metrics) and max(Counter(listed).values()) == 1
    # No download of videos behind the user's back: lmms-eval's `video: True` would fetch hundreds of gigabytes.
    assert "dataset_kwargs" not in config


def test_the_group_is_every_task_of_the_folder() -> None:
    tag = _config(INCLUDE / "paravt_common.yaml")["tag"]
    assert _config(INCLUDE / f"{GROUP}.yaml") == {"group": GROUP, "task": [tag]}
    assert {file.name for file in INCLUDE.glob("*.yaml")} == {
        *(f"{GROUP}.yaml", "paravt_common.yaml", *(benchmark.yaml for benchmark in BENCHMARKS.values())),
    }
    assert all(_config(INCLUDE / benchmark.yaml)["tag"] == tag for benchmark in BENCHMARKS.values())


def test_benchmarks_are_in_the_papers_order() -> None:
    assert list(METRICS) == TASKS
