"""What needs a GPU. `pytest --noconftest tests/gpu` runs where there is only torch, numpy and pytest."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from bertbench.balance.random_samples import samples_of_lengths
from bertbench.gradients.clip import after_coefficient, gradient_norm
from bertbench.loading.batch import Batch, batch_of
from bertbench.loading.filler import filled_to_round_size
from bertbench.model.arithmetic import computing, set_arithmetic
from bertbench.model.attention import flash_attention, kernel_for, plain_attention
from bertbench.model.bert import Bert
from bertbench.model.loss import IGNORED
from bertbench.model.options import CompileMode, PrecisionName, ResidualName
from bertbench.model.shape import BertShape
from bertbench.optim.adam import MultiTensorAdam, foreach_step, native_adam_step
from tests.model.padded import attention_errors, sequences_on
from tests.optim.drawn import adam, lamb

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")

CUDA = torch.device("cuda")
LENGTHS = [512, 512, 301, 77, 5]
SMALL = BertShape(1024, 256, 3, 4, 512, hidden_dropout=0.0, attention_dropout=0.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_attention_equals_padded_attention_except_for_rounding(
    dtype: torch.dtype, record_property: Callable[[str, object], None]
) -> None:
    assert (kernel_for(CUDA, dtype, 64) is flash_attention) == (dtype != torch.float32)
    errors = attention_errors(CUDA, dtype, LENGTHS, heads=4, width=64)
    for name, (error, share) in zip(("context", "query", "key", "value"), errors, strict=True):
        record_property(name, f"{error:.3g}, {share:.2g} of its bound")
    assert all(share <= 1 for _, share in errors)


def test_dropout_in_flash_attention_is_unbiased_and_the_same_forward_and_backward() -> None:
    generator = torch.Generator().manual_seed(1)
    qkv = torch.randn(sum(LENGTHS), 3, 4, 64, generator=generator).to(CUDA, torch.bfloat16)
    sequences = sequences_on(CUDA, LENGTHS)
    query, key, value = qkv.unbind(1)
    value = value.clone().requires_grad_()
    context = flash_attention(torch.stack((query, key, value), 1), sequences, 0.1)
    weights = torch.randn_like(context)
    (gradient,) = torch.autograd.grad((context * weights).sum(), value)
    # the answer is linear in the values, so with one and the same mask both products are one number
    forward = (context.detach().double() * weights.double()).sum().item()
    backward = (value.detach().double() * gradient.double()).sum().item()
    assert forward == pytest.approx(backward, abs=0.02 * context.numel() ** 0.5)
    whole = flash_attention(qkv, sequences, 0.0).float()
    mean = torch.stack([flash_attention(qkv, sequences, 0.1).float() for _ in range(200)]).mean(0)
    assert not torch.equal(context.float(), whole)
    assert (mean - whole).abs().mean() < 0.1 * (context.float() - whole).abs().mean()


def made_up(seed: int) -> Batch:
    """A batch with Wikipedia's share of masked tokens, of a size that no other batch has."""
    lengths = np.sort(np.random.default_rng(seed).integers(20, 512, 13))[::-1]
    return batch_of(samples_of_lengths(lengths, seed, SMALL.vocab_size))


