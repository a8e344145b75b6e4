"""What a checkpoint can do on the sample world's fixed test set, greedy: ``python -m measures.world MODEL``.

500 questions about 100 videos, asked five ways with the same 8-frame overview: directly, and with all four
combinations of dispatch and evidence. With --server, the same questions are also asked over SGLang, and the
answers of both backends are compared. ``--out docs/world.md`` writes the tables.
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
from measures.machine import machine, markdown
from paravt_infer import Engine, EngineSpec, Rollout, Settings, open_backend
from paravt_infer.backends import Backend
from paravt_infer.protocols import get_protocol
from paravt_infer.rollout import Turn
from paravt_training.world.grading import grade_answer
from paravt_training.world.questions import WorldQuestion, fixed_test_set
from paravt_training.world.render import write_videos
from paravt_training.world.windows import summary

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
class AskedQuestion:
    """A question and what came of it."""

    question: WorldQuestion
    rollout: Rollout

    @property
    def score(self) -> float:
        return grade_answer(self.question, self.rollout.answer_text)


def accuracy(asked: Iterable[AskedQuestion], kind: str | None = None) -> float:
    """Mean score in percent, of one kind of question or of all."""
    scores = [one.score for one in asked if kind is None or one.question.question.kind == kind]
    return 100 * sum(scores) / len(scores) if scores else float("nan")


def well_formed(turn: Turn) -> bool:
    """Whether a turn thinks, closes its thought, and then calls without a fault or answers."""
    thought, closed, rest = turn.response.partition("</think>")
    calls = get_protocol("paravt").parse_calls(turn.response)
    sound = bool(calls) and all(
        call.fault is None and not call.repairs and call.syntax == "tool_call" for call in calls
    )
    answers = rest.count("<answer>") == rest.count("</answer>") == 1 and not calls
    return thought.lstrip().startswith("<think>") and bool(closed) and (sound or answers)


def summaries(asked: Iterable[AskedQuestion]) -> list[tuple[str, str]]:
    """What each sub-agent said and what it should have said: what its window's frames show, and when."""
    return [
        (call.text, summary(one.question.scene, (call.used[0], call.used[1])))
        for one in asked
        for call in one.rollout.evidence
        if call.sub_agent is not None and call.used is not None and call.status == "ok"
    ]


def names(text: str) -> list[str]:
    """The shapes that a summary names, without their times."""
    return re.findall(r"an? (\w+ \w+) from", text)


