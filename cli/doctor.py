"""`paravt doctor`: what is installed, which backends can run, and what is missing."""

import sys


def doctor() -> None:
    """Say what is installed, which backends can run here, and how to get what is missing."""
    from importlib.util import find_spec

    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console()
    packages = Table(
        "package", "version", "for", title="Installed", title_justify="left", box=None, padding=(0, 2, 0, 0)
    )
    for name, purpose in _PACKAGES.items():
        found = _version(name)
        packages.add_row(name, found or "[dim]-[/]", purpose)
    console.print(f"paravt-infer {_version('paravt-infer')}, Python {sys.version.split()[0]}\n")
    console.print(packages)

    gpu, memory = _gpu()
    console.print(f"\nGPU: {gpu or 'none that torch can use'}" + (f", {memory:.0f} GiB" if memory else ""))

    backends = Table("backend", "", "", title="\nBackends", title_justify="left", box=None, padding=(0, 2, 0, 0))
    here = bool(find_spec("torch") and find_spec("transformers"))
    backends.add_row(
        "transformers",
        _mark(here),
        f"in this process, on {'the GPU' if gpu else 'the CPU (slow for real models)'}",
    )
    starts = bool(find_spec("sglang") and gpu)
    lacking = [] if find_spec("sglang") else [escape("pip install 'paravt-infer[sglang]'")]
    lacking += [] if gpu else ["a CUDA GPU"]
    backends.add_row("sglang", _mark(True), "any running server: --server URL")
    backends.add_row(
        "", _mark(starts), "a server started here" + (f"; needs {' and '.join(lacking)}" if lacking else "")
    )
    backends.add_row("openai", _mark(True), "any compatible endpoint: --backend openai --server URL (not token-exact)")
    console.print(backends)

    readers = Table("reader", "", "", title="\nVideo readers", title_justify="left", box=None, padding=(0, 2, 0, 0))
    readers.add_row("pyav", _mark(bool(find_spec("av"))), "the default")
    for name in ("decord", "torchcodec"):
        readers.add_row(
            name,
            _mark(bool(find_spec(name))),
            "" if find_spec(name) else escape(f"pip install 'paravt-infer[{name}]'"),
        )
    console.print(readers)
    if not here or not find_spec("av"):
        console.print("\nSomething the core needs is missing: pip install paravt-infer", style="red")
        sys.exit(1)


_PACKAGES = {
    "torch": "the transformers backend",
    "transformers": "tokenizers, chat templates, the transformers backend",
    "av": "reading videos",
    "xgrammar": "regular expressions in the transformers backend",
    "sglang": "serving on a GPU",
    "decord": "another video reader",
    "torchcodec": "another video reader",
    "lmms_eval": "benchmark sweeps",
}


def _version(name: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _mark(good: bool) -> str:
    return "[green]yes[/]" if good else "[yellow]no[/]"


def _gpu() -> tuple[str | None, float]:
    """Name and GiB of the first GPU that torch can use."""
    try:
        import torch

        if torch.cuda.is_available():
            facts = torch.cuda.get_device_properties(0)
            return facts.name, facts.total_memory / 2**30
    except (ImportError, RuntimeError, OSError):
        pass
    return None, 0.0
