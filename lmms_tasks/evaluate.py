"""A whole evaluation: tasks loaded by lmms-eval, answered by the adapter, scored, and a folder that holds it all."""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic_core import to_json
from tenacity import RetryError

from lmms_tasks.benchmarks import BENCHMARKS, INCLUDE, Roots, get_benchmark
from lmms_tasks.items import EvalResult, Item, load_rows, save_rows, write_whole
from lmms_tasks.scoring.scorers import get_scorer
from lmms_tasks.scoring.summary import Summary, summarise
from paravt_infer.errors import SettingsError

if TYPE_CHECKING:
    from lmms_tasks.adapter import ParavtModel

RESULTS = "results.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class Shard:
    """One part of a sweep that several machines share: documents `number`, `number` + `of`, ... from 0."""

    number: int = 0
    of: int = 1

    @classmethod
    def make(cls, text: str) -> "Shard":
        """`i/n`, the first of n being 1.

        Raises:
            SettingsError: it is none.
        """
        number, slash, of = text.partition("/")
        if not (slash and number.isdigit() and of.isdigit() and 1 <= int(number) <= int(of)):
            raise SettingsError(f"--shard {text}: write I/N, as in 1/4 for the first of four")
        return cls(number=int(number) - 1, of=int(of))

    def __str__(self) -> str:
        return f"{self.number + 1}/{self.of}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What came of a sweep."""

    summaries: dict[str, Summary]
    """By task, for this project's tasks; under the default scorer."""
    lmms_eval: dict[str, Any]
    """lmms-eval's own results, by task."""
    failed: int
    """Episodes that broke."""


def evaluate(
    adapter: "ParavtModel",
    tasks: Sequence[str],
    *,
    include: Path = INCLUDE,
    limit: int | None = None,
    shard: Shard | None = None,
) -> Outcome:
    """Run `tasks` through lmms-eval itself and write `adapter.out`: rows, run.json, results.json.

    Args:
        tasks: names of this project's tasks or groups, or of lmms-eval's own.
        include: the folder of this project's task files; a fixture has one of its own.
        limit: only the first so many documents a task.

    Raises:
        SettingsError: no such task, or its data cannot be had.
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
    summaries = summaries_of(adapter.rows)
    facts = {"lmms_eval": results, "usage": found.get("usage"), "tasks": list(tasks), "limit": limit}
    write_results(adapter.out, summaries, facts | {"shard": str(shard or Shard())})
    return Outcome(summaries=summaries, lmms_eval=results, failed=adapter.failed)


def load_tasks(
    tasks: Sequence[str], *, include: Path = INCLUDE, shard: Shard | None = None
) -> tuple[dict[str, Any], Any]:
    """lmms-eval's task objects by name, groups taken apart, and the manager that found them.

    Raises:
        SettingsError: no such task, or its data cannot be had.
    """
    if not tasks:
        raise SettingsError("no task was named; `paravt tasks` lists this project's, paravt_table1 is all of them")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    from lmms_eval.tasks import TaskManager, get_task_dict

    manager = TaskManager(include_path=[str(include)], include_defaults=False)
    # Reading lmms-eval's own task files takes seconds: only where one of them is asked for.
    if any(task not in manager.all_tasks for task in tasks):
        manager = TaskManager(include_path=[str(include)])
    missing = [task for task in tasks if task not in manager.all_tasks]
    if missing:
        raise SettingsError(
            f"task {missing[0]}: there is none of this name; `paravt tasks` lists this project's, "
            "`lmms-eval --tasks list` lmms-eval's own"
        )
    try:
        found = _leaves(get_task_dict(list(tasks), manager, "chat"))
    except (OSError, RetryError) as error:  # the hub's errors are of the first kind; lmms-eval asks it again
        cause = error.last_attempt.exception() if isinstance(error, RetryError) else error
        line = (str(cause).splitlines() or [type(cause).__name__])[0]
        raise SettingsError(f"tasks {', '.join(tasks)}: the data set cannot be had ({line[:200]})") from None
    order = [*tasks, *BENCHMARKS, *found]  # as they were named; a group's as in Table 1
    leaves = {name: found[name] for name in sorted(found, key=order.index)}
    if shard is not None and shard.of > 1:
        for name, task in leaves.items():
            _cut(name, task, shard)
    return leaves, manager


def items_of(tasks: Sequence[str], roots: Roots, *, include: Path = INCLUDE, limit: int | None = None) -> list[Item]:
    """The items of this project's tasks, in their order.

    Raises:
        SettingsError: no such task, its data cannot be had, or it is not this project's.
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


