"""`paravt ask`: one question about one video, or a file of questions."""

from pathlib import Path
from typing import Annotated, Any

import typer

from paravt_cli import options as shared
from paravt_infer.errors import SettingsError


def ask(
    video: Annotated[str, typer.Argument(help="The video file.", show_default=False)] = "",
    question: Annotated[str, typer.Argument(help="The question.", show_default=False)] = "",
    option: Annotated[
        list[str] | None, typer.Option("--option", "-o", help="Answer option: A=red, or just red. Repeatable.")
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
    seed: Annotated[int | None, typer.Option(help="Sampling seed, where the backend has one.")] = None,
    settings: shared.SetOption = None,
    as_json: shared.JsonOption = False,
    save: Annotated[
        str, typer.Option(help="Also save the rollout to a .json, .jsonl or .parquet file.", show_default=False)
    ] = "",
    batch: Annotated[
        str, typer.Option(help="Ask the questions in this .parquet, .jsonl or .csv file.", show_default=False)
    ] = "",
    out: Annotated[
        str, typer.Option(help="With --batch: .parquet or .jsonl file for the rollouts.", show_default=False)
    ] = "",
    concurrency: shared.ConcurrencyOption = 8,
    reader: shared.ReaderOption = "pyav",
) -> None:
    """Ask a question about a video, or many with --batch.

    Prints the answer; on a terminal, draws the episode as it runs. --json prints the whole rollout instead.
    """
    from paravt_cli import episodes
    from paravt_infer.batch import Batch
    from paravt_infer.engine import EngineSpec
    from paravt_infer.questions import Question
    from paravt_infer.rollout_files import SUFFIXES
    from paravt_infer.settings import Settings

    if not batch and not (video and question):
        raise SettingsError('name a video and a question: paravt ask film.mp4 "Who opens the door?"')
    if bool(batch) != bool(out):
        raise SettingsError("--batch and --out go together: --batch questions.jsonl --out results.parquet")
    if save and not batch and Path(save).suffix not in SUFFIXES:
        raise SettingsError(f"--save {save}: name a .json, .jsonl or .parquet file")
    values: dict[str, Any] = dict(
        protocol=protocol, dispatch=dispatch, evidence=evidence, frames=frames, temperature=temperature, seed=seed
    )
    values |= shared.parse_settings(settings)
    if system_prompt:
        values["system_prompt"] = _read_text(system_prompt)
    chosen = Settings.make(**values)
    spec = EngineSpec(
        model=model or None, servers=tuple(server or ()), backend=backend or None, device=device or None, reader=reader
    )
    if batch:
        episodes.ask_file(spec, Batch(Path(batch), Path(out), chosen), concurrency=concurrency)
    else:
        asked = Question.make(video=video, text=question, options=option or [], subtitles=subtitles or None)
        episodes.ask_one(spec, chosen, asked, as_json=as_json, save=save)


def _read_text(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{file}: cannot read the system prompt ({error})") from None