class Training:
    """A small model that takes steps on made-up batches."""

    def __init__(
        self,
        precision: PrecisionName,
        mode: CompileMode,
        attend: bool = True,
        shape: BertShape = SMALL,
        residual: ResidualName = "fp32",
    ) -> None:
        self.precision, self.filled = precision, mode != "none"
        self.model = Bert(shape) if attend else Bert(shape, plain_attention)
        self.model.initialize(torch.Generator().manual_seed(3))
        self.model.to(CUDA)
        self.text = set_arithmetic(self.model, CUDA, precision, mode)
        self.model.keep_residual(residual)
        self.parameters = list(self.model.parameters())
        self.optimizer = MultiTensorAdam(self.parameters, lamb(), self.model.fused_parameters())

    def batch(self, seed: int) -> Batch:
        batch = made_up(seed)
        return (filled_to_round_size(batch) if self.filled else batch).to(CUDA)

    def step(self, batch: Batch) -> Tensor:
        """The loss, on the device."""
        with computing(self.precision, CUDA):
            sums = self.model.loss_sums(batch.inputs, batch.labels)
        shares = [1 / (labels != IGNORED).sum() for labels in (batch.masked_labels_M, batch.next_sentence_S)]
        loss = sums.weighted(*shares)
        loss.backward()
        self.optimizer.step(1e-3, after_coefficient(gradient_norm(self.parameters), 1.0))
        self.model.zero_grad()
        return loss.detach()

    def losses(self) -> list[float]:
        """Of ten steps."""
        return torch.stack([self.step(self.batch(seed)) for seed in range(10)]).tolist()


@pytest.fixture(scope="module")
def exact() -> list[float]:
    """Losses in fp32, nothing optimised."""
    return Training("fp32", "none", attend=False).losses()


def largest(losses: list[float], exact: list[float]) -> float:
    return max(abs(one - other) for one, other in zip(losses, exact, strict=True))


@pytest.mark.parametrize(("precision", "mode", "residual"), [
    ("fp32", "default", "fp32"), ("bf16", "none", "fp32"), ("bf16", "default", "fp32"), ("fp16", "default", "fp32"),
    ("bf16", "default", "bf16"),
])  # fmt: skip
def test_losses_are_within_three_times_the_error_of_plain_half_precision(
    precision: PrecisionName, mode: CompileMode, residual: ResidualName, exact: list[float]
) -> None:
    allowed = 1e-4 if precision == "fp32" else 3 * largest(Training("bf16", "none", attend=False).losses(), exact)
    assert largest(Training(precision, mode, residual=residual).losses(), exact) <= allowed


def test_adam_by_torchs_kernel_equals_plain_adam() -> None:
    by_kernel, plain = (nn.Parameter(torch.ones(7, 5, device=CUDA)) for _ in range(2))
    for parameter, step in ((by_kernel, native_adam_step), (plain, foreach_step)):
        optimizer = MultiTensorAdam([parameter], adam(), matrix_step=step)
        for number in range(3):
            parameter.grad = torch.linspace(-1, 1, 35, device=CUDA).view(7, 5) + number
            optimizer.step(1e-2, torch.tensor(0.5, device=CUDA))
    torch.testing.assert_close(by_kernel, plain)


@pytest.mark.parametrize("mode", ["none", "default"])
def test_a_step_never_waits_for_the_device(mode: CompileMode) -> None:
    dropping = BertShape(1024, 256, 3, 4, 512)
    training = Training("bf16", mode, shape=dropping)
    batches = [training.batch(seed) for seed in range(5)]
    for batch in batches[:3]:  # compiles
        training.step(batch)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for batch in batches[3:]:
            training.step(batch)
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_one_compilation_serves_batches_of_all_sizes() -> None:
    training = Training("bf16", "default")
    for seed in (1, 2):
        training.step(training.batch(seed))
    with torch._dynamo.config.patch(error_on_recompile=True):
        for seed in range(3, 9):
            training.step(training.batch(seed))


def test_batches_arrive_intact_from_a_separate_stream() -> None:
    copies, computing_stream = torch.cuda.Stream(), torch.cuda.current_stream()
    for seed in range(20):
        expected = made_up(seed)
        with torch.cuda.stream(copies):
            batch = expected.to(CUDA)
        computing_stream.wait_stream(copies)
        batch.record_stream(computing_stream)
        assert batch.tokens_T.sum().item() == expected.tokens_T.sum().item()
        assert torch.equal(batch.sequences.cu_seqlens_S1.cpu(), expected.sequences.cu_seqlens_S1)
