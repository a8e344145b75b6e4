"""`paravt doctor`: what is installed, which backends can run, and what is missing."""

import sys
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version

from rich.console import Console

from paravt_cli import tables

PACKAGES = {
    "torch": ("the transformers backend", ""),
    "transformers": ("tokenizers, chat templates, the transformers backend", ""),
    "av": ("video reader, the default", ""),
    "xgrammar": ("regular expressions in the transformers backend", ""),
    "sglang": ("serving on a GPU", "sglang"),
    "decord": ("video reader", "decord"),
    "torchcodec": ("video reader", "torchcodec"),
    "lmms_eval": ("benchmarks", "eval"),
}
"""Package to what it is used for, and the extra that installs it; the core's have none."""


def doctor() -> None:
    """Show what is installed, which backends can run here, and how to get what is missing."""
    console = Console()
    versions = {name: _version(name) for name in PACKAGES}
    console.print(f"paravt-infer {_version('paravt-infer')}, Python {sys.version.split()[0]}\n")
    console.print(tables.packages(versions, PACKAGES))

    from paravt_infer.backends import can_start_server

    gpu = _gpu()
    console.print(f"\nGPU: {gpu or 'none that torch can use'}")
    here = bool(versions["torch"] and versions["transformers"])
    starts = can_start_server()
    backends = [
        ("transformers", here, f"in this process, on {'the GPU' if gpu else 'the CPU (slow for real models)'}"),
        ("sglang", True, "any running server: --server URL"),
        ("", starts, "a server started here" + ("" if starts else "; needs the package sglang and a CUDA GPU")),
        ("openai", True, "any compatible endpoint: --backend openai --server URL (not token-exact)"),
    ]
    console.print(tables.backends(backends))
    if not here or not versions["av"]:
        console.print("\nA required package is missing: pip install paravt-infer", style="red")
        sys.exit(1)


def _version(name: str) -> str | None:
    with suppress(PackageNotFoundError):
        return version(name)
    return None


def _gpu() -> str:
    """Name and memory of the first GPU that torch can use; empty if there is none."""
    with suppress(ImportError, RuntimeError, OSError):
        import torch

        if torch.cuda.is_available():
            properties = torch.cuda.get_device_properties(0)
            return f"{properties.name}, {properties.total_memory / 2**30:.0f} GiB"
    return ""
