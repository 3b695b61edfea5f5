#!/usr/bin/env bash
# What only a GPU shows, within 25 minutes: JSON on standard output, gpu_check.json and gpu_check.html in runs/gpu_check.
# Installs nothing: needs a python3 (or PYTHON) with torch, numpy and pytest. On a CPU it skips parts by name.
# `--only A,B` chooses parts, `--out FOLDER` the folder; other options go to `bertbench bench step`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
export PYTHONPATH="$PWD/benchmarks/bert/implementation:$PWD${PYTHONPATH:+:$PYTHONPATH}"
exec "${PYTHON:-python3}" -m bertbench.bench.gpu_check "$@"
