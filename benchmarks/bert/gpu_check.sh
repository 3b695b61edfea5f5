#!/usr/bin/env bash
# What a GPU shows: the tests that need one, then the benches, as JSON on standard output. Installs nothing.
# Needs a python3 (or PYTHON) with torch, numpy and pytest. `--only tests|step|overlap` runs a part;
# other options go to `bertbench bench step`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
export PYTHONPATH="$PWD/benchmarks/bert/implementation:$PWD${PYTHONPATH:+:$PYTHONPATH}"
exec "${PYTHON:-python3}" -m bertbench.bench.gpu_check "$@"
