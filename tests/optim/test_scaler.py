import torch

from bertbench.optim.scaler import LossScaler


def test_the_scale_halves_at_an_overflow_and_doubles_after_two_thousand_quiet_steps() -> None:
    scaler = LossScaler(512.0, ranks=4, device=torch.device("cpu"))
    held, fine, overflow = scaler.scale, torch.tensor(True), torch.tensor(False)
    assert held.item() == 2048.0
    scaler.update(overflow)
    for _ in range(1_999):
        scaler.update(fine)
    assert held.item() == 1024.0
    scaler.update(fine)
    assert held.item() == 2048.0
    scaler.update(fine)
    assert held.item() == 2048.0, "it counts anew"
    assert scaler.taken.item() == 2_001
    scaler.reset()
    assert (held.item(), scaler.taken.item()) == (2048.0, 0)
