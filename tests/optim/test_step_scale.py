import torch

from bertbench.config.optimizer import LearningRate
from bertbench.optim.step_scale import LossScaler


def test_the_scale_halves_at_an_overflow_and_doubles_after_two_thousand_quiet_steps() -> None:
    scaler = LossScaler(LearningRate(1.0, 0.0, 0, 0, 7), 7, 512.0, ranks=4, device=torch.device("cpu"))
    held, fine, overflow = scaler.factor, torch.tensor(True), torch.tensor(False)
    assert held.item() == 2048.0
    scaler.adjust(overflow)
    for _ in range(1_999):
        scaler.adjust(fine)
    assert held.item() == 1024.0
    scaler.adjust(fine)
    assert held.item() == 2048.0
    scaler.adjust(fine)
    assert held.item() == 2048.0, "it counts anew"
    assert scaler.resume(0).item() == 2_001
    scaler.reset()
    assert (held.item(), scaler.resume(0).item()) == (2048.0, 0)
