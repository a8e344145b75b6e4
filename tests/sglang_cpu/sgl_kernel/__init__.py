"""A test fixture: a stand-in for the CPU build of sgl_kernel, which PyPI does not have.

SGLang 0.5.23 imports these names when SGLANG_USE_CPU_ENGINE=1. A dense model on a CPU without AMX needs
none of what is behind them, so each only raises when called. The names move with SGLang's version: it is pinned.
"""

import torch

__version__ = "0.0.0+names-only"

_FUNCTIONS = (
    "assign_draft_cache_locs_contiguous_cpu",
    "assign_extend_cache_locs_cpu",
    "assign_req_to_token_pool_cpu",
    "build_tree_kernel_efficient_cpu",
    "copy_all_layer_kv_cache_cpu",
    "fill_accept_out_cache_loc_cpu",
    "fill_bonus_tokens_cpu",
    "rotate_input_ids_cpu",
    "verify_tree_greedy_cpu",
)


def __getattr__(name: str):
    if name not in _FUNCTIONS:
        raise AttributeError(name)

    def absent(*args, **kwargs):
        raise NotImplementedError(f"sgl_kernel.{name} is not in the stand-in for CPU tests")

    return absent


# Looked up as torch.ops.sgl_kernel.<name> at import time; declared without an implementation, so a call raises.
# "convert_weight_packed" must stay undeclared: SGLang takes its presence for AMX support.
_OPS = torch.library.Library("sgl_kernel", "DEF")
for _signature in (
    "fused_sigmoid_mul_cpu(Tensor a, Tensor b) -> Tensor",
    "fused_moe_router_cpu(Tensor a) -> Tensor",
    "fused_qk_gemma_rmsnorm_cpu(Tensor a) -> Tensor",
    "fused_qk_gemma_rmsnorm_with_gate_cpu(Tensor a) -> Tensor",
    "fused_qkvzba_split_reshape_cat_contiguous_cpu(Tensor a) -> Tensor",
):
    _OPS.define(_signature)
