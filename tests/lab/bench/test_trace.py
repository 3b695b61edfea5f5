import pytest

from lab.bench.trace import exposed


def kernel(name: str, start: float, end: float, cat: str = "kernel") -> dict[str, object]:
    """An event of torch.profiler's Chrome trace, times in microseconds."""
    return {"ph": "X", "cat": cat, "name": name, "ts": start, "dur": end - start}


def test_communication_is_exposed_where_no_other_kernel_runs() -> None:
    events = [
        kernel("gemm", 0, 400),
        kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 100, 300),  # hidden
        kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 350, 1000),  # hidden for 50 and 100 of its 650
        kernel("layer_norm", 500, 600),
        kernel("dropout", 550, 600),  # on another stream: counts once
        kernel("lamb", 1000, 1500),
    ]
    communication, alone = exposed(events)
    assert communication == pytest.approx(0.85)
    assert alone == pytest.approx(0.5)


def test_communication_in_pieces_counts_once_and_what_is_no_kernel_hides_nothing() -> None:
    events = [
        kernel("ncclKernel_AllReduce", 0, 100),
        kernel("ncclKernel_AllReduce", 50, 150),
        kernel("aten::mm", 0, 150, cat="cpu_op"),
        kernel("Memcpy HtoD", 0, 150, cat="gpu_memcpy"),
        {"ph": "M", "name": "process_name"},
    ]
    assert exposed(events) == (0.15, 0.15)


def test_a_trace_without_communication_exposes_none() -> None:
    assert exposed([kernel("gemm", 0, 10)]) == (0.0, 0.0)
