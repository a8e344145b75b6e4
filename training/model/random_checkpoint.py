"""Small Qwen3-VL checkpoints with random weights: the real architecture, tokenizer type, chat format and file layout.

`build_mini` makes what a run from `mini` starts with; `build_tiny` makes the smallest checkpoint (0.4 million
parameters, 1 MB) that tests and speed measures run on. ``python -m paravt_training.model.random_checkpoint FOLDER``
makes a tiny one in a few seconds.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from paravt_training.model.distributed import DTYPES, DType
from paravt_training.recipe import MiniShape
from paravt_training.world.vocabulary import PROTOCOL_TAGS, SHAPE_NAMES, vocabulary

SPECIAL_TOKENS = [
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|object_ref_end|>",
    "<|box_start|>", "<|box_end|>", "<|quad_start|>", "<|quad_end|>", "<|vision_start|>",
    "<|vision_end|>", "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>",
]  # fmt: skip
TAG_TOKENS = ["<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>"]
"""Single tokens but not special, as in Qwen3: they survive decoding."""

TINY_SHAPE = MiniShape(
    layers=3, hidden=64, intermediate=128, heads=4, kv_heads=2, head_dim=32,
    vision_layers=3, vision_hidden=32, vision_intermediate=64, vision_heads=2, merge=2, vocabulary=480,
)  # fmt: skip
TINY_CORPUS = [
    "You are a video agent. The frames below show the whole video, each after its time in seconds.",
    'crop_video {"name": "crop_video", "arguments": {"start_time": 12.0, "end_time": 25.5}}',
    "Which option is right? Options: A. red circle B. blue square C. green triangle D. yellow star",
    "<think> the evidence is between </think> <answer>A</answer> Window 1 of 5, from 00:12 to 00:25",
    "system user assistant\n\n0 1 2 3 4 5 6 7 8 9 0.0 1.0 2.0 3.0 10.0 20.0 30.0 seconds>",
]
"""The tiny checkpoint's tokenizer is trained on this."""


def build_tiny(folder: Path, *, seed: int = 0) -> Path:
    """Write the tiny checkpoint to `folder` and return it. The same seed gives the same weights."""
    # The bounds of the published Qwen3-VL checkpoints, whose smallest frame is 256 x 256 pixels.
    tokenizer, bounds = build_tokenizer(TINY_CORPUS, TINY_SHAPE.vocabulary), (65536, 16777216)
    return _write(folder, tokenizer, TINY_SHAPE, frame=128, pixel_bounds=bounds, dtype="bf16", seed=seed)


def build_mini(folder: Path, shape: MiniShape, *, frame: int = 64, seed: int = 0) -> Path:
    """Write the mini model to `folder` and return it. The same seed gives the same weights.

    Its tokenizer has one token for each word of the sample world and, as Qwen's, for each digit.

    Args:
        frame: width and height in pixels of every frame that it takes.

    Raises:
        OSError: the folder cannot be written.
    """
    tokenizer = build_tokenizer(vocabulary(), shape.vocabulary, (*PROTOCOL_TAGS, *SHAPE_NAMES))
    tokenizer.padding_side = "left"
    return _write(folder, tokenizer, shape, frame=frame, pixel_bounds=(frame**2, frame**2), dtype="fp32", seed=seed)


def build_tokenizer(corpus: list[str], vocab_size: int, added: tuple[str, ...] = ()) -> Any:
    """A byte-level BPE tokenizer of Qwen's type, trained on `corpus`, with this project's chat template.

    Args:
        added: texts that become one token each, after the tags.
    """
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
    from transformers import Qwen2Tokenizer
    from transformers.models.qwen2.tokenization_qwen2 import PRETOKENIZE_REGEX

    raw = Tokenizer(models.BPE())
    raw.normalizer = normalizers.NFC()
    raw.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PRETOKENIZE_REGEX), "isolated", False),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    raw.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer: Any = trainers.BpeTrainer(  # type: ignore[no-untyped-call]
        vocab_size=vocab_size, initial_alphabet=alphabet, show_progress=False
    )
    raw.train_from_iterator(corpus * 50, trainer)
    learned = json.loads(raw.to_str())["model"]
    tokenizer = Qwen2Tokenizer(
        vocab=learned["vocab"],
        merges=[tuple(pair) for pair in learned["merges"]],
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        extra_special_tokens=SPECIAL_TOKENS,
        model_max_length=32768,
    )
    tokenizer.add_tokens([AddedToken(text, special=False, normalized=False) for text in (*TAG_TOKENS, *added)])
    tokenizer.chat_template = Path(__file__).with_name("chat_template.jinja").read_text()
    return tokenizer


