from bertbench.optim.zero import deal


def test_parameters_are_dealt_whole_the_largest_first_to_the_least_loaded_rank() -> None:
    # 90 -> rank 0; 50, 30 -> rank 1 (80); 20 -> rank 1 (100); 7 -> rank 0 (97)
    assert deal([20, 90, 7, 50, 30], ranks=2) == [1, 0, 0, 1, 1]
    assert deal([3], ranks=3) == [0], "more ranks than parameters: some keep nothing"
