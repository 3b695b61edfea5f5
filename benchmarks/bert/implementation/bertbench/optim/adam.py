"""Run Adam and LAMB in a handful of multi-tensor calls a step, or by torch's fused Adam on cache-sized blocks.

LAMB is Adam with decoupled weight decay whose update is rescaled per tensor, so one class does both.
Sources: Kingma and Ba 2015; Loshchilov and Hutter 2019 (AdamW); You et al. 2020 (LAMB); NVIDIA apex FusedLAMB for
the details that MLPerf's reference fixes (bias correction, eps outside the root, exclusions, no clamp).

The steps here consist of torch's own operations, without a compiler, on CPU and CUDA. As multi-tensor calls, Adam and
LAMB take a dozen passes over memory; torch's fused Adam kernel takes one. On a CPU, where memory bandwidth is the
limit, LAMB works on one cache-sized block at a time, by torch's fused Adam. It reads weights, gradients and moments
once, overwrites the gradients with the update, and computes both norms while the block is in cache. When a tensor's
norms are complete, one more pass over its weights and updates scales and subtracts the updates.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from bertbench.common.scalars import Scalar, scalar_tensor
from bertbench.config.optimizer import OptimizerSettings
from bertbench.model.logical_tensors import LogicalTensorFactory, LogicalTensors, matrices_and_vectors
from bertbench.optim.interface import StepFunction, StepScalars, StepTensors

# Four blocks of float32 (weights, gradients, both moments) fill 2 MB, a Xeon core's second-level cache. Half the size
# takes 5 % longer (more calls); 1.5 times the size isn't faster.
BLOCK_PER_THREAD = 131_072


def foreach_step(
    tensors: StepTensors,
    options: OptimizerSettings,
    scalars: StepScalars,
    whole_norms: Callable[[Tensor], Tensor] = lambda norms: norms,
) -> None:
    """Update weights and moments by the formulas of MultiTensorAdam; overwrite the gradients.

    If ranks hold shards, `whole_norms` turns this rank's norms into norms of whole tensors: [2, tensors] in and out,
    with the weights' norms in row 0 and the updates' in row 1.
    """
    weights, gradients, firsts, seconds = tensors
    advance_moments(tensors, options, scalars)
    # computes m / c1 / (sqrt(v / c2) + eps) from the inside out and overwrites the gradients
    updates = gradients
    torch._foreach_copy_(updates, seconds)
    torch._foreach_div_(updates, scalars.correction2)
    torch._foreach_sqrt_(updates)
    torch._foreach_add_(updates, options.epsilon)
    torch._foreach_reciprocal_(updates)
    torch._foreach_mul_(updates, firsts)
    torch._foreach_div_(updates, scalars.correction1)
    if options.weight_decay:
        torch._foreach_add_(updates, weights, alpha=options.weight_decay)
    if options.trust_ratio:
        norms = torch.stack([torch.stack(torch._foreach_norm(weights)), torch.stack(torch._foreach_norm(updates))])
        weight_norms, update_norms = whole_norms(norms)
        known = (weight_norms > 0) & (update_norms > 0)
        ratios = torch.where(known, weight_norms / update_norms, torch.ones_like(weight_norms))
        torch._foreach_mul_(updates, list(ratios.unbind()))
    subtract(weights, updates, scalars.learning_rate)


class MultiTensorAdam:
    """Adam with decoupled weight decay, or LAMB, according to `options.name`; Adam for the parameters that Muon leaves.

    With m and v the bias-corrected moments: update = m / (sqrt(v) + eps) + weight_decay * w, then
    w -= lr * ratio * update. In LAMB ratio = |w| / |update| per tensor, 1 if either norm is 0; in Adam it is 1.
    Biases and LayerNorm parameters get neither weight decay nor a trust ratio. A fused query-key-value matrix
    counts as three tensors: `fused` says how many logical tensors a parameter holds along its first dimension.

    `matrix_step` updates the matrices. Without a `vector_step`, it also updates the vectors in Adam. Given parameters
    and `fused`, `tensor_factory` makes the tensors that this rank updates: all of them, or slices. For LAMB on slices,
    `whole_norms` combines this rank's norms with those of other ranks: [2, tensors] in and out. Some steps also take
    two mappings from parameters: `rounded` holds 16-bit copies of matrices that the step writes, and `summed` holds
    16-bit gradients that it reads. The weights must not move in memory.
    """

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        options: OptimizerSettings,
        fused: Mapping[Tensor, int] | None = None,
        matrix_step: StepFunction = foreach_step,
        vector_step: StepFunction | None = None,
        tensor_factory: LogicalTensorFactory = LogicalTensors,
        whole_norms: Callable[[Tensor], Tensor] | None = None,
        rounded: Mapping[Tensor, Tensor] | None = None,
        summed: Mapping[Tensor, Tensor] | None = None,
    ) -> None:
        self._options = options
        self._vector_options = options.model_copy(update={"name": "adam", "weight_decay": 0.0})
        self.steps: Scalar = 0
        """Steps taken; if steps may be skipped, a float64 tensor on the device."""
        self.matrix_step = matrix_step
        """May be replaced between steps, to compare steps on the same moments."""
        if vector_step is None and options.trust_ratio:
            vector_step = foreach_step
        self._vector_step = vector_step
        self._whole_norms = whole_norms
        self._step_options: dict[str, Any] = {}
        """Additional arguments of `matrix_step`."""
        self._vector_step_options: dict[str, Any] = {}
        if whole_norms is not None:
            self._step_options["whole_norms"] = whole_norms
        matrices, vectors = matrices_and_vectors(parameters)
        matrix_tensors = tensor_factory(matrices, fused or {})
        if rounded:
            self._step_options["rounded"] = matrix_tensors.of_parameters(rounded)
        self._matrices = _WithMoments(matrix_tensors)
        vector_tensors = tensor_factory(vectors, fused or {})
        if summed:
            self._step_options["summed"] = matrix_tensors.of_parameters(summed)
            self._vector_step_options["summed"] = vector_tensors.of_parameters(summed)
        self._vectors = _WithMoments(vector_tensors)

    @torch.no_grad()
    def step(self, learning_rate: Scalar, coefficient: Tensor | None = None, taken: Tensor | None = None) -> None:
        """Update every parameter; all must have gradients. See `interface.Optimizer`."""
        self.steps += 1 if taken is None else taken.double()  # in place if a tensor: a CUDA graph keeps its address
        options = self._options
        scalars = StepScalars(
            learning_rate if taken is None else learning_rate * taken,
            self._correction(options.beta1),
            self._correction(options.beta2),
            coefficient,
            taken,
            self.steps,
        )
        matrices = self._matrices.step_tensors()
        vectors = self._vectors.step_tensors()
        if matrices.weights:
            self.matrix_step(matrices, options, scalars, **self._step_options)
        elif self._whole_norms is not None:  # this rank's slices hold no matrix, but other ranks wait for its norms
            self._whole_norms(torch.zeros(2, 0))
        if vectors.weights:
            vector_step = self._vector_step or self.matrix_step
            vector_step(vectors, self._vector_options, scalars, **self._vector_step_options)

    def _correction(self, beta: float) -> Scalar:
        # at least 1: before the first step that is taken, the moments are 0, but the correction must not be 0
        steps = self.steps.clamp(min=1) if isinstance(self.steps, Tensor) else self.steps
        return 1 - beta**steps

    @torch.no_grad()
    def reset(self) -> None:
        """Forget all steps, as if the optimizer were new; call it after a warm-up."""
        self.resume(0)
        self._matrices.reset()
        self._vectors.reset()

    def moments(self, names: Mapping[Tensor, str]) -> dict[str, Tensor]:
        """Return first and second moments, `<name>.first` and `<name>.second`; see `interface.Optimizer`."""
        return self._matrices.moments(names) | self._vectors.moments(names)

    def resume(self, steps: Scalar) -> None:
        """Set the count of steps; see `interface.Optimizer`."""
        if isinstance(self.steps, Tensor):
            self.steps.fill_(steps)
        else:  # step() changes the tensor in place, so keep a copy
            self.steps = steps.clone() if isinstance(steps, Tensor) else steps


class _WithMoments:
    """The matrices, or the vectors, that a rank updates, with their moments."""

    def __init__(self, tensors: LogicalTensors) -> None:
        self._tensors = tensors
        self._firsts = [torch.zeros_like(weight) for weight in tensors.weights]
        self._seconds = [torch.zeros_like(weight) for weight in tensors.weights]

    def step_tensors(self) -> StepTensors:
        """Return what a step reads and writes."""
        return StepTensors(self._tensors.weights, self._tensors.gradients(), self._firsts, self._seconds)

    def moments(self, names: Mapping[Tensor, str]) -> dict[str, Tensor]:
        """Return the moments by name."""
        firsts = self._tensors.by_name(names, self._firsts)
        seconds = self._tensors.by_name(names, self._seconds)
        return {f"{name}.first": moment for name, moment in firsts.items()} | {
            f"{name}.second": moment for name, moment in seconds.items()
        }

    def reset(self) -> None:
        """Set all moments to 0."""
        for moment in (*self._firsts, *self._seconds):
            moment.zero_()


def advance_moments(tensors: StepTensors, options: OptimizerSettings, scalars: StepScalars) -> None:
    """Add the gradients, times the coefficient, to both moments; a skipped step doesn't change the moments."""
    _, gradients, firsts, seconds = tensors
    keep: Scalar = options.beta2
    share: float | list[Tensor] = 1 - options.beta1
    if scalars.taken is not None:  # in a skipped step, gradients are 0 and moments keep their values
        for gradient in gradients:
            gradient.nan_to_num_(0.0, 0.0, 0.0)
        keep = 1 - (1 - options.beta2) * scalars.taken
        share = [(1 - options.beta1) * scalars.taken] * len(gradients)
    if scalars.coefficient is not None:
        torch._foreach_mul_(gradients, scalars.coefficient)
    torch._foreach_mul_(seconds, keep)
    torch._foreach_addcmul_(seconds, gradients, gradients, 1 - options.beta2)
    torch._foreach_lerp_(firsts, gradients, share)


