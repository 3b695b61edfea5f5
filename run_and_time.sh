#!/usr/bin/env bash
# The one way to run: ./run_and_time.sh [SYSTEM] [--runs N] [options of `bertbench train`]
# Makes N timed runs of a system (default: one of cpu_demo) and leaves runs/SYSTEM/bert/result_<n>.txt for each.
set -euo pipefail

repository="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
case "$repository" in
  */site-packages/bertbench/share) python="$repository/../../../../../bin/python3" ;; # installed from a wheel
  *) python="$repository/.venv/bin/python" ;;
esac
[[ -x "$python" ]] || python=python3 # a container has everything in its own Python

[[ $# -gt 0 && "$1" != -* ]] || set -- cpu_demo "$@"
# -P: a folder named bertbench may lie in the working directory, as where the repository was cloned
exec "$python" -P -m bertbench launch "$@"
