"""The pairs of an A/B run as Parquet: one row per question, both arms side by side."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from lmms_tasks.reports.statistics import Comparison, pair_results
from lmms_tasks.results import EvalResult, write_parquet


def pairs_table(comparison: Comparison, a: Sequence[EvalResult], b: Sequence[EvalResult]) -> Any:
    """A pyarrow table, one row per question.

    Columns: task, id, gold, then for each arm (`a_`, `b_`) status, answer, score (0 to 1, null where failed), seconds
    and calls, then flipped (null where either failed). The arms' names are in the schema's metadata.
    """
    matched = pair_results(a, b)
    columns: dict[str, Any] = {
        "task": pa.array([pair.task for pair in comparison.pairs], pa.string()),
        "id": pa.array([pair.id for pair in comparison.pairs], pa.string()),
        "gold": pa.array([result.item.gold for result, _ in matched], pa.string()),
    }
    for index, arm in enumerate("ab"):
        rollouts = [results[index].rollout for results in matched]
        columns |= {
            f"{arm}_status": pa.array([rollout.status for rollout in rollouts], pa.string()),
            f"{arm}_answer": pa.array([rollout.answer for rollout in rollouts], pa.string()),
            f"{arm}_score": pa.array([getattr(pair, arm) for pair in comparison.pairs], pa.float64()),
            f"{arm}_seconds": pa.array([rollout.usage.seconds for rollout in rollouts], pa.float64()),
            f"{arm}_calls": pa.array([rollout.usage.calls for rollout in rollouts], pa.int64()),
        }
    flips = [pair.flipped if pair.scored else None for pair in comparison.pairs]
    columns["flipped"] = pa.array(flips, pa.bool_())
    names = {"a": comparison.names[0], "b": comparison.names[1], "scorer": comparison.scorer}
    return pa.table(columns).replace_schema_metadata(names)


def save_pairs(comparison: Comparison, a: Sequence[EvalResult], b: Sequence[EvalResult], path: Path) -> None:
    """Write `pairs_table` as Parquet, atomically. Raises SettingsError where it cannot be written."""
    write_parquet(pairs_table(comparison, a, b), path)
