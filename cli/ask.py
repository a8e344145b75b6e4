"""`paravt ask`: one question about one video, or a file of them."""

from typing import Annotated, Any

import typer


def ask(
    video: Annotated[str, typer.Argument(help="The video file.", show_default=False)] = "",
    question: Annotated[str, typer.Argument(help="The question.", show_default=False)] = "",
    option: Annotated[
        list[str] | None,
        typer.Option("--option", "-o", help="An option of a multiple choice: A=red, or just red. Repeat it."),
    ] = None,
    model: Annotated[str, typer.Option("--model", "-m", help="Model folder or hub id.", show_default=False)] = "",
    server: Annotated[
        list[str] | None,
        typer.Option("--server", "-s", help="URL of a running server. Repeat it for several."),
    ] = None,
    backend: Annotated[str, typer.Option(help="sglang, transformers or openai.", show_default="by what is there")] = "",
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1 ... (transformers).", show_default=False)] = "",
    protocol: Annotated[str, typer.Option(help="paravt, tools, reasoning or direct.")] = "paravt",
    dispatch: Annotated[str, typer.Option(help="parallel or sequential.")] = "parallel",
    evidence: Annotated[str, typer.Option(help="text (sub-agents' words) or frames.")] = "text",
    frames: Annotated[int, typer.Option(help="Frames the overview may have.")] = 64,
    subtitles: Annotated[str, typer.Option(help="A subtitle file (.srt).", show_default=False)] = "",
    system_prompt: Annotated[
        str, typer.Option(help="A file whose text replaces the protocol's system prompt.", show_default=False)
    ] = "",
    temperature: Annotated[float, typer.Option(help="0 is greedy.")] = 0.0,
    seed: Annotated[int | None, typer.Option(help="Fixes sampling where the backend can.", show_default=False)] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Any other setting: --set max_calls=3. Repeat it.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole rollout as JSON.")] = False,
    save: Annotated[
        str, typer.Option(help="Also write the rollout here (.json, .jsonl, .parquet).", show_default=False)
    ] = "",
    batch: Annotated[
        str,
        typer.Option(help="A .parquet, .jsonl or .csv of questions, instead of VIDEO QUESTION.", show_default=False),
    ] = "",
    out: Annotated[
        str, typer.Option(help="With --batch: where the rollouts go (.parquet, .jsonl).", show_default=False)
    ] = "",
    concurrency: Annotated[int, typer.Option(help="With --batch: questions under way at once.")] = 8,
    reader: Annotated[str, typer.Option(help="What decodes videos: pyav, decord or torchcodec.")] = "pyav",
) -> None:
    """Ask a question about a video. Prints the answer; on a terminal, shows how it comes about."""
    from paravt_cli.asking import Asking
    from paravt_cli.options import pairs
    from paravt_infer.errors import SettingsError

    if not batch and not (video and question):
        raise SettingsError('name a video and a question: paravt ask film.mp4 "Who opens the door?"')
    if bool(batch) != bool(out):
        raise SettingsError("--batch and --out go together: --batch questions.jsonl --out results.parquet")
    values: dict[str, Any] = dict(
        protocol=protocol,
        dispatch=dispatch,
        evidence=evidence,
        frames=frames,
        temperature=temperature,
        seed=seed,
    )
    asking = Asking(
        values=values | pairs(settings or []),
        system_prompt=system_prompt,
        backend=backend or None,
        model=model or None,
        servers=server or [],
        device=device or None,
        reader=reader,
    )
    if batch:
        asking.many(batch, out, concurrency)
    else:
        asking.one(video, question, option or [], subtitles or None, as_json=as_json, save=save or None)
