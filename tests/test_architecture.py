"""The arrows between packages, and what else docs/architecture.md promises of the source: read from it with `ast`."""

import ast
import subprocess
import sys
import tomllib
import zipfile
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = {
    "paravt_infer": "paravt_infer",
    "lmms_tasks": "lmms_tasks",
    "paravt_training": "training",
    "paravt_cli": "cli",
}
"""Package to its folder."""
IMPORTS = {
    "paravt_infer": set(),
    "lmms_tasks": {"paravt_infer"},
    "paravt_training": {"paravt_infer"},
    "paravt_cli": {"paravt_infer", "lmms_tasks", "paravt_training"},
}
"""Package to the packages that it may import."""
LAYERS: tuple[set[str], ...] = (
    {"recipe"},
    {"model", "world", "rewards"},
    {"data"},
    {"loop"},
    {"grpo", "sft"},
    {"plan", "report"},
)
"""Folders and modules of paravt_training: each imports from its own layer or an earlier one."""
PRIVATE_OF_OTHERS = {
    "_attn_implementation": "transformers has no public way to set a model's attention after it is made",
    "_exit": "the standard library's os._exit is public",
}
"""Underscored attributes of other people's objects, each with the reason."""


def modules() -> dict[str, Path]:
    """Every module by its dotted name; the measures too."""
    found = {}
    for package, folder in {**PACKAGES, "measures": "measures"}.items():
        for file in (ROOT / folder).rglob("*.py"):
            parts = file.relative_to(ROOT / folder).with_suffix("").parts
            found[".".join((package, *(part for part in parts if part != "__init__")))] = file
    return found


@cache
def tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"), filename=str(file))


def imports(module: str) -> set[str]:
    """What a module imports of this project's modules, inside functions and under TYPE_CHECKING included."""
    known, found = modules(), set()
    for node in ast.walk(tree(known[module])):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}, line {node.lineno}: imports are absolute"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:  # `from package import name`: the module of that name, or the package that defines it
            while name and name not in known:
                name = name.rpartition(".")[0]
            found.add(name)
    return found - {"", module}


def edges() -> dict[str, set[str]]:
    return {module: imports(module) for module in modules()}


def part(module: str) -> str:
    """`paravt_training.grpo.trainer` is in `grpo`."""
    return [*module.split("."), ""][1]


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Groups of modules that import each other (strongly connected components, Tarjan)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found = []

    def visit(module: str) -> None:
        order[module] = low[module] = len(order)
        stack.append(module)
        for other in sorted(graph[module]):
            if other not in order:
                visit(other)
                low[module] = min(low[module], low[other])
            elif other in stack:
                low[module] = min(low[module], order[other])
        if low[module] == order[module]:
            circle = stack[stack.index(module) :]
            del stack[stack.index(module) :]
            if len(circle) > 1:
                found.append(sorted(circle))

    for module in graph:
        if module not in order:
            visit(module)
    return found


def test_circles_are_found() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set(), "e": {"d"}}
    assert circles(graph) == [["a", "b", "c"]]


def test_packages_import_only_along_the_arrows() -> None:
    wrong = [
        f"{module} imports {other}"
        for module, others in edges().items()
        for other in others
        if (package := module.split(".")[0]) in IMPORTS and other.split(".")[0] not in {package} | IMPORTS[package]
    ]
    assert wrong == []


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert circles(edges()) == []


def test_the_parts_of_training_import_only_from_their_layer_or_an_earlier_one() -> None:
    layer = {name: number for number, names in enumerate(LAYERS) for name in names}
    inside = {
        module: {other for other in others if other.startswith("paravt_training.")}
        for module, others in edges().items()
        if module.startswith("paravt_training.")
    }
    assert {part(module) for module in inside} == set(layer), "docs/architecture.md and LAYERS name every part"
    wrong = [
        f"{module} imports {other}"
        for module, others in inside.items()
        for other in others
        if layer[part(other)] > layer[part(module)]
    ]
    assert wrong == []


def test_training_shows_at_most_twelve_entries_from_outside() -> None:
    entries = {part(module) for module in modules() if module.startswith("paravt_training.")}
    assert len(entries) <= 12, sorted(entries)


def test_no_class_name_is_defined_twice() -> None:
    places = defaultdict(list)
    for module, file in modules().items():
        for node in ast.walk(tree(file)):
            if isinstance(node, ast.ClassDef):
                places[node.name.lstrip("_")].append(module)
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def private_reads(module: str, file: Path) -> Iterator[str]:
    """`other._name` where `other` is neither self, cls, a class of this module nor an imported module."""
    nodes = list(ast.walk(tree(file)))
    own = {node.name for node in nodes if isinstance(node, ast.ClassDef)} | {"self", "cls", "super()"}
    for node in nodes:
        if not isinstance(node, ast.Attribute) or not node.attr.startswith("_") or node.attr.startswith("__"):
            continue
        owner = ast.unparse(node.value)
        if owner not in own and node.attr not in PRIVATE_OF_OTHERS:
            yield f"{module}, line {node.lineno}: {owner}.{node.attr}"


def test_no_object_reads_underscored_attributes_of_another() -> None:
    assert [read for module, file in modules().items() for read in private_reads(module, file)] == []


def test_no_module_imports_underscored_names_of_another() -> None:
    wrong = [
        f"{module}, line {node.lineno}: {node.module}.{alias.name}"
        for module, file in modules().items()
        for node in ast.walk(tree(file))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if (node.module or "").split(".")[0] in {*PACKAGES, "measures"}
        and alias.name.startswith("_")
        and not alias.name.startswith("__")
    ]
    assert wrong == []


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The files of the built wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"  # a build leaves files where it runs
    ignored = [f"--exclude=./{name}" for name in (".git", ".venv", ".cache", "runs", "site", "build", "tests")]
    source.mkdir()
    subprocess.run(
        f"tar -C {ROOT} {' '.join(ignored)} -cf - . | tar -C {source} -xf -", shell=True, check=True, timeout=60
    )
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    done = subprocess.run([*command, "--wheel-dir", folder, source], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as opened:
        return set(opened.namelist())


def test_the_wheel_holds_these_packages_and_no_others(wheel: set[str]) -> None:
    tops = {name.split("/")[0] for name in wheel}
    assert {top for top in tops if not top.endswith(".dist-info")} == set(PACKAGES)


def test_the_wheel_holds_every_module_and_data_file(wheel: set[str]) -> None:
    expected = {
        f"{package}/{file.relative_to(ROOT / folder)}"
        for package, folder in PACKAGES.items()
        for file in (ROOT / folder).rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    data = {Path(name).suffix for name in expected}
    assert {".py", ".yaml", ".jinja", ".safetensors", ".mp4"} <= data
    assert expected - wheel == set()


def test_the_names_of_packages_are_links_to_their_folders() -> None:
    links = {package: folder for package, folder in PACKAGES.items() if package != folder}
    assert {package: str((ROOT / package).readlink()) for package in links} == links
    included = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]["find"]["include"]
    assert {pattern.rstrip("*") for pattern in included} == set(PACKAGES)
