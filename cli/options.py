"""Options that several commands share, and how their values are read."""

from pathlib import Path
from typing import Annotated, Any

import typer

from paravt_infer.errors import SettingsError

# Which model answers
ModelOption = Annotated[str, typer.Option("--model", "-m", help="Model folder or hub id.", show_default=False)]
ServerOption = Annotated[list[str] | None, typer.Option("--server", "-s", help="Server or router URL. Repeatable.")]
BackendOption = Annotated[str, typer.Option(help="sglang, transformers or openai.", show_default="auto-detected")]
DeviceOption = Annotated[str, typer.Option(help="For transformers: cpu, cuda, cuda:1 ...", show_default=False)]
ReaderOption = Annotated[str, typer.Option(help="Video decoder: pyav, decord or torchcodec.")]

# How an episode runs
ProtocolOption = Annotated[str, typer.Option(help="paravt, tools, reasoning or direct.")]
DispatchOption = Annotated[str, typer.Option(help="How the calls of a turn run: parallel or sequential.")]
EvidenceOption = Annotated[str, typer.Option(help="What a call returns: text (a sub-agent's summary) or frames.")]
FramesOption = Annotated[int, typer.Option(help="Maximum number of overview frames.")]
SystemPromptOption = Annotated[str, typer.Option(help="File that replaces the system prompt.", show_default=False)]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Any other setting, such as max_calls=3. Repeatable."),
]
ConcurrencyOption = Annotated[int, typer.Option(help="Maximum number of episodes running at once.")]

# Benchmarks
ResultsOption = Annotated[Path, typer.Option("--out", help="Folder for the results; reuse it to resume.")]
ScorerOption = Annotated[str, typer.Option(help="paravt, strict, lmms-eval or official.")]
VideosOption = Annotated[
    list[str] | None, typer.Option(metavar="FOLDER", help="Video folder, or mlvu:FOLDER for one benchmark. Repeatable.")
]
LimitOption = Annotated[int | None, typer.Option(help="Ask only the first N questions of each task.")]
FixtureOption = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Write small generated data to DIR and use it instead of real data.")
]

# Training
RecipeOption = Annotated[str, typer.Option(help="YAML file or name of a bundled recipe.")]
RecipeSetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override one recipe key, such as out=runs/new. Repeatable."),
]
ResumeOption = Annotated[bool, typer.Option("--resume", help="Resume from the run's newest checkpoint.")]

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def parse_settings(pairs: list[str] | None, option: str = "--set") -> dict[str, Any]:
    """Settings from ``KEY=VALUE`` pairs; a value is JSON or, if it is not, text. Raises SettingsError without a ``=``.

    >>> parse_settings(["max_calls=3", "dispatch=parallel"])
    {'max_calls': 3, 'dispatch': 'parallel'}
    """
    import json

    values: dict[str, Any] = {}
    for pair in pairs or []:
        key, equals, value = pair.partition("=")
        if not equals:
            raise SettingsError(f"{option} {pair}: write KEY=VALUE, as in max_calls=3")
        try:
            values[key.strip()] = json.loads(value)
        except ValueError:
            values[key.strip()] = value
    return values


def split_names(text: str) -> list[str]:
    """The names in a comma-separated list, without blanks and empty ones."""
    return [name.strip() for name in text.split(",") if name.strip()]
