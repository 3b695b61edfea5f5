"""Bound how fast hardware can train BERT: accelerators' peak rates, divided by the arithmetic of a sample.

A bound, not a forecast: published runs, those in fp8 too, reach at most half of a chip's peak in 16 bits.
"""

import re

from compliance.description import in_all

# Dense peak in TFLOP/s from the vendors' data sheets, in bf16 or fp16, and the chips that have it. The longest name in
# a description's model counts. Others count as the fastest, as do gb300, b300 and gb200 with their 2,500.
_PEAKS = """
2515 mi355x
2300 mi350x
2250 b200
1835 gaudi3
1307 mi325x mi300x
989 gh200 h200 h100 h800
918 tpuv6 trillium
835 h200nvl h100nvl
459 tpuv5p
432 gaudi2
383 mi250
364 rtx6000ada
362 l40s
350 bow
330 rtx4090
320 ascend910
312 a100 a800
275 tpuv4
250 gc200
197 tpuv5e
181 mi210 l40
165 a30
155 a6000
150 a40
125 a10 v100
123 tpuv3
121 l4
111 a5000
65 t4
"""
_TFLOPS = {name: int(peak) for peak, *names in map(str.split, _PEAKS.strip().splitlines()) for name in names}
_PROCESSOR_TFLOPS = 300  # a socket with matrix units, such as 60 cores x 2,048 operations x 2.4 GHz
_REACHED = 0.8  # of a peak; of 255 published results the best reaches 0.49
# BERT-large's encoder has 24 x 12 x 1,024^2 weights, each multiplied and added three times for a real token (forward,
# and two products backward); MLPerf's samples average 256 real tokens (Graphcore's histogram of the dataset).
_FLOP_A_SAMPLE = 6 * 24 * 12 * 1024**2 * 250
# At its peak in fp8, the best of these chips does 4 TFLOP for a joule (5,000 TFLOP/s at 1,200 W), without its host.
# Training reaches half of a chip's peak; eight H100s with their host do 0.5 TFLOP for a joule.
LEAST_JOULES_A_SAMPLE = _FLOP_A_SAMPLE / 2.5e12
# The fastest published run takes 31 optimizer steps a second (4,096 TPU v4): 24 layers each way have a latency.
FASTEST_STEPS_A_SECOND = 200.0


def fastest(system: dict[str, str]) -> tuple[float, str] | None:
    """Return a described system's upper bound in samples/s, and what was counted; None if its size isn't described."""
    count, model = in_all(system), system.get("accelerator_model_name", "").casefold()
    model = re.sub(r"(tpu|rtx|gaudi|h\d00|ascend|\d)[\W_]+(?=v\d|\d|nvl|ada)", r"\1", model)  # names in one piece
    named = [(len(name), peak) for name, peak in _TFLOPS.items() if re.search(rf"(?<![a-z\d]){name}(?!\d)", model)]
    kind, peak = "accelerators", max(named)[1] if named else max(_TFLOPS.values())
    if count is not None and count <= 0:
        kind, peak, count = "processors", _PROCESSOR_TFLOPS, in_all(system, "host_processors_per_node")
    if count is None:
        return None
    return _REACHED * count * peak * 1e12 / _FLOP_A_SAMPLE, f"{count:,} {kind} at {_REACHED:.0%} of {peak:,} TFLOP/s"
