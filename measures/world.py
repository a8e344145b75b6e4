"""Accuracy of a checkpoint on the sample world's fixed test set, greedy: ``python -m measures.world MODEL``.

500 questions about 100 videos in five modes with the same 8-frame overview: directly, and with all four combinations
of dispatch and evidence. With --server, the same questions are also asked over SGLang and the answers of both backends
are compared. ``--out docs/world.md`` writes the tables.
"""

import argparse
import asyncio
import re
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from lmms_tasks.sweep import SweepArm, sweep
from measures.machine import describe_machine, markdown_table
from paravt_infer import Engine, EngineSpec, Rollout, Settings, open_backend
from paravt_infer.answers import normalised_words
from paravt_infer.backends import Backend
from paravt_infer.protocols import get_protocol
from paravt_infer.rollout import Turn
from paravt_training.rewards.accuracy import GoldAnswer, accuracy_reward
from paravt_training.world.questions import WorldQuestion, fixed_test_set
from paravt_training.world.render import write_videos
from paravt_training.world.windows import window_summary

FRAMES = 8
MODES: dict[str, dict[str, str]] = {
    "direct (overview only)": {"protocol": "direct"},
    "parallel, text": {"dispatch": "parallel", "evidence": "text"},
    "sequential, text": {"dispatch": "sequential", "evidence": "text"},
    "parallel, frames": {"dispatch": "parallel", "evidence": "frames"},
    "sequential, frames": {"dispatch": "sequential", "evidence": "frames"},
}
MAIN = "parallel, text"


@dataclass(frozen=True, kw_only=True)
class QuestionResult:
    """A question and its rollout."""

    item: WorldQuestion
    rollout: Rollout

    @property
    def score(self) -> float:
        """Between 0 and 1: IoU for a span; a choice or an open answer is right or wrong, the latter by its words."""
        answer, question = self.rollout.answer_text, self.item.question
        if question.kind == "open":
            return float(answer is not None and normalised_words(answer) == normalised_words(self.item.answer))
        return accuracy_reward(
            answer, GoldAnswer(answer=self.item.answer, kind=question.kind, options=question.options)
        )


def mean_score(results: Iterable[QuestionResult], kind: str | None = None) -> float:
    """The mean score in percent, over one kind of question or all."""
    scores = [result.score for result in results if kind is None or result.item.question.kind == kind]
    return 100 * sum(scores) / len(scores) if scores else float("nan")


def is_well_formed(turn: Turn) -> bool:
    """Whether a turn has a closed thought, followed by faultless calls or by an answer."""
    thought, closed, rest = turn.response.partition("</think>")
    calls = get_protocol("paravt").parse_calls(turn.response)
    calls_valid = bool(calls) and all(
        call.fault is None and not call.repairs and call.syntax == "tool_call" for call in calls
    )
    answers = rest.count("<answer>") == rest.count("</answer>") == 1 and not calls
    return thought.lstrip().startswith("<think>") and bool(closed) and (calls_valid or answers)


def summaries(results: Iterable[QuestionResult]) -> list[tuple[str, str]]:
    """Each sub-agent's summary and the correct one: what the frames of its window show, and when."""
    return [
        (call.text, window_summary(result.item.scene, (call.used[0], call.used[1])))
        for result in results
        for call in result.rollout.evidence
        if call.sub_agent is not None and call.used is not None and call.status == "ok"
    ]


def shape_names(text: str) -> list[str]:
    """The shapes in a summary, without their times."""
    return re.findall(r"an? (\w+ \w+) from", text)


def tables(by_mode: dict[str, list[QuestionResult]]) -> str:
    """The results as Markdown."""
    rows = []
    for mode, results in by_mode.items():
        usage = [result.rollout.usage for result in results]
        rows.append(
            [
                mode,
                *(f"{mean_score(results, kind):.1f}" for kind in ("choice", "open", "grounding")),
                f"{statistics.fmean(u.calls for u in usage):.2f}",
                f"{statistics.fmean(u.main_visual_tokens for u in usage):.0f}",
                f"{statistics.median(u.seconds for u in usage):.2f}",
                str(sum(result.rollout.status == "failed" for result in results)),
            ]
        )
    head = [
        "mode",
        "choice %",
        "open %",
        "grounding mIoU",
        "calls",
        "visual tokens, main",
        "seconds (median)",
        "failed",
    ]
    text = markdown_table(head, rows)
    main = by_mode[MAIN]
    turns = [turn for result in main for turn in result.rollout.turns]
    well_formed = 100 * sum(map(is_well_formed, turns)) / len(turns)
    text += f"\n- Well-formed turns ({MAIN}): {well_formed:.1f}% of {len(turns)}.\n"
    pairs = summaries(main)
    if pairs:
        named = 100 * sum(shape_names(text) == shape_names(correct) for text, correct in pairs) / len(pairs)
        exact = 100 * sum(text == correct for text, correct in pairs) / len(pairs)
        text += f"- Sub-agents that name what their window shows: {named:.1f}% of {len(pairs)}; "
        text += f"with the right times as well: {exact:.1f}%.\n"
    types: dict[str, list[QuestionResult]] = defaultdict(list)
    for result in main:
        types[f"{result.item.type} ({result.item.question.kind})"].append(result)
    scores = ", ".join(f"{name} {mean_score(results):.0f}" for name, results in sorted(types.items()))
    return text + f"- By type of question ({MAIN}): {scores}.\n"


