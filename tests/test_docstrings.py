"""The examples in docstrings are right."""

import doctest
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("paravt_infer", "lmms_tasks", "paravt_training", "paravt_cli")


def modules_with_examples() -> list[str]:
    files = (file for package in PACKAGES for file in sorted((ROOT / package).rglob("*.py")))
    return [
        ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for file in files
        if ">>> " in file.read_text(encoding="utf-8")
    ]


@pytest.mark.parametrize("name", modules_with_examples())
def test_the_examples_of_a_module_give_what_they_show(name: str) -> None:
    try:
        module = import_module(name)
    except ModuleNotFoundError as error:
        if str(error.name).partition(".")[0] in PACKAGES:
            raise
        pytest.skip(f"needs {error.name}")
    result = doctest.testmod(module)
    assert result.attempted and not result.failed
