"""A whole evaluation: tasks loaded by lmms-eval, answered by the adapter, scored, and written to one folder."""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic_core import to_json
from tenacity import RetryError

from lmms_tasks.results import EvalItem, EvalResult, group_by_task, load_results, save_results
from lmms_tasks.scoring.scorers import get_scorer
from lmms_tasks.scoring.summary import Summary, summarise
from lmms_tasks.tasks import BENCHMARKS, GROUP, INCLUDE, get_benchmark
from lmms_tasks.tasks.base import VideoRoots
from paravt_infer.errors import SettingsError, first_line, suggestion
from paravt_infer.files import atomic_path

if TYPE_CHECKING:
    from lmms_tasks.adapter import ParavtModel

RESULTS = "results.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class Shard:
    """One part of a sweep that several machines share: documents `index`, `index` + `count`, ... from 0."""

    index: int = 0
    count: int = 1

    @classmethod
    def parse(cls, text: str) -> "Shard":
        """`i/n`, the first of n being 1. Raises SettingsError for anything else."""
        number, slash, count = text.partition("/")
        if not (slash and number.isdigit() and count.isdigit() and 1 <= int(number) <= int(count)):
            raise SettingsError(f"--shard {text}: write I/N, as in 1/4 for the first of four")
        return cls(index=int(number) - 1, count=int(count))

    def __str__(self) -> str:
        return f"{self.index + 1}/{self.count}"


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluationOutcome:
    """The scores of an evaluation."""

    summaries: dict[str, Summary]
    """By task, for this project's tasks, under the default scorer."""
    lmms_eval: dict[str, Any]
    """lmms-eval's own results, by task."""
    failed: int
    """Episodes that failed."""


def evaluate(
    adapter: "ParavtModel",
    tasks: Sequence[str],
    *,
    include: Path = INCLUDE,
    limit: int | None = None,
    shard: Shard | None = None,
) -> EvaluationOutcome:
    """Run `tasks` through lmms-eval itself and write `adapter.out`: results by task, run.json, results.json.

    Args:
        tasks: names of this project's tasks or groups, or of lmms-eval's own.
        include: the folder of this project's task files; a fixture has one of its own.
        limit: only the first N documents per task.

    Raises:
        SettingsError: no such task, or its data set could not be loaded.
    """
    from lmms_eval.evaluator import simple_evaluate

    leaves, manager = load_tasks(tasks, include=include, shard=shard)
    found = simple_evaluate(
        adapter,
        tasks=list(leaves.values()),
        task_manager=manager,
        limit=limit,
        bootstrap_iters=0,
        log_samples=False,
        process_docs_parallel=1,
        verbosity="WARNING",
    )
    results = (found or {}).get("results")
    if results is None:
        raise SettingsError(f"lmms-eval ended without results; the episodes are kept in {adapter.out}")
    summaries = summaries_by_task(adapter.results)
    facts = {"lmms_eval": results, "usage": found.get("usage"), "tasks": list(tasks), "limit": limit}
    write_summaries(adapter.out, summaries, facts | {"shard": str(shard or Shard())})
    return EvaluationOutcome(summaries=summaries, lmms_eval=results, failed=adapter.failed)


def load_tasks(
    tasks: Sequence[str], *, include: Path = INCLUDE, shard: Shard | None = None
) -> tuple[dict[str, Any], Any]:
    """lmms-eval's task objects by name, with groups expanded, and the manager that found them.

    Raises:
        SettingsError: no such task, or its data set could not be loaded.
    """
    if not tasks:
        raise SettingsError(f"no task was named; `paravt tasks` lists this project's, {GROUP} is all of them")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    from lmms_eval.tasks import TaskManager, get_task_dict

    manager = TaskManager(include_path=[str(include)], include_defaults=False)
    # Reading lmms-eval's own task files takes seconds: only where one of them is asked for.
    if any(task not in manager.all_tasks for task in tasks):
        manager = TaskManager(include_path=[str(include)])
    missing = [task for task in tasks if task not in manager.all_tasks]
    if missing:
        known = suggestion(missing[0], [GROUP, *BENCHMARKS])
        raise SettingsError(f"unknown task {missing[0]!r}{known}; `lmms-eval --tasks list` lists lmms-eval's own")
    try:
        found = _leaves(get_task_dict(list(tasks), manager, "chat"))
    except (OSError, RetryError) as error:  # OSError: the hub's; RetryError: after lmms-eval's retries
        cause = error.last_attempt.exception() if isinstance(error, RetryError) else error
        reason = first_line(cause or error)
        raise SettingsError(f"tasks {', '.join(tasks)}: could not load the data set ({reason})") from None
    order = [*tasks, *BENCHMARKS, *found]  # as given; within a group as in Table 1
    leaves = {name: found[name] for name in sorted(found, key=order.index)}
    if shard is not None and shard.count > 1:
        for name, task in leaves.items():
            _select_shard(name, task, shard)
    return leaves, manager


