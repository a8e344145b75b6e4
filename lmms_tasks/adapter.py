"""The engine as a model plug-in of lmms-eval: whole episodes inside `generate_until`.

``lmms-eval --model paravt --model_args model=...,dispatch=parallel,frames=64,concurrency=64,out=DIR --tasks ...``
"""

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from lmms_eval.api.instance import GenerationResult, Instance, TokenCounts
from lmms_eval.api.model import lmms
from lmms_eval.models.model_utils.gen_metrics import log_metrics
from lmms_eval.models.model_utils.usage_metrics import log_usage
from lmms_eval.protocol import ChatMessages

from lmms_tasks.hooks import response_text
from lmms_tasks.results import EvalItem, EvalResult, group_by_task, save_results
from lmms_tasks.scoring.rules import paravt
from lmms_tasks.sweep import SweepArm, sweep, write_run_info
from lmms_tasks.tasks import BENCHMARKS
from lmms_tasks.videos import parse_video_roots
from paravt_infer.console import say
from paravt_infer.engine import EngineSpec
from paravt_infer.errors import SettingsError
from paravt_infer.questions import Question
from paravt_infer.rollout import Rollout
from paravt_infer.settings import Settings

OUT = "paravt-results"
_USE_GENERATE_UNTIL = "use tasks of the output type generate_until"


