"""A model's files except its weights: tokenizer, chat template, image processor, special token ids."""

import contextlib
import hashlib
import json
import logging
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from paravt_infer.chat import ChatTemplate
from paravt_infer.errors import ModelError, first_line
from paravt_infer.video.sampling import visual_tokens
from paravt_infer.video.types import Frame


@dataclass(frozen=True, kw_only=True)
class ModelFiles:
    """What the engine needs of a vision-language model to build token-exact prompts."""

    name: str
    chat: ChatTemplate
    image_processor: Any
    multiple: int
    """Width and height of frames are multiples of this (patch size times merge size), in pixels."""
    min_pixels: int
    """Frames with at least this many pixels are not enlarged by the model's image processor."""
    max_pixels: int
    context_limit: int | None

    def visual_tokens(self, frame: Frame) -> int:
        """How many tokens the frame's placeholder expands to."""
        return visual_tokens(frame.width, frame.height, self.multiple)


@lru_cache(maxsize=8)
def load_model_files(model: str) -> ModelFiles:
    """Load a model's files from a folder or, by hub id, from the local cache or the Hugging Face hub.

    Raises:
        ModelError: no such folder or hub model, the hub cannot be reached, or the kind of model is not supported.
    """
    config = load_pretrained(model, "AutoConfig")
    tokenizer = load_pretrained(model, "AutoTokenizer")
    # The PIL backend gives the same patches without torchvision.
    image_processor = load_pretrained(model, "AutoImageProcessor", backend="pil")
    if not getattr(tokenizer, "chat_template", None):
        tokenizer.chat_template = _legacy_template(model)
    image_token_id = getattr(config, "image_token_id", None)
    patch, merge = getattr(image_processor, "patch_size", None), getattr(image_processor, "merge_size", None)
    if image_token_id is None or not patch or not merge:
        kind = getattr(config, "model_type", "unknown")
        raise ModelError(f"{model}: type {kind} is not supported; choose a vision-language model of the Qwen-VL family")
    # transformers makes an empty tokenizer where files are missing.
    if tokenizer.convert_ids_to_tokens(image_token_id) is None:
        raise ModelError(f"{model}: its tokenizer has no image token; check that all tokenizer files are there")
    kinds = ("image", "video", "vision_start", "vision_end", "vision")
    media = [getattr(config, f"{kind}_token_id", None) for kind in kinds]
    size = dict(image_processor.size)
    text_config = config.get_text_config()
    return ModelFiles(
        name=model,
        chat=ChatTemplate(
            tokenizer, image_token_id=image_token_id, media_token_ids=[i for i in media if i is not None]
        ),
        image_processor=image_processor,
        multiple=patch * merge,
        min_pixels=int(size.get("shortest_edge") or 1),
        max_pixels=int(size.get("longest_edge") or 1 << 30),
        context_limit=getattr(text_config, "max_position_embeddings", None),
    )


def load_pretrained(model: str, part: str, **options: Any) -> Any:
    """`transformers.<part>.from_pretrained(model)`. Every failure is a one-line ModelError."""
    local = Path(model).exists()
    if not local and (model.startswith((".", "/", "~")) or model.count("/") > 1):
        raise ModelError(f"{model}: no such model folder; check the path, or give a hub id")
    import transformers

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # `_load_error` reports its failures
    try:
        return getattr(transformers, part).from_pretrained(model, **options)
    except Exception as error:
        raise ModelError(_load_error(model, local, error)) from None


def _load_error(model: str, local: bool, error: Exception) -> str:
    """Why loading failed and how to fix it, in one line."""
    chain: list[str] = []
    cause: BaseException | None = error
    while cause is not None and len(chain) < 8:
        chain.append(f"{type(cause).__name__}: {cause}")
        cause = cause.__cause__ or cause.__context__
    text = "\n".join(chain)
    if isinstance(error, MemoryError) or "out of memory" in text.lower() or "can't allocate memory" in text.lower():
        return f"{model}: not enough memory to load it; use a smaller model, a larger GPU, or --server"
    if local:
        return f"{model}: not a model folder that transformers can load ({first_line(error)})"
    if "GatedRepo" in text or "401" in text:
        return f"{model}: not on the hub, or you do not have access; check the name, or run `hf auth login`"
    if "RepositoryNotFound" in text or "404" in text:
        return f"{model}: not on the hub; check the name"
    return f"{model}: not in the local cache, and the hub cannot be reached; give a folder, or check the network"


def folder_fingerprint(model: str) -> str:
    """A hash of the names, sizes and modification times of a model folder's files; empty for a hub id.

    It tells apart models that training writes to the same folder, one after the other.
    """
    folder = Path(model)
    if not model or not folder.is_dir():
        return ""
    files = [file for file in sorted(folder.iterdir()) if file.suffix != ".md"]  # a model card has no effect
    facts = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


def _legacy_template(model: str) -> str:
    """The chat template of an older checkpoint, from the processor's chat_template.json."""
    file = Path(model) / "chat_template.json"
    if not Path(model).is_dir():
        with contextlib.suppress(Exception):
            from huggingface_hub import hf_hub_download

            file = Path(hf_hub_download(model, "chat_template.json"))
    try:
        return str(json.loads(file.read_text())["chat_template"])
    except (OSError, ValueError, KeyError, TypeError):
        raise ModelError(f"{model}: has no chat template; choose an instruction-tuned model") from None