def _write(
    folder: Path,
    tokenizer: Any,
    shape: MiniShape,
    *,
    frame: int,
    pixel_bounds: tuple[int, int],
    dtype: DType,
    seed: int,
) -> Path:
    """The whole checkpoint: random weights, configuration, tokenizer and processor files."""
    import torch
    import transformers
    from transformers import Qwen3VLForConditionalGeneration

    transformers.utils.logging.disable_progress_bar()
    folder.mkdir(parents=True, exist_ok=True)
    ids = {token: tokenizer.convert_tokens_to_ids(token) for token in SPECIAL_TOKENS}
    torch.manual_seed(seed)
    config = qwen3_vl_config(
        shape,
        vocab_size=(len(tokenizer) + 63) // 64 * 64,
        deepstack=range(shape.vision_layers),
        position_embeddings=(frame // 16) ** 2,
        ids=ids,
    )
    model = Qwen3VLForConditionalGeneration(config).to(DTYPES[dtype])
    model.generation_config.eos_token_id = [ids["<|im_end|>"], ids["<|endoftext|>"]]
    model.generation_config.pad_token_id = ids["<|endoftext|>"]
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    # Written as JSON, because making the processors would need torchvision.
    common = {
        "patch_size": 16,
        "temporal_patch_size": 2,
        "merge_size": shape.merge,
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
        "size": {"shortest_edge": pixel_bounds[0], "longest_edge": pixel_bounds[1]},
        "processor_class": "Qwen3VLProcessor",
    }
    image = common | {"image_processor_type": "Qwen2VLImageProcessorFast"}
    video = common | {"video_processor_type": "Qwen3VLVideoProcessor"}
    (folder / "preprocessor_config.json").write_text(json.dumps(image, indent=2))
    (folder / "video_preprocessor_config.json").write_text(json.dumps(video, indent=2))
    return folder


_CONFIG_TOKENS = {
    "image_token_id": "image_pad", "video_token_id": "video_pad",
    "vision_start_token_id": "vision_start", "vision_end_token_id": "vision_end",
}  # fmt: skip


def qwen3_vl_config(
    shape: MiniShape,
    *,
    vocab_size: int,
    deepstack: Sequence[int],
    position_embeddings: int = 48**2,
    ids: Mapping[str, int] | None = None,
    tied: bool = True,
) -> Any:
    """A Qwen3-VL configuration.

    Args:
        deepstack: layers of the vision tower whose features go to text layers.
        position_embeddings: learned positions of the vision tower, a square.
        ids: of `SPECIAL_TOKENS`; by default those of the published models.
        tied: whether the head shares the embeddings' weights.
    """
    from transformers import Qwen3VLConfig

    tokens = {name: ids[f"<|{text}|>"] for name, text in _CONFIG_TOKENS.items()} if ids else {}
    end = {"eos_token_id": ids["<|im_end|>"], "pad_token_id": ids["<|endoftext|>"]} if ids else {}
    third = shape.head_dim // 2 // 3
    return Qwen3VLConfig(
        text_config={
            "vocab_size": vocab_size,
            "hidden_size": shape.hidden,
            "intermediate_size": shape.intermediate,
            "num_hidden_layers": shape.layers,
            "num_attention_heads": shape.heads,
            "num_key_value_heads": shape.kv_heads,
            "head_dim": shape.head_dim,
            "max_position_embeddings": 32768,
            "rms_norm_eps": 1e-6,
            "bos_token_id": None,
            "tie_word_embeddings": tied,
            **end,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 5e6,
                "mrope_interleaved": True,
                "mrope_section": [shape.head_dim // 2 - 2 * third, third, third],
            },
        },
        vision_config={
            "depth": shape.vision_layers,
            "hidden_size": shape.vision_hidden,
            "intermediate_size": shape.vision_intermediate,
            "num_heads": shape.vision_heads,
            "out_hidden_size": shape.hidden,
            "patch_size": 16,
            "spatial_merge_size": shape.merge,
            "temporal_patch_size": 2,
            "num_position_embeddings": position_embeddings,
            "deepstack_visual_indexes": list(deepstack),
        },
        **tokens,
        tie_word_embeddings=tied,
    )


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m paravt_training.model.random_checkpoint FOLDER")
    print(build_tiny(Path(sys.argv[1])))