def tables(results: dict[str, list[AskedQuestion]]) -> str:
    """The figures as Markdown."""
    rows = []
    for mode, asked in results.items():
        usage = [one.rollout.usage for one in asked]
        rows.append(
            [
                mode,
                *(f"{accuracy(asked, kind):.1f}" for kind in ("choice", "open", "grounding")),
                f"{statistics.fmean(u.calls for u in usage):.2f}",
                f"{statistics.fmean(u.main_visual_tokens for u in usage):.0f}",
                f"{statistics.median(u.seconds for u in usage):.2f}",
                str(sum(one.rollout.status == "failed" for one in asked)),
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
    text = markdown(head, rows)
    main = results[MAIN]
    turns = [turn for one in main for turn in one.rollout.turns]
    form = 100 * sum(map(well_formed, turns)) / len(turns)
    text += f"\n- Well-formed turns ({MAIN}): {form:.1f}% of {len(turns)}.\n"
    told = summaries(main)
    if told:
        named = 100 * sum(names(said) == names(true) for said, true in told) / len(told)
        exact = 100 * sum(said == true for said, true in told) / len(told)
        text += f"- Sub-agents that name what their window shows: {named:.1f}% of {len(told)}; "
        text += f"with the right seconds too: {exact:.1f}%.\n"
    types: dict[str, list[AskedQuestion]] = defaultdict(list)
    for one in main:
        types[f"{one.question.type} ({one.question.question.kind})"].append(one)
    scores = ", ".join(f"{name} {accuracy(asked):.0f}" for name, asked in sorted(types.items()))
    return text + f"- By type of question ({MAIN}): {scores}.\n"


async def latencies(backend: Backend, questions: list[WorldQuestion], settings: Settings) -> float:
    """Median of sequential over parallel seconds, on questions that name two or more times, one at a time, in turn."""
    ratios = []
    async with Engine(backend, settings) as engine:
        for question in questions:
            parallel = await engine.ask(question.question)
            one_by_one = settings.model_copy(update={"dispatch": "sequential"})
            sequential = await engine.ask(question.question, settings=one_by_one)
            ratios.append(sequential.usage.seconds / parallel.usage.seconds)
    return float(statistics.median(ratios))


def ask(
    model: EngineSpec,
    questions: Sequence[WorldQuestion],
    modes: Sequence[str],
    common: Settings,
    out: Path,
    *,
    title: str,
) -> dict[str, list[AskedQuestion]]:
    """All questions in these modes, which take turns; what folder `out` has of them is not asked again."""
    arms = [
        SweepArm(
            questions=[question.question for question in questions],
            settings=common.model_copy(update=MODES[mode]),
            out=out / re.sub(r"\W+", "-", mode).strip("-"),
            title=f"{title}: {mode}",
        )
        for mode in modes
    ]
    answered = sweep(model, arms, concurrency=16, block=50)
    return {
        mode: [AskedQuestion(question=one, rollout=rollout) for one, rollout in zip(questions, rollouts, strict=True)]
        for mode, rollouts in zip(modes, answered, strict=True)
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("model", help="the checkpoint's folder")
    parser.add_argument("--server", help="an SGLang server of the same checkpoint, to compare with")
    parser.add_argument(
        "--videos", type=Path, default=Path(".cache/world"), help="where the test set's videos are kept"
    )
    parser.add_argument(
        "--results", type=Path, default=Path(".cache/world-results"), help="where episodes are kept as they end"
    )
    parser.add_argument("--count", type=int, default=500, help="only the first so many questions (for a quick look)")
    parser.add_argument("--modes", nargs="*", default=list(MODES), help="only these ways of asking")
    parser.add_argument("--out", type=Path, help="write the tables here as Markdown")
    options = parser.parse_args()
    questions = fixed_test_set(str(options.videos.resolve()))[: options.count]
    write_videos({question.question.video: question.scene for question in questions})
    common = Settings(frames=FRAMES, max_new_tokens=512)

    modes = list(dict.fromkeys([*options.modes, MAIN]))
    here = EngineSpec(model=options.model, backend="transformers", device="cpu")
    results = ask(here, questions, modes, common, options.results / "transformers", title="in process")
    text = f"{len(questions)} questions of the fixed test set, greedy, {FRAMES} overview frames, in process.\n\n"
    text += tables(results)
    several = [question for question in questions if len(question.times) >= 2][:40]
    backend = open_backend(model=options.model, device="cpu")
    ratio = asyncio.run(latencies(backend, several, common))
    text += f"- Sequential over parallel seconds, {len(several)} questions of two or more times: {ratio:.2f}.\n"
    if options.server:
        server = EngineSpec(model=options.model, servers=(options.server,), backend="sglang")
        there = ask(server, questions, [MAIN], common, options.results / "sglang", title="sglang")[MAIN]
        same = [a.rollout.answer_text == b.rollout.answer_text for a, b in zip(results[MAIN], there, strict=True)]
        text += f"- SGLang and in process give the same answer to {100 * sum(same) / len(same):.1f}% ({MAIN}); "
        text += f"over SGLang: choice {accuracy(there, 'choice'):.1f}%.\n"
        backend = open_backend(model=options.model, servers=[options.server])
        ratio = asyncio.run(latencies(backend, several, common))
        text += f"- Sequential over parallel seconds, the same questions, over SGLang: {ratio:.2f}.\n"
    print(text)
    if options.out:
        made = f"Made by `python -m measures.world` on: {machine('torch', 'transformers', 'sglang')}.\n\n"
        options.out.write_text("# The bundled checkpoint on the sample world\n\n" + made + text)


if __name__ == "__main__":
    main()
