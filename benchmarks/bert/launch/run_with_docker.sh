#!/usr/bin/env bash
# Run a system on this machine, each run in a fresh container: run_with_docker.sh [SYSTEM] [options of run_and_time.sh]
# SYSTEM may be the path of a system file. Its folder is then mounted, because the file may extend others next to it.
#
#   CONT      image (default: bertbench)
#   NEXP      number of runs, one after the other (default: 1; a result needs 10)
#   DATADIR   folder with the data, read-only in the container (default: data/ in the repository)
#   LOGDIR    folder for results (default: runs/ in the repository)
#   GPUS      value for `docker run --gpus`: all (default), or none for a system that computes on the CPU
# The container also receives the variables that published submissions export, such as SEED, LR, and DGXSYSTEM in place
# of SYSTEM. bertbench uses each of them, or refuses it by name (docs/running.md).
set -euo pipefail
unset CDPATH # with it, `cd` prints the folder

fail() {
  echo "run_with_docker.sh: $1" >&2
  exit 2
}

script="${BASH_SOURCE[0]}"
[[ ! -L "$script" ]] || script="$(readlink -f "$script")" # started by the link next to the configuration files
repository="$(cd "$(dirname "$script")/../../.." && pwd)"
named="${DGXSYSTEM:-${CONFIG_NAME:-${PGSYSTEM:-}}}"
if [[ $# -ge 1 && "$1" != -* ]]; then
  named="$1"
  shift
fi
[[ -n "$named" ]] || fail "no system given; source a config_*.sh, or give a name from \`bertbench config list\`"
runs="${NEXP:-1}"
[[ "$runs" =~ ^[1-9][0-9]*$ ]] || fail "NEXP is '$runs'; set it to a number of at least 1"
[[ -v BERTBENCH_RUN || -z "${SEED:-}" || "$runs" == 1 ]] ||
  fail "SEED=$SEED with $runs runs would repeat the same run; unset SEED, or make one run"
data="${DATADIR:-$repository/data}"
results="${LOGDIR:-$repository/runs}"
[[ -d "$data" ]] || fail "$data is not a folder; set DATADIR to the folder with the data"
command -v docker >/dev/null || fail "found no docker on this machine; install it, or use ./run_and_time.sh"
mkdir -p "$results"

# NCCL shares memory between the ranks (ipc) and pins it (memlock); torch's loader needs a larger stack.
options=(--rm --ipc=host --network=host --ulimit memlock=-1 --ulimit stack=67108864)
options+=(--stop-timeout 120) # on `docker stop`, the run writes a snapshot and ends with 75
options+=(--user "$(id -u):$(id -g)" --volume "$data:/data:ro" --volume "$results:/runs")
options+=(--env DATADIR=/data --env LOGDIR=/runs) # an image may set others
[[ "${GPUS:-all}" == none ]] || options+=(--gpus "${GPUS:-all}")

if [[ -n "${EVALDIR:-}" ]]; then
  [[ -d "$EVALDIR" ]] || fail "EVALDIR is $EVALDIR, which is not a folder; correct it, or unset it"
  EVALDIR="$(realpath "$EVALDIR")"
  options+=(--volume "$EVALDIR:$EVALDIR:ro")
fi
# Variables that published submissions export (bertbench.launch.variables), unless `bertbench launch` turned them into
# arguments.
submission=(DGXSYSTEM CONFIG_NAME PGSYSTEM SEED DGXNNODES DGXNGPU PGNNODES PGNGPU WALLTIME WALLTIME_MINUTES BATCHSIZE
  GRADIENT_STEPS LR OPT_LAMB_BETA_1 OPT_LAMB_BETA_2 WEIGHT_DECAY_RATE MAX_STEPS WARMUP_STEPS START_WARMUP_STEP
  MAX_SAMPLES_TERMINATION EVAL_ITER_SAMPLES TARGET_MLM_ACCURACY OPTIMIZER EPSILON END_LR START_STEPS GRAD_STEPS
  EVAL_ITER EVAL_START INIT_LOSS_SCALE EVALDIR EVAL_ITER_START_SAMPLES CHECKPOINTDIR CHECKPOINTDIR_PHASE1 UNITTEST
  WARMUP_PROPORTION DATADIR_PHASE2 DATADIR_PHASE2_PACKED EXTRA_PARAMS PACKING_FACTOR MLPERF_SUBMISSION_ORG
  MLPERF_SUBMISSION_PLATFORM MLPERF_SUBMITTER MLPERF_SYSTEM_NAME MLPERF_STATUS MLPERF_DIVISION MLPERF_CLUSTER_NAME
  MLPERF_RULESET)
[[ ! -v BERTBENCH_RUN ]] || submission=()
for variable in "${submission[@]}" $(compgen -e | grep -E '^(NCCL|GLOO|UCX|TORCH_NCCL)_'); do
  [[ ! -v "$variable" ]] || options+=(--env "$variable=${!variable}")
done

if [[ "$named" == *.json ]]; then
  [[ -f "$named" ]] || fail "$named: no such file; give a system file, or the name of a system"
  options+=(--volume "$(realpath "$(dirname "$named")"):/systems:ro")
  set -- "/systems/$(basename "$named")" "$@"
elif [[ "$named" != "${DGXSYSTEM:-${CONFIG_NAME:-${PGSYSTEM:-}}}" || -v BERTBENCH_RUN ]]; then
  set -- "$named" "$@"
fi

worst=0
for ((run = 1; run <= runs; run++)); do
  cleared=false # a container may not drop the machine's page cache, but this user perhaps may
  if sync && sudo -n /sbin/sysctl -q vm.drop_caches=3 2>/dev/null; then cleared=true; fi
  code=0
  told="${BERTBENCH_RUN:+$BERTBENCH_RUN&}caches_cleared=$cleared&began=$(date +%s.%N)" # bertbench.launch.run_options
  docker run "${options[@]}" --env BERTBENCH_RUN="$told" "${CONT:-bertbench}" "$@" || code=$?
  ((code <= worst)) || worst=$code
  ((code == 0 || code == 3)) || exit "$code" # 3: the run ended properly without reaching the target
done
exit "$worst"
