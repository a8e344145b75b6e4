"""Backends generate text: `sglang`, `transformers` (in this process), `openai` (any compatible endpoint)."""

from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec

from paravt_infer import bundled
from paravt_infer.backends.base import Backend
from paravt_infer.errors import SettingsError, suggestion

BACKENDS = ("sglang", "transformers", "openai")


def open_backend(
    *,
    backend: str | None = None,
    model: str | None = None,
    servers: Sequence[str] = (),
    device: str | None = None,
    api_key: str | None = None,
    max_batch: int | None = None,
    gpus: Sequence[int] = (),
    server_arguments: Sequence[str] = (),
    server_environment: Mapping[str, str] | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> Backend:
    """A backend, not started yet; `Engine` starts it.

    Args:
        backend: one of `BACKENDS`. By default `sglang` if a server is given, or if SGLang and CUDA are available to
            start one; else `transformers`.
        model: folder or hub id; for `openai` the model's name at the endpoint. By default, if no server is given
            either, the bundled checkpoint with `transformers`.
        servers: base URLs; the load is balanced over several.
        max_batch: maximum batch size of `transformers`.
        gpus: GPUs to start servers on, one each.
        server_arguments: further arguments of the servers that are started.
        server_environment: further environment variables of the servers that are started.
        say: gets a line when something changes while a server starts.

    Raises:
        SettingsError: the arguments contradict each other; says which.
    """
    if backend is not None and backend not in BACKENDS:
        raise SettingsError(f"unknown backend {backend!r}{suggestion(backend, BACKENDS)}")
    if not model and not servers and backend in (None, "transformers"):
        model, backend = str(bundled.checkpoint_path()), "transformers"
    if backend is None:
        backend = "sglang" if servers or (model and can_start_server() and device is None) else "transformers"
    if backend == "transformers":
        if servers:
            raise SettingsError("backend transformers runs in this process and takes no server; leave one of them out")
        from paravt_infer.backends.transformers import MAX_BATCH, TransformersBackend

        return TransformersBackend(_require_model(model, backend), device=device, max_batch=max_batch or MAX_BATCH)
    if backend == "openai":
        from paravt_infer.backends.openai import OpenAIBackend

        if not servers:
            raise SettingsError("backend openai needs an endpoint: --server http://HOST:PORT/v1")
        return OpenAIBackend(list(servers), model=model, api_key=api_key)
    from paravt_infer.backends.sglang import SGLangBackend

    if servers:
        return SGLangBackend(list(servers), model=model)
    if not can_start_server():
        raise SettingsError(
            "backend sglang needs --server URL; starting a server here needs SGLang "
            "(pip install 'paravt-infer[sglang]') and a CUDA GPU"
        )
    from paravt_infer.backends.launch import LaunchedSGLangBackend

    return LaunchedSGLangBackend(
        _require_model(model, backend), gpus=gpus, arguments=server_arguments, environment=server_environment, say=say
    )


def can_start_server() -> bool:
    """Whether SGLang and a CUDA GPU are available."""
    if find_spec("sglang") is None or find_spec("torch") is None:
        return False
    import torch

    return bool(torch.cuda.is_available())


def _require_model(model: str | None, backend: str) -> str:
    if not model:
        raise SettingsError(f"backend {backend} needs a model: --model FOLDER, or an id such as ParaVT/ParaVT-8B")
    return model


__all__ = ["BACKENDS", "Backend", "can_start_server", "open_backend"]
