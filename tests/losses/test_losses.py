"""A refactoring keeps losses to the bit: the shortest settings of the net, trained as users train them."""

import pytest

from tests.losses.net import SHORTEST, Net, difference, recorded


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Net:
    return Net(tmp_path_factory.mktemp("net"))


@pytest.mark.parametrize("setting", SHORTEST)
def test_the_losses_of_20_steps_are_the_recorded_ones(net: Net, setting: str) -> None:
    expected, same_processor = recorded()
    assert difference(net.losses(setting), expected[setting], same_processor=same_processor) is None


def test_one_changed_bit_is_a_difference_on_the_processor_that_recorded() -> None:
    assert difference([2.5, 2.0], [2.5, 2.0], same_processor=True) is None
    assert difference([2.5, 2.0000002], [2.5, 2.0], same_processor=True)
    assert difference([2.5], [2.5, 2.0], same_processor=True)
    assert difference([2.5, float("nan")], [2.5, 2.0], same_processor=False)
