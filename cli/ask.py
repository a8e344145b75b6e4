"""`paravt ask`: one question about one video, or a file of questions."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paravt_cli import options as shared

if TYPE_CHECKING:
    from paravt_infer.rollout import Rollout

BUNDLED_NOTE = (
    "the bundled checkpoint answered: it only understands videos of the sample world; "
    "for other videos name a model with --model"
)


def ask(
    video: Annotated[str, typer.Argument(help="The video file.", show_default=False)] = "",
    question: Annotated[str, typer.Argument(help="The question.", show_default=False)] = "",
    option: Annotated[
        list[str] | None,
        typer.Option("--option", "-o", help="A multiple-choice option: A=red, or just red. Repeatable."),
    ] = None,
    model: shared.ModelOption = "",
    server: shared.ServerOption = None,
    backend: shared.BackendOption = "",
    device: shared.DeviceOption = "",
    protocol: shared.ProtocolOption = "paravt",
    dispatch: shared.DispatchOption = "parallel",
    evidence: shared.EvidenceOption = "text",
    frames: shared.FramesOption = 64,
    subtitles: Annotated[str, typer.Option(help="Subtitle file (.srt).", show_default=False)] = "",
    system_prompt: shared.SystemPromptOption = "",
    temperature: Annotated[float, typer.Option(help="Sampling temperature; 0 is greedy.")] = 0.0,
    seed: Annotated[
        int | None, typer.Option(help="Sampling seed, for backends that support one.", show_default=False)
    ] = None,
    settings: shared.SetOption = None,
    as_json: shared.JsonOption = False,
    save: Annotated[
        str, typer.Option(help="Also save the rollout to a .json, .jsonl or .parquet file.", show_default=False)
    ] = "",
    batch: Annotated[
        str,
        typer.Option(help="Ask the questions in this .parquet, .jsonl or .csv file instead.", show_default=False),
    ] = "",
    out: Annotated[
        str,
        typer.Option(help="With --batch: the .parquet or .jsonl file for the rollouts.", show_default=False),
    ] = "",
    concurrency: shared.ConcurrencyOption = 8,
    reader: shared.ReaderOption = "pyav",
) -> None:
    """Ask a question about a video, or many with --batch.

    Prints the answer; on a terminal, draws the episode as it runs. --json prints the whole rollout instead.
    """
    from paravt_cli import episodes
    from paravt_infer.batch import Batch
    from paravt_infer.console import say
    from paravt_infer.engine import EngineSpec
    from paravt_infer.errors import BackendError, SettingsError
    from paravt_infer.questions import Question
    from paravt_infer.settings import Settings
    from paravt_infer.video.readers import get_reader

    if not batch and not (video and question):
        raise SettingsError('name a video and a question: paravt ask film.mp4 "Who opens the door?"')
    if bool(batch) != bool(out):
        raise SettingsError("--batch and --out go together: --batch questions.jsonl --out results.parquet")
    if save and Path(save).suffix not in (".json", ".jsonl", ".parquet"):
        raise SettingsError(f"--save {save}: name a .json, .jsonl or .parquet file")
    values: dict[str, Any] = dict(
        protocol=protocol, dispatch=dispatch, evidence=evidence, frames=frames, temperature=temperature, seed=seed
    )
    values |= shared.parse_settings(settings)
    if system_prompt:
        values["system_prompt"] = _read_prompt(system_prompt)
    chosen = Settings.make(**values)
    get_reader(reader)  # an unknown name is an error before anything is loaded
    spec = EngineSpec(
        model=model or None, servers=tuple(server or ()), backend=backend or None, device=device or None, reader=reader
    )
    if batch:
        questions = Batch(Path(batch), Path(out), chosen)
        counts = episodes.run(episodes.run_batch(spec, questions, concurrency=concurrency))
        total, failed, unanswered = len(questions.questions), counts.get("failed", 0), counts.get("no_answer", 0)
        without = f", {unanswered} without an answer" if unanswered else ""
        say(f"{total} questions, {total - failed - unanswered} answered{without}; rollouts in {out}")
        if failed:
            raise BackendError(f"{failed} of {total} failed; {out} has the reasons; run this again to retry only them")
        return
    asked = Question.make(video=video, text=question, options=option or [], subtitles=subtitles or None)
    rollout = episodes.run(episodes.run_one(spec, chosen, asked, draw=not as_json))
    _report(rollout, as_json=as_json, save=save, notes=[] if model or server else [BUNDLED_NOTE])


def _report(rollout: "Rollout", *, as_json: bool, save: str, notes: list[str]) -> None:
    """Save and print a rollout. Raises BackendError if it has no answer."""
    from paravt_infer.console import say
    from paravt_infer.errors import BackendError
    from paravt_infer.rollout import rollout_to_json
    from paravt_infer.rollout_files import save_rollouts

    if save:
        save_rollouts(rollout, save)
    if as_json:
        print(rollout_to_json(rollout))
    elif not sys.stdout.isatty() and rollout.answer is not None:
        print(rollout.answer)
    for note in notes + rollout.backend.notes:
        say(f"note: {note}", style="dim")
    if rollout.status == "failed":
        raise BackendError(rollout.error or "the episode failed")
    if rollout.answer is None:
        end = " ".join(rollout.turns[-1].response.split())[-120:] if rollout.turns else ""
        raise BackendError(f"no answer could be read from the model's response, which ends: {end!r}")


def _read_prompt(path: str) -> str:
    from paravt_infer.errors import SettingsError

    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: cannot read the system prompt ({error})") from None