def subtract(weights: list[Tensor], updates: list[Tensor], rate: Scalar) -> None:
    """Subtract the updates times the rate from the weights; the updates may be overwritten."""
    if isinstance(rate, Tensor):
        torch._foreach_mul_(updates, rate)
        torch._foreach_sub_(weights, updates)
    else:
        torch._foreach_add_(weights, updates, alpha=-rate)


def subtract_scaled(weight: Tensor, update: Tensor, squares: tuple[Tensor, Tensor], rate: Scalar) -> None:
    """Subtract rate * |weight| / |update| * update, given the squared norms; the ratio is 1 if either norm is 0."""
    weight_squares, update_squares = squares
    known = (weight_squares > 0) & (update_squares > 0)
    ratio = torch.where(known, (weight_squares / update_squares).sqrt(), 1.0)
    weight.addcmul_(update, (ratio * rate).float(), value=-1)


def native_adam_step(tensors: StepTensors, options: OptimizerSettings, scalars: StepScalars) -> None:
    """Take the step of `foreach_step` without a trust ratio, by the kernel of torch.optim.AdamW(fused=True)."""
    assert options.name != "lamb", "torch has no fused LAMB"
    kernel = adam_kernel(options, options.weight_decay, scalars.learning_rate, scalars)
    steps = scalar_tensor(scalars.steps, tensors.weights[0].device)
    kernel(*tensors, [], [steps] * len(tensors.weights))


