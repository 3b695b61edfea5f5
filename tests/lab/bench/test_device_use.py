"""How busy a run's devices are between two times of its log."""

import sys

import pytest

from lab.bench.device_use import UseSample, gpu_use, processor_use, run_sampled

_SAMPLES = (
    UseSample(1000.0, {7: 30.0}, 0.1),
    UseSample(2000.0, {7: 30.5, 8: 2.0}, 0.3),
    UseSample(3000.0, {7: 31.0, 8: 3.0, 9: 0.25}, 0.8),
    UseSample(4000.0, {7: 31.5, 8: 3.5, 9: 1.0}, 0.7),
    UseSample(5000.0, {7: 99.0}, 0.0),
)


def test_processor_use_is_that_of_the_samples_between_start_and_stop() -> None:
    # from 2 s to 4 s: 1.0 of process 7, 1.5 of 8, 1.0 of 9, which began in between
    assert processor_use(_SAMPLES, 1500.0, 4500.0, cores=2) == pytest.approx(3.5 / (2 * 2))
    assert processor_use(_SAMPLES, 1500.0, 2500.0, cores=2) is None, "one sample has no duration"


def test_gpu_use_is_the_mean_between_start_and_stop() -> None:
    assert gpu_use(_SAMPLES, 1500.0, 4500.0) == pytest.approx(0.6)
    assert gpu_use([UseSample(2000.0, {})], 1500.0, 4500.0) is None


def test_a_program_that_its_launcher_starts_is_sampled_to_its_end() -> None:
    spin = "import time\nwhile time.process_time() < 0.5: pass\nprint('spun')"
    launcher = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {spin!r}]); sys.exit(3)"
    done, samples = run_sampled([sys.executable, "-c", launcher], gpus=0)
    assert (done.returncode, done.stdout) == (3, "spun\n")
    most_s = max(seconds for sample in samples for seconds in sample.processor_s.values())
    assert 0.1 < most_s < 1, "the launcher only waits; the last sample is at most 0.2 s before the end"
