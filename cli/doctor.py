"""`paravt doctor`: what is installed, which backends can run, and what is missing."""

import sys

PACKAGES = {
    "torch": "the transformers backend",
    "transformers": "tokenizers, chat templates, the transformers backend",
    "av": "reading videos",
    "xgrammar": "regular expressions in the transformers backend",
    "sglang": "serving on a GPU",
    "decord": "another video reader",
    "torchcodec": "another video reader",
    "lmms_eval": "benchmarks",
}


def doctor() -> None:
    """Show what is installed, which backends can run here, and how to get what is missing."""
    from importlib.util import find_spec

    from rich.console import Console

    from paravt_cli import tables

    console = Console()
    console.print(f"paravt-infer {_version('paravt-infer')}, Python {sys.version.split()[0]}\n")
    console.print(tables.packages({name: (_version(name), purpose) for name, purpose in PACKAGES.items()}))

    gpu, memory = _gpu()
    console.print(f"\nGPU: {gpu or 'none that torch can use'}" + (f", {memory:.0f} GiB" if memory else ""))

    here = bool(find_spec("torch") and find_spec("transformers"))
    sglang = bool(find_spec("sglang"))
    missing = [
        need for need, found in (("pip install 'paravt-infer[sglang]'", sglang), ("a CUDA GPU", gpu)) if not found
    ]
    needs = f"; needs {' and '.join(missing)}" if missing else ""
    backends = [
        ("transformers", here, f"in this process, on {'the GPU' if gpu else 'the CPU (slow for real models)'}"),
        ("sglang", True, "any running server: --server URL"),
        ("", not missing, f"a server started here{needs}"),
        ("openai", True, "any compatible endpoint: --backend openai --server URL (not token-exact)"),
    ]
    console.print(tables.checks("backend", backends, title="Backends"))

    readers = [("pyav", bool(find_spec("av")), "the default")]
    for name in ("decord", "torchcodec"):
        found = bool(find_spec(name))
        readers.append((name, found, "" if found else f"pip install 'paravt-infer[{name}]'"))
    console.print(tables.checks("reader", readers, title="Video readers"))
    if not here or not find_spec("av"):
        console.print("\nA required package is missing: pip install paravt-infer", style="red")
        sys.exit(1)


def _version(name: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _gpu() -> tuple[str | None, float]:
    """Name and GiB of the first GPU that torch can use."""
    try:
        import torch

        if torch.cuda.is_available():
            properties = torch.cuda.get_device_properties(0)
            return properties.name, properties.total_memory / 2**30
    except (ImportError, RuntimeError, OSError):
        pass
    return None, 0.0
