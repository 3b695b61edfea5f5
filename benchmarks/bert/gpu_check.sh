#!/usr/bin/env bash
# Runs every check that needs a GPU, in three commands of at most ten minutes each, the most valuable first:
#   gpu_check.sh --only where         where a step's time goes: each kernel's rate, whole steps, their kernels by name
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
carried=(pydantic mlperf_logging tokenizers argcomplete google_crc32c pynvml tqdm safetensors yaml)
missing() { "$python" -c 'import importlib.util as u, sys; print(*(n for n in sys.argv[1:] if not u.find_spec(n)))' "$@"; }
if compgen -G 'wheels/*.whl' >/dev/null && [[ -n $(missing "${carried[@]}") ]]; then
  export PYTHONPATH="$PYTHONPATH:$PWD/wheels/installed"
  "$python" -m pip install --quiet --no-index --no-deps --upgrade --target wheels/installed wheels/*.whl >&2 || true
fi
lacks="$(missing torch numpy h5py pytest)"
if [[ -n $lacks ]]; then
  echo "gpu_check: $python lacks $lacks; set PYTHON to a Python that has torch, numpy, h5py and pytest" >&2
  exit 2
fi
lacks="$(missing "${carried[@]}")"
if [[ -n $lacks ]]; then
  version="$("$python" -c 'import sys; print("{}.{}".format(*sys.version_info))')"
  echo "gpu_check: $python lacks $lacks; on a machine with a network, run \`make wheels WHEELS_FOR=$version\`, and copy wheels/ here" >&2
  exit 2
fi
exec "$python" -m lab.bench.gpu_check "$@"
