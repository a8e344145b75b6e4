"""Table 2 of the paper on the sample world: ``python -m measures.grpo --cold MODEL RUN...``.

Each run is a folder of `paravt train grpo`, started from the cold start MODEL. Runs of the same recipe are its seeds:
their row shows the mean and, in brackets, the lowest and highest. Format and tool use are means over the rollouts of
training; accuracy is greedy, on the fixed test set. The cold start's own format and tool use come from a run that
learns nothing:
`paravt train grpo --recipe mini_paragrpo --set name=cold_start --set learning_rate=1e-12 --set objective.kl=0`.
"""

import argparse
import statistics
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from measures.machine import describe_machine, markdown_table
from measures.world import FRAMES, MAIN, MODES, QuestionResult, ask_in_modes, mean_score
from paravt_infer import EngineSpec, Settings
from paravt_training.report.runs import RunMetrics, read_runs
from paravt_training.world.questions import WorldQuestion, fixed_test_set
from paravt_training.world.render import write_videos

KINDS = ("choice %", "open %", "grounding mIoU", "all %")
ROWS = {
    "cold_start": "cold start",
    "mini_vanilla_grpo": "+ GRPO (vanilla)",
    "mini_anchoring_grpo": "+ GRPO + Exploration Anchoring",
    "mini_gating_grpo": "+ GRPO + nFrames Gating",
    "mini_paragrpo": "**PARA-GRPO**",
    "mini_no_rtool_grpo": "PARA-GRPO − R_tool",
    "mini_no_gamma_grpo": "PARA-GRPO − γ",
}
"""Recipe to row title, in the order of the paper's blocks A and B."""
ROLLOUT_METRICS = {"f_tau": "f_τ", "kappa": "κ", "tool_code": "`<tool_code>` %"}
"""Metric of the training rollouts to column title."""


def ask_test_set(
    model: Path, run: RunMetrics, modes: Sequence[str], items: Sequence[WorldQuestion]
) -> dict[str, list[QuestionResult]]:
    """Ask a checkpoint the test set with its run's settings; rollouts that the run's folder already has are reused."""
    settings = Settings.make(**{**run.recipe["settings"], "frames": FRAMES})
    spec = EngineSpec(model=str(model), backend="transformers", device="cpu")
    return ask_in_modes(spec, items, modes, settings, run.folder / "test", title=run.name)


def scores_by_kind(results: Sequence[QuestionResult]) -> list[float]:
    """In percent, as in `KINDS`."""
    return [mean_score(results, kind) for kind in ("choice", "open", "grounding", None)]


def mean_and_range(values: Sequence[float], digits: int) -> str:
    """The mean, with the lowest and highest in brackets where they differ.

    >>> mean_and_range([0.5], 2), mean_and_range([0.4, 0.6], 2), mean_and_range([0.998, 1.001], 2)
    ('0.50', '0.50 (0.40 to 0.60)', '1.00')
    """
    if not values:
        return "–"
    mean, lowest, highest = (f"{value:.{digits}f}" for value in (statistics.fmean(values), min(values), max(values)))
    return mean if lowest == highest else f"{mean} ({lowest} to {highest})"


def training_means(runs: Sequence[RunMetrics], metric: str, steps: slice = slice(None)) -> list[float]:
    """The mean of a metric over the steps of each run, or a slice of them; runs that never measured it are skipped."""
    found = [run.series(metric)[1][steps] for run in runs]
    scale = 100 if metric == "tool_code" else 1
    return [scale * float(values.mean()) for values in found if len(values)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("runs", nargs="+", type=Path, help="folders of runs, including the one that learns nothing")
    parser.add_argument("--cold", required=True, type=Path, help="folder of the model that all runs started from")
    parser.add_argument("--videos", type=Path, default=Path(".cache/world"), help="folder of the test videos")
    parser.add_argument("--count", type=int, default=500, help="only the first N questions")
    parser.add_argument("--dispatch", action="store_true", help="also ask PARA-GRPO's checkpoint in all dispatch modes")
    options = parser.parse_args()
    items = fixed_test_set(str(options.videos.resolve()))[: options.count]
    write_videos({item.question.video: item.scene for item in items})
    rows: dict[str, list[RunMetrics]] = defaultdict(list)
    for run in read_runs(options.runs):
        rows[run.recipe["name"]].append(run)
    table, dispatch = [], []
    for name, title in ROWS.items():
        runs = rows.get(name, [])
        if not runs:
            continue
        # All runs of the cold start have the same model: it is asked once.
        models = {options.cold: runs[0]} if name == "cold_start" else {run.folder / "export": run for run in runs}
        scores = [scores_by_kind(ask_test_set(model, run, [MAIN], items)[MAIN]) for model, run in models.items()]
        steps = [int(run.records[-1]["step"]) for run in runs]
        last = slice(-max(1, round(min(steps) / 4)), None)
        table.append(
            [
                title,
                f"{len(runs)} × {min(steps)}",
                *(
                    mean_and_range(training_means(runs, metric), 0 if metric == "tool_code" else 2)
                    for metric in ROLLOUT_METRICS
                ),
                *(mean_and_range(training_means(runs, metric, last), 2) for metric in ("f_tau", "kappa")),
                *(mean_and_range(values, 1) for values in zip(*scores, strict=True)),
            ]
        )
    head = ["", "runs × steps", *ROLLOUT_METRICS.values(), "f_τ, last quarter", "κ, last quarter"]
    text = markdown_table([*head, *KINDS], table)
    for run in rows.get("mini_paragrpo", [])[:1] if options.dispatch else []:
        modes = [mode for mode in MODES if mode != "direct (overview only)"]
        for mode, results in ask_test_set(run.folder / "export", run, modes, items).items():
            dispatch.append([mode, *(f"{value:.1f}" for value in scores_by_kind(results))])
        text += "\n" + markdown_table(["dispatch, evidence", *KINDS], dispatch)
    print(f"Measured with `python -m measures.grpo` on: {describe_machine('torch', 'transformers')}.\n")
    print(f"{len(items)} questions of the fixed test set, greedy, {FRAMES} overview frames.\n\n{text}")


if __name__ == "__main__":
    main()