def _cut(name: str, task: Any, shard: Shard) -> None:
    """Keep this shard's documents of the split that is asked."""
    split = task.config.test_split or task.config.validation_split
    count = len(task.dataset[split])
    if count <= shard.number:
        raise SettingsError(f"--shard {shard}: {name} has {count} documents; cut it into fewer parts")
    # lmms-eval numbers documents by a second copy, without their pictures where there are some.
    for documents in {id(kept): kept for kept in (task.dataset, task.dataset_no_image)}.values():
        documents[split] = documents[split].select(range(shard.number, count, shard.of))


def summaries_of(rows: Sequence[EvalResult], scorer: str = "paravt") -> dict[str, Summary]:
    """A summary a task, in the rows' order."""
    chosen = get_scorer(scorer)
    tasks = dict.fromkeys(row.item.task for row in rows)
    return {task: summarise([row for row in rows if row.item.task == task], chosen) for task in tasks}


def write_results(out: Path, summaries: dict[str, Summary], more: dict[str, Any]) -> None:
    """Write `out`/results.json; a mean of nothing is "NaN" in it, which JSON has no number for."""
    facts = {"summaries": {task: summary.model_dump() for task, summary in summaries.items()}, **more}
    text = to_json(facts, indent=1, inf_nan_mode="strings", fallback=str) + b"\n"
    write_whole(out / RESULTS, lambda scratch: scratch.write_bytes(text))


def merge(folders: Sequence[Path], out: Path) -> dict[str, Summary]:
    """The shards of one sweep as one folder.

    Raises:
        SettingsError: the same question twice with different answers, shards that were run differently, or one of
            them is missing.
    """
    rows: dict[tuple[str, str], tuple[EvalResult, Path]] = {}
    how: dict[str, Path] = {}
    for folder in folders:
        for row in load_rows(folder):
            facts = {"settings": row.rollout.settings.model_dump(), "model": row.rollout.backend.model}
            how.setdefault(json.dumps(facts, sort_keys=True), folder)
            if len(how) > 1:
                one, two = list(how.values())[:2]
                raise SettingsError(f"{one} and {two} were run with different settings or models; merge what is alike")
            name = (row.item.task, row.item.question.id)
            earlier = rows.get(name)
            if earlier is not None and not earlier[0].failed and not row.failed:
                if earlier[0].rollout.answer_text != row.rollout.answer_text:
                    raise SettingsError(f"{folder}: {name[0]}, question {name[1]} has another answer in {earlier[1]}")
                continue
            if earlier is None or earlier[0].failed:
                rows[name] = (row, folder)
    _check_complete(folders)
    merged = [row for row, _ in rows.values()]
    summaries = summaries_of(merged)
    for task in summaries:
        save_rows((row for row in merged if row.item.task == task), out / f"{task}.parquet")
    write_results(out, summaries, {"merged": [str(folder) for folder in folders]})
    return summaries


def _check_complete(folders: Sequence[Path]) -> None:
    """Raises SettingsError where some shards of a sweep are here and others are not."""
    files = [folder / RESULTS for folder in folders]
    here = {Shard.make(json.loads(file.read_bytes()).get("shard", "1/1")) for file in files if file.is_file()}
    wanted = (Shard(number=number, of=one.of) for one in here for number in range(one.of))
    if missing := next((shard for shard in wanted if shard not in here), None):
        raise SettingsError(f"shard {missing} is missing; name the folders of all {missing.of} shards")
