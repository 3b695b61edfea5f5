#!/usr/bin/env bash
# Runs every check that needs a GPU, in four commands of at most ten minutes each, the most valuable first:
#   gpu_check.sh --only where         where a step's time goes: each kernel's rate, whole steps, their kernels by name
#   gpu_check.sh --only variants      other batches and kernels; compares their losses with those of the first variant
#   gpu_check.sh --only correctness   compares every fast path with plain arithmetic
#   gpu_check.sh --only product       transformers' step, then BERT-Large and the demo by run_and_time.sh
# Each result is written immediately to runs/gpu_check/gpu_check.json; `--out FOLDER` chooses another folder.
# The last line says which checks held, which failed, and which were not reached.
# It needs a python3 (or PYTHON) with torch, numpy, h5py and pytest. Other missing packages come from wheels/, which
# `make wheels` fills on a machine with a network. Without a GPU, parts run at a small size, or until they need the GPU.
set -euo pipefail
unset CDPATH # `cd` would look there first
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
export PYTHONPATH="$PWD/benchmarks/bert/implementation:$PWD${PYTHONPATH:+:$PYTHONPATH}"
python="${PYTHON:-python3}"
if compgen -G 'wheels/*.whl' >/dev/null && ! "$python" -c 'import pydantic, mlperf_logging, tokenizers' 2>/dev/null; then
  "$python" -m pip install --quiet --no-index --no-deps --upgrade --target wheels/installed wheels/*.whl >&2
  export PYTHONPATH="$PYTHONPATH:$PWD/wheels/installed"
fi
exec "$python" -m lab.bench.gpu_check "$@"
