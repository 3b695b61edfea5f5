"""The model between attentions, fused by torch.compile: bias + GELU, dropout + residual + LayerNorm, embeddings.

Attention stays outside: its kernel is one already, and what is compiled then depends on one number only, how many
tokens there are. That is left open, so that one compilation serves every batch and every layer.
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
    """Set what torch's compiler must know before it first compiles."""
    import torch._dynamo.config  # noqa: PLC0415 - seconds, and the launcher imports this module and compiles nothing
    import torch._inductor.config  # noqa: PLC0415
    import torch.fx.experimental._config  # noqa: PLC0415

    # DDP's splitting of graphs at its buckets would only undo fusion: a piece is about one bucket already
    torch._dynamo.config.optimize_ddp = False
    torch._inductor.config.compile_threads = 1  # a handful of pieces: no pool of compiling processes on every rank
    torch._dynamo.config.recompile_limit = 64  # 8, torch's own, are few for several models in one process
    if hasattr(torch._inductor.config, "combo_kernels_pointwise_only"):  # not in torch 2.11
        # Casts of weights and biases, some of 1,024 elements, run together: 6 launches fewer a layer of 28
        torch._inductor.config.combo_kernels = True
        torch._inductor.config.combo_kernels_pointwise_only = True
        torch._inductor.config.combo_kernel_max_num_nodes = 32  # 8 would leave one cast of a layer alone
        # Otherwise rows of a batch decide whether sums over rows and columns are one kernel: others compile again
        torch._inductor.config.triton.mix_order_reduction_non_strict_mode = True
    # As many tokens as the hidden size would be taken for the same number, and the next batch would compile again
    torch.fx.experimental._config.use_duck_shape = False


def obstacle(device: torch.device) -> str | None:
    """Why torch.compile can't work for this device, in a line; None if it can."""
    configure_compiler()
    try:
        torch.compile(_tried, fullgraph=True)(torch.zeros(97, device=device))
    except torch._dynamo.exc.TorchDynamoException as error:
        return str(error).splitlines()[0]
    return None


def _tried(numbers: torch.Tensor) -> torch.Tensor:
    return numbers.sin() + 1
