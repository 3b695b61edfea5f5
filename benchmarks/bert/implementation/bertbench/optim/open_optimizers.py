"""Build Muon, which only the open division allows, over a rank's whole model, slices or shards."""

from functools import partial

import torch

from bertbench.model.bert import Bert
from bertbench.optim.adam import MultiTensorAdam
from bertbench.optim.buckets import Buckets
from bertbench.optim.dealing import DealtMatrices
from bertbench.optim.foreach import native_adam_step
from bertbench.optim.matrices import Combined, Matrices, MatrixOptimizer, WholeMatrices, encoder_matrices
from bertbench.optim.muon import MuonRule
from bertbench.optim.options import OptimizerOptions
from bertbench.optim.slices import LogicalSlices
from bertbench.optim.state import LogicalTensors, Resumable


def open_optimizer(model: Bert, options: OptimizerOptions, buckets: Buckets | None) -> tuple[Resumable, str]:
    """Return the optimizer of a model, or of this rank's slices of its buckets, and a text that describes it.

    Collective.
    """
    fused = model.fused_parameters()
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    encoder = encoder_matrices(model)
    matrices: Matrices = WholeMatrices(encoder, fused) if buckets is None else DealtMatrices(buckets, encoder, fused)
    product = torch.bfloat16 if options.half_products else torch.float32
    rule = MuonRule(matrices.shapes, parameters[0].device, options.muon, product)
    taken = set(encoder)
    others = [parameter for parameter in parameters if parameter not in taken]
    hold = LogicalTensors if buckets is None else partial(LogicalSlices, buckets)
    adam = MultiTensorAdam(others, options.adam, False, fused, native_adam_step, hold=hold)
    whole = MatrixOptimizer(matrices, rule, options.adam.weight_decay)
    return Combined(whole, adam), f"{rule.text}, torch's fused Adam on the rest"
