"""ParaVT: questions about long videos, answered by a main agent and parallel sub-agents.

Example::

    from paravt_infer import Engine, open_backend

    async with Engine(open_backend(model="Qwen/Qwen3-VL-8B-Instruct")) as engine:
        rollout = await engine.ask("film.mp4", "Who opens the door?")
        print(rollout.answer, rollout.evidence)
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

# Loaded on first use, so that `import paravt_infer` stays fast.
_MODULES = {
    "Engine": "engine",
    "EngineSpec": "engine",
    "Question": "questions",
    "Settings": "settings",
    "Rollout": "rollout",
    "ParavtError": "errors",
    "open_backend": "backends",
}
__all__ = ["__version__", *_MODULES]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
