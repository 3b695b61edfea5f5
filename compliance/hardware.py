"""Bound how fast hardware can train BERT: accelerators' peak rates, divided by the arithmetic of a sample.

A bound, not a forecast: every multiplication runs at the peak of the narrowest format that closed allows.
"""

import re

from compliance.description import accelerators

# Dense peak in TFLOP/s from the vendors' data sheets: fp8 if the chip has it, else bf16 or fp16. The first name found
# in a description's model counts, so a longer name stands before its parts. Others count as the fastest, as do gb300,
# b300 and gb200 with their 5,000.
_PEAK_TFLOPS = (
    ("b200", 4500), ("gh200", 1979), ("h200nvl", 1671),
    ("h200", 1979), ("h100nvl", 1671), ("h100", 1979), ("h800", 1979), ("a100", 312), ("a800", 312), ("a30", 165),
    ("a40", 150), ("a10", 125), ("l40s", 733), ("l40", 362), ("l4", 242), ("v100", 125), ("t4", 65), ("rtx4090", 661),
    ("rtx6000ada", 728), ("a6000", 310), ("a5000", 222), ("mi355x", 5030), ("mi350x", 4600), ("mi325x", 2615),
    ("mi300x", 2615), ("mi250", 383), ("mi210", 181), ("gaudi3", 1835), ("gaudi2", 865), ("tpuv6", 918),
    ("trillium", 918), ("tpuv5p", 459), ("tpuv5e", 197), ("tpuv4", 275), ("tpuv3", 123), ("bow", 350), ("gc200", 250),
    ("ascend910", 320),
)  # fmt: skip
_PROCESSOR_TFLOPS = 300  # a socket with matrix units, such as 60 cores x 2,048 operations x 2.4 GHz
_MARGIN = 1.2  # chips may boost beyond the clock of their data sheet
# BERT-large's encoder has 24 x 12 x 1,024^2 weights, each multiplied and added three times for a real token (forward,
# and two products backward); MLPerf's samples average 256 real tokens (Graphcore's histogram of the dataset).
_FLOP_A_SAMPLE = 6 * 24 * 12 * 1024**2 * 250
# The most that any of these chips does for a joule is 4 TFLOP (5,000 TFLOP/s at 1,200 W).
LEAST_JOULES_A_SAMPLE = _FLOP_A_SAMPLE / 5e12
# The fastest published run takes 31 optimizer steps a second (4,096 TPU v4): 24 layers each way have a latency.
FASTEST_STEPS_A_SECOND = 200.0


def fastest(system: dict[str, str]) -> tuple[float, str] | None:
    """Return a described system's upper bound in samples/s, and what was counted; None if its size isn't described."""
    count, model = accelerators(system), system.get("accelerator_model_name", "").casefold()
    model = re.sub(r"(tpu|rtx|gaudi|h\d00|ascend|\d)[\W_]+(?=v\d|\d|nvl|ada)", r"\1", model)  # names in one piece
    if count is None:
        return None
    if count > 0:
        known = next((tflops for name, tflops in _PEAK_TFLOPS if re.search(rf"(?<![a-z\d]){name}(?!\d)", model)), None)
        peak = known or max(tflops for _, tflops in _PEAK_TFLOPS)
        counted = f"{count:,} accelerators with a peak of {peak:,} TFLOP/s"
        return _MARGIN * count * peak * 1e12 / _FLOP_A_SAMPLE, counted
    try:
        sockets = int(system["number_of_nodes"]) * int(system["host_processors_per_node"])
    except (KeyError, ValueError):
        return None
    counted = f"{sockets:,} processors with a peak of {_PROCESSOR_TFLOPS:,} TFLOP/s"
    return _MARGIN * sockets * _PROCESSOR_TFLOPS * 1e12 / _FLOP_A_SAMPLE, counted