def load_items(
    tasks: Sequence[str], roots: VideoRoots, *, include: Path = INCLUDE, limit: int | None = None
) -> list[EvalItem]:
    """The items of this project's tasks, in their order.

    Raises:
        SettingsError: no such task, its data set could not be loaded, or it is not this project's.
    """
    leaves, _ = load_tasks(tasks, include=include)
    items = []
    for name, task in leaves.items():
        benchmark = get_benchmark(name)
        documents = task.dataset[benchmark.split]
        items += [benchmark.item(documents[i], roots) for i in range(min(len(documents), limit or len(documents)))]
    return items


def _leaves(loaded: dict[Any, Any]) -> dict[str, Any]:
    """The tasks of nested groups, each once."""
    leaves: dict[str, Any] = {}
    for name, task in loaded.items():
        if isinstance(task, dict):
            leaves |= _leaves(task)
        else:
            leaves[str(name)] = task[1] if isinstance(task, tuple) else task
    return leaves


def _select_shard(name: str, task: Any, shard: Shard) -> None:
    """Keep this shard's documents of the evaluated split."""
    split = task.config.test_split or task.config.validation_split
    count = len(task.dataset[split])
    if count <= shard.index:
        raise SettingsError(f"--shard {shard}: {name} has {count} documents; split it into fewer parts")
    # lmms-eval numbers documents by a second copy, which has no images.
    for documents in {id(copy): copy for copy in (task.dataset, task.dataset_no_image)}.values():
        documents[split] = documents[split].select(range(shard.index, count, shard.count))


def summaries_by_task(results: Sequence[EvalResult], scorer: str = "paravt") -> dict[str, Summary]:
    """A summary per task, in the results' order."""
    rule = get_scorer(scorer)
    return {task: summarise(of_task, rule) for task, of_task in group_by_task(results).items()}


def write_summaries(out: Path, summaries: dict[str, Summary], more: dict[str, Any]) -> None:
    """Write `out`/results.json; NaN, the mean of nothing, is the string "NaN" in it, as JSON has no such number."""
    facts = {"summaries": {task: summary.model_dump() for task, summary in summaries.items()}, **more}
    with atomic_path(out / RESULTS) as scratch:
        scratch.write_bytes(to_json(facts, indent=1, inf_nan_mode="strings", fallback=str) + b"\n")


def merge(folders: Sequence[Path], out: Path) -> dict[str, Summary]:
    """The shards of one sweep as one folder.

    Raises:
        SettingsError: the same question twice with different answers, shards that were run differently, or one of
            them is missing.
    """
    merged: dict[tuple[str, str], tuple[EvalResult, Path]] = {}
    variants: dict[str, Path] = {}
    for folder in folders:
        for result in load_results(folder):
            facts = {"settings": result.rollout.settings.model_dump(), "model": result.rollout.backend.model}
            variants.setdefault(json.dumps(facts, sort_keys=True), folder)
            if len(variants) > 1:
                first, second = list(variants.values())[:2]
                raise SettingsError(f"{first} and {second} have different settings or models; merge shards of one run")
            earlier = merged.get(result.key)
            if earlier is None or earlier[0].failed:
                merged[result.key] = (result, folder)
            elif not result.failed and earlier[0].rollout.answer_text != result.rollout.answer_text:
                task, question = result.key
                raise SettingsError(f"{folder}: {task}, question {question} has another answer in {earlier[1]}")
    _check_complete(folders)
    results = [result for result, _ in merged.values()]
    summaries = summaries_by_task(results)
    for task, of_task in group_by_task(results).items():
        save_results(of_task, out / f"{task}.parquet")
    write_summaries(out, summaries, {"merged": [str(folder) for folder in folders]})
    return summaries


def _check_complete(folders: Sequence[Path]) -> None:
    """Raises SettingsError if only some shards of a sweep are given."""
    files = [folder / RESULTS for folder in folders]
    given = {Shard.parse(json.loads(file.read_bytes()).get("shard", "1/1")) for file in files if file.is_file()}
    expected = (Shard(index=index, count=one.count) for one in given for index in range(one.count))
    if missing := next((shard for shard in expected if shard not in given), None):
        raise SettingsError(f"shard {missing} is missing; give the folders of all {missing.count} shards")
