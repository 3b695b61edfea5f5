"""Sizes of a gradient in `lab exchange`: codes worked out by hand."""

import torch

from lab.exchange.sizes import entropy_bits, int8_levels, rice_bits, sizes


def test_gaps_between_places_are_coded_in_quotient_and_remainder() -> None:
    # places 0, 5, 6 have gaps 0, 4, 0. With parameter 0: 4 + 3 x 1 = 7 bits; with 1: 2 + 3 x 2 = 8; with 2: 1 + 9
    assert rice_bits(torch.tensor([0, 5, 6])) == 7
    # gaps 7, 7: parameter 3 takes 2 x 4 bits, 2 takes 2 x (1 + 3), 0 takes 14 + 2
    assert rice_bits(torch.tensor([7, 15])) == 8


def test_an_ideal_code_takes_one_bit_for_each_of_two_equally_frequent_levels() -> None:
    assert entropy_bits(torch.tensor([3, 3, 9, 9])) == 4
    assert entropy_bits(torch.tensor([5, 5, 5])) == 0
    assert int8_levels(torch.tensor([0.5, -1.0, 0.0])).tolist() == [64, -127, 0]


def test_the_size_of_a_gradient_is_the_number_of_bytes_sent() -> None:
    gradient = torch.tensor([0.0, 8.0, 0.0, 0.0, 0.0, 0.0, -6.0, 0.0])  # root mean square: sqrt(100 / 8) = 3.54
    rows = {row.form: row for row in sizes(gradient, share=0.125, threshold=1.5)}
    assert rows["fp32"].bytes == 32
    assert rows["top-k 12%"].bytes == 8
    assert rows["top-k 12%, positions coded"].bytes == 5  # 32 bits, and gap 1 in 2 bits
    assert (rows["above 1.5 rms"].elements_sent, rows["above 1.5 rms"].bytes) == (2, 16)
    assert rows["int8"].bytes == 8 + 4
