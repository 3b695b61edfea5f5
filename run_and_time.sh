#!/usr/bin/env bash
# Make timed runs of a system: ./run_and_time.sh [SYSTEM] [--runs N] [options of `bertbench train`]
# Without SYSTEM it takes DGXSYSTEM, CONFIG_NAME, PGSYSTEM or cpu_demo; without --runs it makes NEXP runs, or one. Each run writes
# runs/SYSTEM/bert/result_<n>.txt. docs/running.md lists the other variables that it reads.
set -euo pipefail
unset CDPATH # with it, `cd` prints the folder
# apptainer shows ~/.local in the container, whose packages would come before those of an image
export PYTHONNOUSERSITE=1

script="${BASH_SOURCE[0]}"
[[ ! -L "$script" ]] || script="$(readlink -f "$script")" # started by the link next to the configuration files
repository="$(cd "$(dirname "$script")" && pwd)"
case "$repository" in
  */site-packages/bertbench/share) python="$repository/../../../../../bin/python3" ;; # installed from a wheel
  *) python="$repository/.venv/bin/python" ;;
esac
if [[ ! -x "$python" ]]; then
  python=python3 # in a container, everything is installed in its own Python
  "$python" -P -c 'import bertbench' &>/dev/null || unset PYTHONNOUSERSITE # installed by `pip install --user`
  "$python" -P -c 'import bertbench' &>/dev/null || {
    echo "run_and_time.sh: neither $repository/.venv nor python3 has bertbench; install it there, see docs/install.md" >&2
    exit 2
  }
fi

named="${DGXSYSTEM:-${CONFIG_NAME:-${PGSYSTEM:-}}}"
if [[ ($# -eq 0 || "$1" == -*) && -z "$named" ]]; then
  for variable in BATCHSIZE GRADIENT_STEPS LR OPT_LAMB_BETA_1 OPT_LAMB_BETA_2 WEIGHT_DECAY_RATE MAX_STEPS WARMUP_STEPS \
    START_WARMUP_STEP MAX_SAMPLES_TERMINATION EVAL_ITER_SAMPLES TARGET_MLM_ACCURACY; do
    if [[ -n "${!variable:-}" ]]; then
      echo "run_and_time.sh: $variable is exported, but nothing names a system; give SYSTEM, or export DGXSYSTEM" >&2
      exit 2
    fi
  done
  set -- cpu_demo "$@"
fi
# -P ignores a folder named bertbench in the working directory, such as a clone of the repository
exec "$python" -P -m bertbench launch "$@"
