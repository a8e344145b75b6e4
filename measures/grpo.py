"""Table 2 of the paper on the sample world: ``python -m measures.grpo --cold MODEL RUN...``.

Each run is a folder of `paravt train grpo`, all from the cold start MODEL; runs of one recipe are its seeds, and their
row shows the mean and, in brackets, the least and the most. Form and tool use are means over the training's rollouts;
accuracy is greedy, on the fixed test set. The cold start's own form and tool use come from a run that learns nothing:
`paravt train grpo --recipe mini_paragrpo --set name=cold_start --set learning_rate=1e-12 --set objective.kl=0`.
"""

import argparse
import statistics
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from measures.machine import machine, markdown
from measures.world import FRAMES, MAIN, MODES, AskedQuestion, accuracy, ask
from paravt_infer import EngineSpec, Settings
from paravt_training.report.page import RunMetrics, read_runs
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
"""Recipes and their rows, in the order of the paper's blocks A and B."""
FORM = {"f_tau": "f_τ", "kappa": "κ", "tool_code": "`<tool_code>` %"}
"""Metrics of the training's rollouts that are shown, and their columns."""


def test(
    model: Path, run: RunMetrics, modes: Sequence[str], questions: Sequence[WorldQuestion]
) -> dict[str, list[AskedQuestion]]:
    """The test set asked of a checkpoint with its run's settings; what the run's folder has is not asked again."""
    settings = Settings.make(**{**run.recipe["settings"], "frames": FRAMES})
    where = EngineSpec(model=str(model), backend="transformers", device="cpu")
    return ask(where, questions, modes, settings, run.folder / "test", title=run.name)


def scores(asked: Sequence[AskedQuestion]) -> list[float]:
    """In percent, as in `KINDS`."""
    return [accuracy(asked, kind) for kind in ("choice", "open", "grounding", None)]


def spread(values: Sequence[float], digits: int) -> str:
    """The mean, and the least and the most where they differ.

    >>> spread([0.5], 2), spread([0.4, 0.6], 2), spread([0.998, 1.001], 2)
    ('0.50', '0.50 (0.40 to 0.60)', '1.00')
    """
    if not values:
        return "–"
    mean, least, most = (f"{value:.{digits}f}" for value in (statistics.fmean(values), min(values), max(values)))
    return mean if least == most else f"{mean} ({least} to {most})"


def over_training(runs: Sequence[RunMetrics], metric: str, part: slice = slice(None)) -> list[float]:
    """The mean of a metric over each run's steps, or over a part of them; runs that never measured it are left out."""
    found = [run.series(metric)[1][part] for run in runs]
    scale = 100 if metric == "tool_code" else 1
    return [scale * float(values.mean()) for values in found if len(values)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("runs", nargs="+", type=Path, help="folders of runs, the one that learns nothing among them")
    parser.add_argument("--cold", required=True, type=Path, help="the folder of the model that all runs began from")
    parser.add_argument("--videos", type=Path, default=Path(".cache/world"), help="where the test videos are kept")
    parser.add_argument("--count", type=int, default=500, help="only the first so many questions")
    parser.add_argument("--dispatch", action="store_true", help="also ask PARA-GRPO's checkpoint in all dispatch modes")
    options = parser.parse_args()
    questions = fixed_test_set(str(options.videos.resolve()))[: options.count]
    write_videos({question.question.video: question.scene for question in questions})
    rows: dict[str, list[RunMetrics]] = defaultdict(list)
    for run in read_runs(options.runs):
        rows[run.recipe["name"]].append(run)
    table, dispatch = [], []
    for name, title in ROWS.items():
        runs = rows.get(name, [])
        if not runs:
            continue
        # All of the cold start's runs are of one model: its answers are asked for once.
        models = {options.cold: runs[0]} if name == "cold_start" else {run.folder / "export": run for run in runs}
        reached = [scores(test(model, run, [MAIN], questions)[MAIN]) for model, run in models.items()]
        steps = [int(run.records[-1]["step"]) for run in runs]
        last = slice(-max(1, round(min(steps) / 4)), None)
        table.append(
            [
                title,
                f"{len(runs)} × {min(steps)}",
                *(spread(over_training(runs, metric), 0 if metric == "tool_code" else 2) for metric in FORM),
                *(spread(over_training(runs, metric, last), 2) for metric in ("f_tau", "kappa")),
                *(spread(values, 1) for values in zip(*reached, strict=True)),
            ]
        )
    head = ["", "runs × steps", *FORM.values(), "f_τ, last quarter", "κ, last quarter"]
    text = markdown([*head, *KINDS], table)
    for run in rows.get("mini_paragrpo", [])[:1] if options.dispatch else []:
        modes = [mode for mode in MODES if mode != "direct (overview only)"]
        for mode, asked in test(run.folder / "export", run, modes, questions).items():
            dispatch.append([mode, *(f"{value:.1f}" for value in scores(asked))])
        text += "\n" + markdown(["dispatch, evidence", *KINDS], dispatch)
    print(f"Made by `python -m measures.grpo` on: {machine('torch', 'transformers')}.\n")
    print(f"{len(questions)} questions of the fixed test set, greedy, {FRAMES} overview frames.\n\n{text}")


if __name__ == "__main__":
    main()