def adam_kernel(options: OptimizerSettings, decay: float, rate: Scalar, scalars: StepScalars) -> Callable[..., None]:
    """Return torch's fused Adam for one step; `rate` replaces the learning rate of `scalars`.

    Its arguments are weights, gradients, first and second moments, an empty list, and the count of steps of each
    tensor.
    """
    if isinstance(rate, Tensor):
        rate = rate.float()  # CUDA's kernel reads the tensor as float32
    return partial(
        torch._fused_adamw_,
        lr=rate,
        beta1=options.beta1,
        beta2=options.beta2,
        weight_decay=decay,
        eps=options.epsilon,
        amsgrad=False,
        maximize=False,
        grad_scale=None if scalars.coefficient is None else scalars.coefficient.float().reciprocal(),
        found_inf=None if scalars.taken is None else 1 - scalars.taken,
    )


def blocks_step(
    tensors: StepTensors,
    options: OptimizerSettings,
    scalars: StepScalars,
    whole_norms: Callable[[Tensor], Tensor] | None = None,
) -> None:
    """Take the step of `foreach_step` with a trust ratio, block by block; overwrite the gradients.

    With `whole_norms` (see `foreach_step`), the second pass starts only after the first pass over every tensor. By then
    no tensor is in cache any more.
    """
    assert options.trust_ratio, "Adam steps use torch's own fused kernel"
    # The kernel computes p - rate (u + decay p). If rate and decay are -1, u overwrites p. Here p is the gradient
    # itself, because the kernel reads each number before it writes to its place, which tests/optim/test_fused.py
    # checks.
    kernel = adam_kernel(options, -1.0, -1.0, scalars)
    steps = [scalar_tensor(scalars.steps, tensors.weights[0].device)]
    all_squares = []
    for weight, gradient, first, second in zip(*tensors, strict=True):
        block_squares = []
        for weights, updates, firsts, seconds in _blocks((weight, gradient, first, second)):
            if scalars.taken is not None:  # the kernel doesn't skip steps by itself
                updates.nan_to_num_(0.0, 0.0, 0.0)
            kernel([updates], [updates], [firsts], [seconds], [], steps)
            updates.add_(weights, alpha=options.weight_decay)
            # not torch.dot: on an AMD, MKL's order of summation in two threads depends on alignment, and replicas would
            # drift apart
            block_squares += [torch.linalg.vector_norm(weights).square(), torch.linalg.vector_norm(updates).square()]
        squares_2 = torch.stack(block_squares).view(-1, 2).sum(0)  # of the tensor's weights and of its updates
        if whole_norms is None:
            subtract_scaled(weight, gradient, (squares_2[0], squares_2[1]), scalars.learning_rate)
        else:
            all_squares.append(squares_2)
    if whole_norms is not None:
        whole_squares = whole_norms(torch.stack(all_squares, 1).sqrt()).square()
        tensors_and_squares = zip(tensors.weights, tensors.gradients, whole_squares.unbind(1), strict=True)
        for weight, update, squares_2 in tensors_and_squares:
            subtract_scaled(weight, update, (squares_2[0], squares_2[1]), scalars.learning_rate)


def _blocks(tensors: tuple[Tensor, ...]) -> Iterator[tuple[Tensor, ...]]:
    """Yield blocks of one logical tensor's weights, gradients and moments."""
    size = BLOCK_PER_THREAD * torch.get_num_threads()
    return zip(*(tensor.split(size) for tensor in tensors), strict=True)
