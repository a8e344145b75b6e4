"""Options that commands share: their choices are in the help; commands do not depend on each other."""

import ast
from pathlib import Path

import pytest
from typer.testing import CliRunner

import paravt_cli
from lmms_tasks.scoring.scorers import SCORERS
from paravt_cli.main import app
from paravt_cli.options import parse_settings, split_names
from paravt_infer.backends import BACKENDS
from paravt_infer.errors import SettingsError
from paravt_infer.protocols import PROTOCOLS
from paravt_infer.video.readers import READERS
from paravt_training.plan.estimate import GPUS

COMMANDS = (
    *("ab", "ask", "data", "doctor", "eval", "merge", "probe", "rescore"),
    *("samples", "show", "table1", "tasks", "train"),
)


@pytest.mark.parametrize(
    ("command", "choices"),
    [
        ("ask", [*BACKENDS, *PROTOCOLS, *READERS, "parallel", "sequential", "text", "frames"]),
        ("eval", [*BACKENDS, *PROTOCOLS, *READERS, "parallel", "sequential", "text", "frames"]),
        ("ab", [*BACKENDS, *(name for name in SCORERS if name != "judge")]),
        ("rescore", SCORERS),
        ("table1", [name for name in SCORERS if name != "judge"]),
        ("train plan", GPUS),
        ("train export", ["bf16", "fp32"]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_help_lists_every_choice(command: str, choices: list[str]) -> None:
    done = CliRunner().invoke(app, [*command.split(), "--help"], env={"COLUMNS": "160"})
    assert done.exit_code == 0
    assert [choice for choice in choices if choice not in done.stdout] == []


def test_no_command_imports_another() -> None:
    folder = Path(paravt_cli.__file__).parent
    for name in COMMANDS:
        nodes = list(ast.walk(ast.parse((folder / f"{name}.py").read_text())))
        imported = {
            f"{node.module}.{one.name}" for node in nodes if isinstance(node, ast.ImportFrom) for one in node.names
        } | {one.name for node in nodes if isinstance(node, ast.Import) for one in node.names}
        for other in ("main", *COMMANDS):
            path = f"paravt_cli.{other}"
            assert not [one for one in imported if one == path or one.startswith(path + ".")], (name, other)


def test_settings_are_read_as_json_or_text() -> None:
    assert parse_settings(["max_calls=3", "dispatch=parallel", 'turn_regex=["a=b"]', "seed=null"]) == {
        "max_calls": 3,
        "dispatch": "parallel",
        "turn_regex": ["a=b"],
        "seed": None,
    }
    assert parse_settings(None) == {}
    with pytest.raises(SettingsError, match=r"^--a frames: write KEY=VALUE, as in max_calls=3$"):
        parse_settings(["frames"], option="--a")


def test_lists_of_names_are_comma_separated() -> None:
    assert split_names(" paravt_mlvu, paravt_mmvu,,") == ["paravt_mlvu", "paravt_mmvu"]
    assert split_names(",") == []
