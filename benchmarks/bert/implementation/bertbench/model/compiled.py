"""Let torch.compile fuse what lies between attentions: bias + GELU, dropout + residual + LayerNorm, embeddings.

Attention isn't compiled. It is one kernel already, and without it the compiled code depends only on the number of
tokens. That number is dynamic, so one compilation serves every batch and every layer.
"""

import hashlib
import os
import shlex
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bertbench.common.atomic import new_file
from bertbench.common.paths import cache_folder
from bertbench.model import compiled_layer
from bertbench.model.bert import Bert, CrossEntropySum
from bertbench.model.encoder import EncoderLayer
from bertbench.model.loops import compiler_words
from bertbench.model.loss import cross_entropy_sum

_MOST_COMPILING = 8  # a handful of pieces doesn't keep more processes busy


def compile_pieces(model: Bert) -> None:
    """Replace the model's pieces by compiled ones; each is compiled at its first call."""
    modules = (model.embeddings, model.masked_lm, model.pooler, model.next_sentence)
    model.sum_pair_losses = compile_part(modules, model.encoder_layers())
    model.is_compiled = True
    # By default another kernel would copy LayerNorm's output to the columns of ones, where the qkv product reads it
    in_place = _known({"max_pointwise_cat_inputs": 0, "max_complex_pointwise_cat_inputs": 0})
    model.join_layers(_compiled(compiled_layer.between_attentions, options=in_place))


def compile_part(modules: Iterable[nn.Module], layers: Iterable[EncoderLayer]) -> CrossEntropySum:
    """Compile the modules and layers of a split model; return its compiled cross-entropy.

    Each layer is compiled by itself, because another rank may hold the next one, or this rank gathers the next one's
    weights later.
    """
    configure_compiler()
    for module in modules:
        module.forward = _compiled(module.forward)
    ends = {name: _compiled(getattr(compiled_layer, name)) for name in ("before_attention", "after_attention")}
    for layer in layers:
        for name, end in ends.items():
            setattr(layer, name, partial(end, layer))
    return _compiled(cross_entropy_sum)


def _compiled(function: Callable[..., Any], **more: Any) -> Callable[..., Any]:
    return torch.compile(function, dynamic=True, fullgraph=True, **more)


def configure_compiler() -> None:
    """Set torch's compiler options; call this before the first compilation."""
    import torch._dynamo.config  # noqa: PLC0415 - takes seconds; the launcher imports this module but never compiles
    import torch._functorch.config  # noqa: PLC0415
    import torch._inductor.config  # noqa: PLC0415
    import torch.fx.experimental._config  # noqa: PLC0415

    torch._dynamo.config.recompile_limit = 64  # torch's default of 8 is too low for several models in one process
    options: dict[str, object] = {
        "compile_threads": _compile_threads(),
        # Lets casts of weights and biases, some of 1,024 elements, share kernels: 22 launches a layer instead of 28
        "combo_kernels": True,
        "combo_kernels_pointwise_only": True,
        "combo_kernel_max_num_nodes": 32,  # with 8, one cast of each layer would need a launch of its own
        # Without it, the batch size decides whether sums over rows and columns share a kernel, and other sizes
        # recompile
        "triton.mix_order_reduction_non_strict_mode": True,
        # LayerNorm's backward kernel reads 11 tensors; the default of 10 avoids register spills, which don't occur here
        "triton.mix_order_reduction_max_reads": 16,
    }
    if compiler := os.environ.get("CXX"):
        with suppress(OSError, ValueError):  # if Inductor can't call it, Inductor's own error names it
            options["cpp.cxx"] = (None, _one_program(compiler))
    for name, value in _known(options).items():
        setattr(torch._inductor.config, name, value)
    # Both dropouts number their elements in the same way, which would make the compiler save the second mask,
    torch._functorch.config.ban_recompute_used_far_apart = False
    # and so would fp8's casts, which put it more than 100 operations after the layer's input: 76 MB at 24,576 tokens
    torch._functorch.config.ban_recompute_long_fusible_chains = False
    # If the tokens happen to equal the hidden size, the compiler treats both as one number and recompiles later
    torch.fx.experimental._config.use_duck_shape = False


def _one_program(cxx: str) -> str:
    """Return the path of one program that calls CXX: Inductor would take `ccache g++` for the name of a program.

    If CXX has arguments, the program is a script in the user's cache. It is named after the compiler, because Inductor
    derives the kind of compiler from the name. Raises OSError if the script can't be written, ValueError if CXX can't
    be parsed.
    """
    words = compiler_words(cxx)
    if len(words) == 1:
        return words[0]
    command = shlex.join(words)
    compiler = next((word for word in words if "++" in word and not word.startswith("-")), words[0])
    folder = cache_folder() / f"compiler-{hashlib.sha256(command.encode()).hexdigest()[:16]}"
    script = folder / Path(compiler).name
    if not script.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with new_file(script) as unfinished:
            unfinished.write_text(f'#!/bin/sh\nexec {command} "$@"\n', encoding="utf-8")
            unfinished.chmod(0o755)
    return str(script)


def _compile_threads() -> int:
    """Return how many processes compile: this rank's share of the cores, but at most 8.

    On a CPU return 1, which starts no pool of processes, because its few pieces compile quickly.
    """
    if not torch.cuda.is_available():
        return 1
    ranks = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    share_of_cores = (os.cpu_count() or 1) // ranks
    return max(1, min(_MOST_COMPILING, share_of_cores))


def _known(options: Mapping[str, object]) -> dict[str, Any]:
    """Return those of the options that this torch's Inductor has: each minor version adds some."""
    return {name: value for name, value in options.items() if hasattr(torch._inductor.config, name)}


def compiler_obstacle(device: torch.device) -> str | None:
    """Return a line that says why torch.compile can't work for this device; None if it can."""
    try:
        configure_compiler()
        torch.compile(_tried, fullgraph=True)(torch.zeros(97, device=device))
    except (AttributeError, torch._dynamo.exc.TorchDynamoException) as error:
        return str(error).splitlines()[0]
    return None


def _tried(numbers: Tensor) -> Tensor:
    return numbers.sin() + 1
