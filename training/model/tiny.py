"""A tiny Qwen3-VL checkpoint with random weights: the real architecture, tokenizer kind and chat format.

It understands nothing. It is what the mechanics are shown and tested with where no model can be had:
``python -m paravt_training.model.tiny FOLDER`` makes one in a few seconds (0.4 million parameters, 1 MB).
"""

import json
import sys
from pathlib import Path
from typing import Any

SPECIAL_TOKENS = [
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|object_ref_end|>",
    "<|box_start|>", "<|box_end|>", "<|quad_start|>", "<|quad_end|>", "<|vision_start|>",
    "<|vision_end|>", "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>",
]  # fmt: skip
TAG_TOKENS = ["<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>"]
"""One token each but not special, as in Qwen3: they survive decoding."""

_CORPUS = [
    "You are a video agent. The frames below show the whole video, each after its time in seconds.",
    'crop_video {"name": "crop_video", "arguments": {"start_time": 12.0, "end_time": 25.5}}',
    "Which option is right? Options: A. red circle B. blue square C. green triangle D. yellow star",
    "<think> the evidence is between </think> <answer>A</answer> Window 1 of 5, from 00:12 to 00:25",
    "system user assistant\n\n0 1 2 3 4 5 6 7 8 9 0.0 1.0 2.0 3.0 10.0 20.0 30.0 seconds>",
]


def build_tokenizer(corpus: list[str], vocab_size: int) -> Any:
    """A byte-level BPE tokenizer of Qwen's kind, trained on `corpus`, with this project's chat template."""
    from tokenizers import (
        AddedToken,
        Regex,
        Tokenizer,
        decoders,
        models,
        normalizers,
        pre_tokenizers,
        trainers,
    )
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
    tokenizer.add_tokens([AddedToken(tag, special=False, normalized=False) for tag in TAG_TOKENS])
    tokenizer.chat_template = Path(__file__).with_name("chat_template.jinja").read_text()
    return tokenizer


def save_processor_files(folder: Path, *, min_pixels: int, max_pixels: int) -> None:
    """The image and video processors' settings, written as JSON: making them needs no torchvision."""
    common = {
        "patch_size": 16,
        "temporal_patch_size": 2,
        "merge_size": 2,
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
        "size": {"shortest_edge": min_pixels, "longest_edge": max_pixels},
        "processor_class": "Qwen3VLProcessor",
    }
    image = common | {"image_processor_type": "Qwen2VLImageProcessorFast"}
    video = common | {"video_processor_type": "Qwen3VLVideoProcessor"}
    (folder / "preprocessor_config.json").write_text(json.dumps(image, indent=2))
    (folder / "video_preprocessor_config.json").write_text(json.dumps(video, indent=2))


def build_tiny(folder: Path, *, seed: int = 0) -> Path:
    """Write the checkpoint to `folder` and return it. The same seed gives the same weights."""
    import torch
    import transformers
    from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration

    transformers.utils.logging.disable_progress_bar()
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = build_tokenizer(_CORPUS, vocab_size=480)
    ids = {token: tokenizer.convert_tokens_to_ids(token) for token in SPECIAL_TOKENS}
    config = Qwen3VLConfig(
        text_config={
            "vocab_size": (len(tokenizer) + 63) // 64 * 64,
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 32,
            "max_position_embeddings": 32768,
            "rms_norm_eps": 1e-6,
            "bos_token_id": None,
            "eos_token_id": ids["<|im_end|>"],
            "pad_token_id": ids["<|endoftext|>"],
            "tie_word_embeddings": True,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 5e6,
                "mrope_interleaved": True,
                "mrope_section": [6, 5, 5],
            },
        },
        vision_config={
            "depth": 3,
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_heads": 2,
            "out_hidden_size": 64,
            "patch_size": 16,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
            "num_position_embeddings": 64,
            "deepstack_visual_indexes": [0, 1, 2],
        },
        image_token_id=ids["<|image_pad|>"],
        video_token_id=ids["<|video_pad|>"],
        vision_start_token_id=ids["<|vision_start|>"],
        vision_end_token_id=ids["<|vision_end|>"],
        tie_word_embeddings=True,
    )
    torch.manual_seed(seed)
    model = Qwen3VLForConditionalGeneration(config).to(torch.bfloat16)
    model.generation_config.eos_token_id = [ids["<|im_end|>"], ids["<|endoftext|>"]]
    model.generation_config.pad_token_id = ids["<|endoftext|>"]
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    # The bounds of the published Qwen3-VL checkpoints: the smallest frame they take is 256x256.
    save_processor_files(folder, min_pixels=65536, max_pixels=16777216)
    return folder


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m paravt_training.model.tiny FOLDER")
    print(build_tiny(Path(sys.argv[1])))
