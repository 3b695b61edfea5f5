"""Describe the GPU's clocks, power and throttling as its driver reports them."""

import subprocess

from bertbench.common.children import dying_with_us
from lab.bench.gpu.testbed import Row, Unfit

_STATE = ("nvidia-smi", "-q", "-i", "0", "-d", "CLOCK,POWER,PERFORMANCE,TEMPERATURE")
_ANSWER_S = 30.0


def clocks_and_power(when: str) -> Row:
    """Return clocks, power limit, temperature and reasons for throttling, as nvidia-smi prints them.

    Raises Unfit if there is no nvidia-smi.
    """
    try:
        done = subprocess.run(
            _STATE, capture_output=True, text=True, check=True, timeout=_ANSWER_S, preexec_fn=dying_with_us()
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise Unfit(f"nvidia-smi didn't answer: {error}") from error
    lines = [" ".join(line.split()) for line in done.stdout.splitlines() if line.strip()]
    return {"state": when, "nvidia_smi": lines, "holds": True}
