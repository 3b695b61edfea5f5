"""State NVIDIA's data-center GPUs' dense peak by number format. The project has no other table of peaks.

The rates come from NVIDIA's data sheet of each product (nvidia.com/en-us/data-center) and are without sparsity. Where a
sheet states only the sparse rate of tensor cores, the table has half of it. `fp32` is the rate outside tensor cores;
`tf32` is the rate of float32 operands that are rounded for tensor cores. A GPU that isn't in the table has no known
peak, and neither has a part of a GPU (MIG).
"""

import re

_A100 = {"fp32": 19.5, "tf32": 156.0, "bf16": 312.0, "fp16": 312.0}
_H100_SXM = {"fp32": 66.9, "tf32": 494.0, "bf16": 989.0, "fp16": 989.0, "fp8": 1979.0}
_H100_NVL = {"fp32": 60.0, "tf32": 417.0, "bf16": 835.0, "fp16": 835.0, "fp8": 1671.0}
DENSE_TFLOPS: dict[str, dict[str, float]] = {
    "B200": {"fp32": 75.0, "tf32": 1125.0, "bf16": 2250.0, "fp16": 2250.0, "fp8": 4500.0},
    "H200 NVL": _H100_NVL,
    "H200": _H100_SXM,
    "GH200": _H100_SXM,
    "H100 NVL": _H100_NVL,
    "H100 PCIe": {"fp32": 51.2, "tf32": 378.0, "bf16": 756.0, "fp16": 756.0, "fp8": 1513.0},
    "H100": _H100_SXM,
    "H20": {"fp32": 44.0, "tf32": 74.0, "bf16": 148.0, "fp16": 148.0, "fp8": 296.0},
    "A100 PCIe": _A100,
    "A100": _A100,
    "A800": _A100,
    "A40": {"fp32": 37.4, "tf32": 74.8, "bf16": 149.7, "fp16": 149.7},
    "A30": {"fp32": 10.3, "tf32": 82.0, "bf16": 165.0, "fp16": 165.0},
    "A10": {"fp32": 31.2, "tf32": 62.5, "bf16": 125.0, "fp16": 125.0},
    "L40S": {"fp32": 91.6, "tf32": 183.0, "bf16": 362.05, "fp16": 362.05, "fp8": 733.0},
    "L40": {"fp32": 90.5, "tf32": 90.5, "bf16": 181.05, "fp16": 181.05, "fp8": 362.0},
    "L4": {"fp32": 30.3, "tf32": 60.0, "bf16": 121.0, "fp16": 121.0, "fp8": 242.5},
    "V100 PCIe": {"fp32": 14.0, "fp16": 112.0},
    "V100": {"fp32": 15.7, "fp16": 125.0},
    "T4": {"fp32": 8.1, "fp16": 65.0},
}
"""A row matches a GPU whose name contains all words of the key; a longer key comes before the shorter one in it."""
SOURCE = "NVIDIA's data sheet, dense"


def gpu_kind(device_name: str) -> str | None:
    """Return the key in `DENSE_TFLOPS` for a GPU's name, by its driver or in a system file; None if there is none."""
    words = set(re.split(r"[^a-z0-9]+", device_name.lower()))
    if "mig" in words:
        return None
    return next((kind for kind in DENSE_TFLOPS if set(kind.lower().split()) <= words), None)
