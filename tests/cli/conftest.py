"""A command in this process: what costs seconds to import is imported once."""

import sys
from collections.abc import Callable
from typing import NamedTuple

import pytest


class Done(NamedTuple):
    """What a command came to."""

    code: int
    out: str
    err: str


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    """Runs `paravt` with arguments, as from the shell, in a terminal 100 columns wide."""

    def run(*arguments: object) -> Done:
        from cli.main import main

        monkeypatch.setenv("COLUMNS", "100")
        monkeypatch.setattr(sys, "argv", ["paravt", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return Done(int(ended.value.code or 0), said.out, said.err)

    return run
