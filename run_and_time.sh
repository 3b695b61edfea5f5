#!/usr/bin/env bash
# The one way to run: ./run_and_time.sh [SYSTEM] [--runs N] [options of `bertbench train`]
# Makes N timed runs of a system (default: DGXSYSTEM, CONFIG_NAME or cpu_demo, NEXP times or once) and leaves
# runs/SYSTEM/bert/result_<n>.txt for each. docs/running.md lists other variables that it honours.
set -euo pipefail

script="${BASH_SOURCE[0]}"
[[ ! -L "$script" ]] || script="$(readlink -f "$script")" # the one beside the configuration files
repository="$(cd "$(dirname "$script")" && pwd)"
case "$repository" in
  */site-packages/bertbench/share) python="$repository/../../../../../bin/python3" ;; # installed from a wheel
  *) python="$repository/.venv/bin/python" ;;
esac
if [[ ! -x "$python" ]]; then
  python=python3 # a container has everything in its own Python
  "$python" -P -c 'import bertbench' &>/dev/null || {
    echo "run_and_time.sh: neither $repository/.venv nor python3 has bertbench; run \`make setup\` in $repository" >&2
    exit 2
  }
fi

named="${DGXSYSTEM:-${CONFIG_NAME:-}}"
[[ ($# -gt 0 && "$1" != -*) || -n "$named" ]] || set -- cpu_demo "$@"
# -P: a folder named bertbench may lie in the working directory, as where the repository was cloned
exec "$python" -P -m bertbench launch "$@"
