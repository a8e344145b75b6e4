"""Attention within each sample of a packed row and within each frame: no mask, no padding, no cross-talk.

In bf16 on a GPU this is one call of torch's variable-length flash attention; otherwise one call per segment, or one
call for all segments if they have the same length, as frames do.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

TEXT = "packed"
VISION = "packed_flash"
"""`flash` in the name makes the vision tower pass all frames at once, with `cu_seq_lens_q`."""


def use_packed_attention(model: Any) -> None:
    """Make a Qwen3-VL model attend within segments; its forward pass then needs `row_cu_seqlens`.

    That is `PackedRow.cu_seqlens` under a name of its own: the vision tower would take a keyword `cu_seqlens` for the
    lengths of its frames.
    """
    from transformers import AttentionInterface

    AttentionInterface.register(TEXT, _text)
    AttentionInterface.register(VISION, _vision)
    # Set on the configurations, because the model's own setter would look for a kernel to download.
    model.config.text_config._attn_implementation = TEXT
    model.config.vision_config._attn_implementation = VISION


def _text(_: Any, *tensors: Tensor, scaling: float, row_cu_seqlens: Tensor, **__: Any) -> tuple[Tensor, None]:
    query, key, value = tensors[:3]
    return attend(query, key, value, row_cu_seqlens, scale=scaling, causal=True), None


def _vision(_: Any, *tensors: Tensor, scaling: float, cu_seq_lens_q: Tensor, **__: Any) -> tuple[Tensor, None]:
    query, key, value = tensors[:3]
    return attend(query, key, value, cu_seq_lens_q, scale=scaling, causal=False), None


def attend(query: Tensor, key: Tensor, value: Tensor, cu_seqlens: Tensor, *, scale: float, causal: bool) -> Tensor:
    """Attention inside each segment of a row.

    Args:
        query: # [1, heads, tokens, size]
        key: # [1, kv heads, tokens, size]
        value: like `key`
        cu_seqlens: cumulative lengths: where each segment starts, and the end of the last.  # [segments + 1], int32

    Returns:
        # [1, tokens, heads, size]
    """
    if query.is_cuda and query.dtype in (torch.bfloat16, torch.float16):
        from torch.nn.attention.varlen import varlen_attn

        longest = int(cu_seqlens.diff().max())
        out = varlen_attn(
            *(tensor[0].transpose(0, 1) for tensor in (query, key, value)),
            cu_seqlens,
            cu_seqlens,
            longest,
            longest,
            scale=scale,
            window_size=(-1, 0) if causal else (-1, -1),
            enable_gqa=query.shape[1] != key.shape[1],
        )
        assert isinstance(out, Tensor)
        return out[None]
    lengths = cu_seqlens.diff().tolist()
    grouped = query.shape[1] != key.shape[1]
    if len(set(lengths)) == 1:  # frames of the same size: all of them at once
        query, key, value = (_split(tensor, lengths[0]) for tensor in (query, key, value))
        out = scaled_dot_product_attention(query, key, value, is_causal=causal, scale=scale, enable_gqa=grouped)
        return out.transpose(1, 2).flatten(0, 1)[None]
    parts = zip(*(tensor.split(lengths, dim=2) for tensor in (query, key, value)), strict=True)
    outs = [
        scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale, enable_gqa=grouped).transpose(1, 2)
        for q, k, v in parts
    ]
    return torch.cat(outs, dim=1)


def _split(row: Tensor, length: int) -> Tensor:
    """# [1, heads, tokens, size] to [segments, heads, length, size]"""
    return row[0].unflatten(1, (-1, length)).transpose(0, 1)