async def latency_ratio(backend: Backend, items: list[WorldQuestion], settings: Settings) -> float:
    """The median of sequential over parallel seconds; the two modes alternate, one question at a time."""
    ratios = []
    async with Engine(backend, settings) as engine:
        for item in items:
            parallel = await engine.ask(item.question)
            sequential_settings = settings.model_copy(update={"dispatch": "sequential"})
            sequential = await engine.ask(item.question, settings=sequential_settings)
            ratios.append(sequential.usage.seconds / parallel.usage.seconds)
    return float(statistics.median(ratios))


def ask_in_modes(
    model: EngineSpec,
    items: Sequence[WorldQuestion],
    modes: Sequence[str],
    common: Settings,
    out: Path,
    *,
    title: str,
) -> dict[str, list[QuestionResult]]:
    """Ask all questions in these modes, which alternate; rollouts that folder `out` already has are reused."""
    arms = [
        SweepArm(
            questions=[item.question for item in items],
            settings=common.model_copy(update=MODES[mode]),
            out=out / re.sub(r"\W+", "-", mode).strip("-"),
            title=f"{title}: {mode}",
        )
        for mode in modes
    ]
    rollouts_by_mode = sweep(model, arms, concurrency=16, block=50)
    return {
        mode: [QuestionResult(item=item, rollout=rollout) for item, rollout in zip(items, rollouts, strict=True)]
        for mode, rollouts in zip(modes, rollouts_by_mode, strict=True)
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("model", help="the checkpoint's folder")
    parser.add_argument("--server", help="also ask an SGLang server of the same checkpoint")
    parser.add_argument("--videos", type=Path, default=Path(".cache/world"), help="folder of the test set's videos")
    parser.add_argument(
        "--results", type=Path, default=Path(".cache/world-results"), help="folder of finished episodes"
    )
    parser.add_argument("--count", type=int, default=500, help="only the first N questions")
    parser.add_argument("--modes", nargs="*", default=list(MODES), help="only these modes")
    parser.add_argument("--out", type=Path, help="write the tables to this file as Markdown")
    options = parser.parse_args()
    items = fixed_test_set(str(options.videos.resolve()))[: options.count]
    write_videos({item.question.video: item.scene for item in items})
    common = Settings(frames=FRAMES, max_new_tokens=512)

    modes = list(dict.fromkeys([*options.modes, MAIN]))
    in_process = EngineSpec(model=options.model, backend="transformers", device="cpu")
    results = ask_in_modes(in_process, items, modes, common, options.results / "transformers", title="in process")
    text = f"{len(items)} questions of the fixed test set, greedy, {FRAMES} overview frames, in process.\n\n"
    text += tables(results)
    multiple = [item for item in items if len(item.times) >= 2][:40]
    backend = open_backend(model=options.model, device="cpu")
    ratio = asyncio.run(latency_ratio(backend, multiple, common))
    text += "- Latency, sequential / parallel (median), "
    text += f"{len(multiple)} questions with two or more times: {ratio:.2f}.\n"
    if options.server:
        server = EngineSpec(model=options.model, servers=(options.server,), backend="sglang")
        remote = ask_in_modes(server, items, [MAIN], common, options.results / "sglang", title="sglang")[MAIN]
        same = [a.rollout.answer_text == b.rollout.answer_text for a, b in zip(results[MAIN], remote, strict=True)]
        agreement = 100 * sum(same) / len(same)
        text += "- SGLang and the in-process backend give the same answer "
        text += f"to {agreement:.1f}% of the questions ({MAIN}); "
        text += f"over SGLang: choice {mean_score(remote, 'choice'):.1f}%.\n"
        backend = open_backend(model=options.model, servers=[options.server])
        ratio = asyncio.run(latency_ratio(backend, multiple, common))
        text += f"- Latency, sequential / parallel (median), the same questions over SGLang: {ratio:.2f}.\n"
    print(text)
    if options.out:
        machine = describe_machine("torch", "transformers", "sglang")
        made = f"Measured with `python -m measures.world` on: {machine}.\n\n"
        options.out.write_text("# The bundled checkpoint on the sample world\n\n" + made + text)


if __name__ == "__main__":
    main()