class ParavtModel(lmms):  # type: ignore[misc]
    """Answers each request with an episode, `concurrency` of them at a time.

    Args:
        model: folder or hub id; the bundled checkpoint where neither it nor a server is given.
        server: URL of a running server or router, or a list of them; `;` separates them within a string.
        concurrency: episodes running at once.
        out: folder of the journal and the results. An episode that was finished there is not run again, unless
            something that decides its answer has changed.
        system_prompt: a file whose text replaces the protocol's system prompt.
        videos: folder of all benchmarks' videos, or `task:folder` for one, or a list of these; `;` separates them
            within a string.
        values: any setting of `paravt_infer.settings.Settings`, such as `dispatch`, `evidence`, `frames`,
            `protocol`.

    Tokens, temperature and stops are settings here and part of an episode's key in the journal: a task's
    `generation_kwargs`, made for models that answer in one turn, are ignored.

    After a run `results` holds the questions of this project's tasks with their rollouts, and `failed` counts the
    failed episodes of all tasks.

    Raises:
        SettingsError: a value is invalid; names it.
    """

    is_simple = False

    def __init__(
        self,
        model: str | None = None,
        server: str | Sequence[str] = "",
        backend: str | None = None,
        device: str | None = None,
        reader: str = "pyav",
        concurrency: int = 8,
        out: str = OUT,
        system_prompt: str = "",
        videos: str | Sequence[str] = "",
        batch_size: Any = None,
        max_batch_size: Any = None,
        **values: Any,
    ):
        super().__init__()
        if system_prompt:
            try:
                values["system_prompt"] = Path(system_prompt).read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise SettingsError(f"{system_prompt}: cannot read the system prompt ({error})") from None
        servers = tuple(_listed(server))
        self.settings = Settings.make(**values)
        self.engine_spec = EngineSpec(model=model, servers=servers, backend=backend, device=device, reader=reader)
        if not str(concurrency).isdecimal() or int(concurrency) < 1:
            raise SettingsError(f"concurrency must be a positive integer, not {concurrency}")
        self.concurrency, self.out = int(concurrency), Path(out)
        self.video_roots = parse_video_roots(_listed(videos))
        self.results: list[EvalResult] = []
        self.failed = 0

    def generate_until(self, requests: list[Instance]) -> list[GenerationResult]:
        """One result per request: the answer's text, and the tokens of its whole episode."""
        sources = [self._source(request) for request in requests]
        questions = [source.question if isinstance(source, EvalItem) else source for source in sources]
        describe = _running_score(source for source in sources if isinstance(source, EvalItem))
        began = time.monotonic()
        tasks = list(dict.fromkeys(str(request.task_name) for request in requests))
        title = tasks[0] if len(tasks) == 1 else f"{len(tasks)} tasks"
        arm = SweepArm(questions=questions, settings=self.settings, out=self.out, title=title)
        (rollouts,) = sweep(self.engine_spec, [arm], concurrency=self.concurrency, describe=describe)
        self._report(requests, rollouts, time.monotonic() - began)
        pairs = list(zip(sources, rollouts, strict=True))
        self._save([EvalResult(item=one, rollout=rollout) for one, rollout in pairs if isinstance(one, EvalItem)])
        return [_generation_result(rollout, isinstance(one, EvalItem)) for one, rollout in pairs]

    def loglikelihood(self, requests: list[Instance]) -> list[tuple[float, bool]]:
        """Not supported: an episode generates text. Raises SettingsError."""
        raise SettingsError(f"the model paravt has no log-likelihoods of given answers; {_USE_GENERATE_UNTIL}")

    def generate_until_multi_round(self, requests: list[Instance]) -> list[str]:
        """Not supported: an episode answers one question. Raises SettingsError."""
        raise SettingsError(f"the model paravt answers one question per episode; {_USE_GENERATE_UNTIL}")

    def _source(self, request: Instance) -> EvalItem | Question:
        """A request's item in this project's tasks, or its plain text and video in any other's."""
        _, messages, _, doc_id, task, split = request.args
        doc = self.task_dict[task][split][doc_id]
        if task in BENCHMARKS:
            return BENCHMARKS[task].item(doc, self.video_roots)
        chat = ChatMessages(messages=messages(doc))
        images, videos, audios = chat.extract_media()
        if images or audios or len(videos) != 1:
            raise SettingsError(
                f"task {task}, document {doc_id}: has {len(videos)} videos, {len(images)} images and {len(audios)} "
                "sounds; the model paravt answers questions about one video"
            )
        texts = [part.text for message in chat.messages for part in message.content if part.type == "text"]
        return Question.make(video=str(videos[0]), text="\n".join(texts).strip(), id=f"{task}/{doc_id}")

    def _report(self, requests: Sequence[Instance], rollouts: Sequence[Rollout], seconds: float) -> None:
        """Reports tokens, calls and seconds to lmms-eval's usage and throughput, and failures to the user."""
        for request, rollout in zip(requests, rollouts, strict=True):
            usage = rollout.usage
            log_usage(rollout.backend.model, request.task_name, usage.prompt_tokens, usage.output_tokens)
        tokens = sum(rollout.usage.output_tokens for rollout in rollouts)
        count = max(1, len(rollouts))
        failed = [rollout for rollout in rollouts if rollout.status == "failed"]
        log_metrics(
            total_elapsed_time=seconds,
            total_gen_tokens=tokens,
            avg_speed=tokens / seconds if seconds else 0.0,
            additional_metrics={
                "episodes": len(rollouts),
                "failed": len(failed),
                "calls_an_episode": sum(rollout.usage.calls for rollout in rollouts) / count,
                "seconds_an_episode": sum(rollout.usage.seconds for rollout in rollouts) / count,
            },
        )
        self.failed += len(failed)
        for rollout in failed[:5]:
            say(f"failed: {rollout.question.id}: {rollout.error}", style="red")
        if len(failed) > 5:
            say(f"... and {len(failed) - 5} more; the reasons are in {self.out}", style="red")

    def _save(self, results: list[EvalResult]) -> None:
        """Write each task's results, and how they were made."""
        self.results += results
        for task, of_task in group_by_task(results).items():
            save_results(of_task, self.out / f"{task}.parquet")
        if results:
            first = results[0].rollout
            facts = first.model_dump(include={"settings", "versions", "reader", "backend", "protocol"})
            write_run_info(self.out, facts)


def _running_score(items: Iterable[EvalItem]) -> Callable[[Rollout], str]:
    """Given each rollout as it comes, says the score so far, for the progress line."""
    by_question = {item.question.model_dump_json(): item for item in items}
    scores: list[float] = []

    def describe(rollout: Rollout) -> str:
        item = by_question.get(rollout.question.model_dump_json())
        if item is not None and not (result := EvalResult(item=item, rollout=rollout)).failed:
            scores.append(paravt(result))
        return f"score {100 * sum(scores) / len(scores):.1f}" if scores else ""

    return describe


def _listed(value: str | Sequence[str]) -> list[str]:
    """A list as it is, or the parts of a string between semicolons, as in lmms-eval's `--model_args`."""
    return [part for part in value.split(";") if part] if isinstance(value, str) else list(value)


def _generation_result(rollout: Rollout, is_ours: bool) -> GenerationResult:
    """What lmms-eval scores. A failure is marked for our own tasks; another's scorer gets an empty text."""
    usage = rollout.usage
    counts = TokenCounts(input_tokens=usage.prompt_tokens, output_tokens=usage.output_tokens)
    return GenerationResult(response_text(rollout) if is_ours else rollout.answer_text or "", counts)
