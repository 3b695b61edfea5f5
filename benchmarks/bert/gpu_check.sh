#!/usr/bin/env bash
# What only a GPU shows, within 25 minutes: JSON on standard output, gpu_check.json and gpu_check.html in runs/gpu_check.
# Needs a python3 (or PYTHON) with torch, numpy, h5py and pytest; what else is missing comes from wheels/, which
# `make wheels` fills on a machine with a network. On a CPU it skips parts by name.
# `--only A,B` chooses parts, `--out FOLDER` the folder; other options go to `bertbench lab step`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
export PYTHONPATH="$PWD/benchmarks/bert/implementation:$PWD${PYTHONPATH:+:$PYTHONPATH}"
python="${PYTHON:-python3}"
if compgen -G 'wheels/*.whl' >/dev/null && ! "$python" -c 'import pydantic, mlperf_logging' 2>/dev/null; then
  "$python" -m pip install --quiet --no-index --no-deps --upgrade --target wheels/installed wheels/*.whl >&2
  export PYTHONPATH="$PYTHONPATH:$PWD/wheels/installed"
fi
exec "$python" -m lab.bench.gpu_check "$@"
