"""Fuse the model between attentions by torch.compile: bias + GELU, dropout + residual + LayerNorm, embeddings.

Attention stays outside: it is already one kernel, and without it the compiled code depends only on the number of
tokens. That number is dynamic, so that one compilation serves every batch and every layer.
"""

import torch
from torch import nn

from bertbench.model.bert import Bert
from bertbench.model.encoder import between_attentions
from bertbench.model.loss import plain_cross_entropy_sum
from bertbench.model.options import CompileMode


def compile_pieces(model: Bert, mode: CompileMode) -> None:
    """Replace the model's pieces by compiled ones; each compiles when it is first called."""
    configure_compiler()
    if mode == "graphs":  # recorded from outside, whole iterations at once
        mode = "default"
    whole = (model.embeddings, model.masked_lm, model.pooler, model.next_sentence)
    pieces: list[tuple[nn.Module, str]] = [(module, "forward") for module in whole]
    pieces += [(layer, name) for layer in model.layers for name in ("before_attention", "after_attention")]
    for module, name in pieces:
        setattr(module, name, torch.compile(getattr(module, name), dynamic=True, fullgraph=True, mode=mode))
    model.join_layers(torch.compile(between_attentions, dynamic=True, fullgraph=True, mode=mode))
    compiled = torch.compile(plain_cross_entropy_sum, dynamic=True, fullgraph=True, mode=mode)
    model.sums_losses, model.cross_entropy_sum = True, compiled


def configure_compiler() -> None:
    """Set torch's compiler options; call this before the first compilation."""
    import torch._dynamo.config  # noqa: PLC0415 - seconds; the launcher imports this module but never compiles
    import torch._inductor.config  # noqa: PLC0415
    import torch.fx.experimental._config  # noqa: PLC0415

    # DDP would split graphs at its buckets and undo fusion, though a piece is already about one bucket
    torch._dynamo.config.optimize_ddp = False
    torch._inductor.config.compile_threads = 1  # a handful of pieces: no pool of compiling processes on every rank
    torch._dynamo.config.recompile_limit = 64  # torch's default of 8 is too low for several models in one process
    if hasattr(torch._inductor.config, "combo_kernels_pointwise_only"):  # not in torch 2.11
        # Casts of weights and biases, some of 1,024 elements, share launches: 22 a layer instead of 28
        torch._inductor.config.combo_kernels = True
        torch._inductor.config.combo_kernels_pointwise_only = True
        torch._inductor.config.combo_kernel_max_num_nodes = 32  # 8 would leave one cast of a layer alone
        # Without it, the size of a batch decides whether sums over rows and columns share a kernel: others recompile
        torch._inductor.config.triton.mix_order_reduction_non_strict_mode = True
    # If tokens equal the hidden size, the compiler takes both for one number and recompiles for the next batch
    torch.fx.experimental._config.use_duck_shape = False


def obstacle(device: torch.device) -> str | None:
    """Return, in a line, why torch.compile can't work for this device; None if it can."""
    configure_compiler()
    try:
        torch.compile(_tried, fullgraph=True)(torch.zeros(97, device=device))
    except torch._dynamo.exc.TorchDynamoException as error:
        return str(error).splitlines()[0]
    return None


def _tried(numbers: torch.Tensor) -> torch.Tensor:
    return numbers.sin() + 1
