"""The mini model at its start: Qwen3-VL's architecture with a few million random weights, and all files beside them.

Its tokenizer holds the sample world's words, one token each; digits are single tokens, as in Qwen. Its processor
files take frames of one size only, four visual tokens each.
"""

import json
from pathlib import Path
from typing import Any

from paravt_training.model.tiny import SPECIAL_TOKENS, build_tokenizer, save_processor_files
from paravt_training.recipe import MiniShape
from paravt_training.world.vocabulary import PROTOCOL_TAGS, SHAPE_NAMES, vocabulary


def build_mini(folder: Path, shape: MiniShape, *, frame: int = 64, seed: int = 0) -> Path:
    """Write the model to `folder` and return it. The same seed gives the same weights.

    Args:
        frame: every frame it takes is so many pixels wide and high.

    Raises:
        OSError: the folder cannot be written.
    """
    import torch
    import transformers
    from tokenizers import AddedToken
    from transformers import Qwen3VLForConditionalGeneration

    transformers.utils.logging.disable_progress_bar()
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = build_tokenizer(vocabulary(), shape.vocabulary)
    tokenizer.add_tokens([AddedToken(text, special=False, normalized=False) for text in (*PROTOCOL_TAGS, *SHAPE_NAMES)])
    tokenizer.padding_side = "left"
    ids = {token: tokenizer.convert_tokens_to_ids(token) for token in SPECIAL_TOKENS}
    torch.manual_seed(seed)
    model = Qwen3VLForConditionalGeneration(_config(shape, frame, len(tokenizer), ids))
    model.generation_config.eos_token_id = [ids["<|im_end|>"], ids["<|endoftext|>"]]
    model.generation_config.pad_token_id = ids["<|endoftext|>"]
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    save_processor_files(folder, min_pixels=frame**2, max_pixels=frame**2)
    for name in ("preprocessor_config.json", "video_preprocessor_config.json"):
        settings = json.loads((folder / name).read_text()) | {"merge_size": shape.merge}
        (folder / name).write_text(json.dumps(settings, indent=2))
    return folder


def _config(shape: MiniShape, frame: int, words: int, ids: dict[str, int]) -> Any:
    from transformers import Qwen3VLConfig

    third = shape.head_dim // 2 // 3
    return Qwen3VLConfig(
        text_config={
            "vocab_size": (words + 63) // 64 * 64,
            "hidden_size": shape.hidden,
            "intermediate_size": shape.intermediate,
            "num_hidden_layers": shape.layers,
            "num_attention_heads": shape.heads,
            "num_key_value_heads": shape.kv_heads,
            "head_dim": shape.head_dim,
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
            "num_position_embeddings": (frame // 16) ** 2,
            "deepstack_visual_indexes": list(range(shape.vision_layers)),
        },
        image_token_id=ids["<|image_pad|>"],
        video_token_id=ids["<|video_pad|>"],
        vision_start_token_id=ids["<|vision_start|>"],
        vision_end_token_id=ids["<|vision_end|>"],
        tie_word_embeddings=True,
    )
