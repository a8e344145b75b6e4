"""A model's files without its weights: tokenizer, chat template, image processor, special ids."""

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
    """What the engine needs to know of a vision-language model to speak to it token by token."""

    name: str
    chat: ChatTemplate
    image_processor: Any
    multiple: int
    """Frames' sides are multiples of so many pixels."""
    min_pixels: int
    """The fewest pixels the model's own image processor leaves alone."""
    max_pixels: int
    context_limit: int | None

    def visual_tokens(self, frame: Frame) -> int:
        """What one placeholder stands for, once the frame is in its place."""
        return visual_tokens(frame.width, frame.height, self.multiple)


@lru_cache(maxsize=8)
def load_model_files(model: str) -> ModelFiles:
    """Read a model's files from a folder or, by its id, from the Hugging Face hub or its cache.

    Raises:
        ModelError: no such folder, the hub has no such model or cannot be reached, or not a model of this kind.
    """
    config = load_pretrained(model, "AutoConfig")
    tokenizer = load_pretrained(model, "AutoTokenizer")
    # The PIL processor gives the same patches and needs no torchvision.
    image_processor = load_pretrained(model, "AutoImageProcessor", backend="pil")
    if not getattr(tokenizer, "chat_template", None):
        tokenizer.chat_template = _legacy_template(model)
    image_token_id = getattr(config, "image_token_id", None)
    patch, merge = getattr(image_processor, "patch_size", None), getattr(image_processor, "merge_size", None)
    if image_token_id is None or not patch or not merge:
        kind = getattr(config, "model_type", "unknown")
        raise ModelError(f"{model}: not a vision-language model of Qwen-VL's kind (its type is {kind}); name one")
    if (
        tokenizer.convert_ids_to_tokens(image_token_id) is None
    ):  # transformers makes an empty one where files are missing
        raise ModelError(f"{model}: its tokenizer has no token for a frame; are all its tokenizer files there?")
    media = [
        getattr(config, f"{name}_token_id", None) for name in ("image", "video", "vision_start", "vision_end", "vision")
    ]
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
    """`transformers.<part>.from_pretrained(model)`, its many ways to fail told in one line each."""
    local = Path(model).exists()
    if not local and (model.startswith((".", "/", "~")) or model.count("/") > 1):
        raise ModelError(f"{model}: no such model folder; check the path, or name a model of the hub")
    import transformers

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # its retries are told in one line below
    try:
        return getattr(transformers, part).from_pretrained(model, **options)
    except Exception as error:
        raise ModelError(_reason(model, local, error)) from None


def _reason(model: str, local: bool, error: Exception) -> str:
    """What a failed load means to the person who named the model."""
    chain: list[str] = []
    cause: BaseException | None = error
    while cause is not None and len(chain) < 8:
        chain.append(f"{type(cause).__name__}: {cause}")
        cause = cause.__cause__ or cause.__context__
    text = "\n".join(chain)
    if isinstance(error, MemoryError) or "out of memory" in text.lower() or "can't allocate memory" in text.lower():
        return f"{model}: not enough memory to load it; use a smaller model, a GPU with more, or --server"
    if local:
        return f"{model}: not a model folder that transformers can load ({first_line(error)})"
    if "GatedRepo" in text or "401" in text:
        return f"{model}: the hub has no such model, or it is not yours to read; check the name, or `hf auth login`"
    if "RepositoryNotFound" in text or "404" in text:
        return f"{model}: the hub has no such model; check the name"
    return f"{model}: not in the local cache, and the model hub cannot be reached; name a folder, or check the network"


def folder_fingerprint(model: str) -> str:
    """Names the state of a model folder's files by their names, sizes and times; empty for what is no folder here.

    A folder that is written anew, as training does, is another model under the same name.
    """
    folder = Path(model)
    if not model or not folder.is_dir():
        return ""
    files = [file for file in sorted(folder.iterdir()) if file.suffix != ".md"]  # a card decides nothing
    facts = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


def _legacy_template(model: str) -> str:
    """Older checkpoints keep the template in a file of the processor's."""
    file = Path(model) / "chat_template.json"
    if not Path(model).is_dir():
        with contextlib.suppress(Exception):
            from huggingface_hub import hf_hub_download

            file = Path(hf_hub_download(model, "chat_template.json"))
    try:
        return str(json.loads(file.read_text())["chat_template"])
    except (OSError, ValueError, KeyError, TypeError):
        raise ModelError(f"{model}: has no chat template; name an instruction-tuned model") from None
