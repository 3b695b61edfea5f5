#!/usr/bin/env bash
# Runs of a system on this machine, each in a fresh container: run_with_docker.sh [SYSTEM] [options of run_and_time.sh]
# SYSTEM may be the path of a system file; its folder is then mounted, for the files beside it that it may extend.
#
#   CONT      image (default bertbench)
#   NEXP      runs, one after the other (default 1; a result needs 10); RUNS is the same
#   DATADIR   folder with the data, read only in the container (default: data/ in the repository)
#   LOGDIR    folder for results (default: runs/ in the repository)
#   GPUS      what `docker run --gpus` gets: all (default), or none for a system that computes on the CPU
# DGXSYSTEM instead of SYSTEM, SEED, LR and what else published submissions export go to the container, where they are
# honoured, or refused by name (docs/running.md).
set -euo pipefail

fail() {
  echo "run_with_docker.sh: $1" >&2
  exit 2
}

script="${BASH_SOURCE[0]}"
[[ ! -L "$script" ]] || script="$(readlink -f "$script")" # the one beside the configuration files
repository="$(cd "$(dirname "$script")/../../.." && pwd)"
named="${DGXSYSTEM:-${CONFIG_NAME:-}}"
if [[ $# -ge 1 && "$1" != -* ]]; then
  named="$1"
  shift
fi
[[ -n "$named" ]] || fail "no system given; source one of config_*.sh, or write a name that \`bertbench config list\` lists"
for variable in NEXP RUNS; do
  [[ "${!variable:-1}" =~ ^[1-9][0-9]*$ ]] || fail "$variable is '${!variable}'; set it to a number of at least 1"
done
runs="${NEXP:-${RUNS:-1}}"
[[ "${RUNS:-$runs}" == "$runs" ]] || fail "NEXP is $NEXP and RUNS is $RUNS; unset one of them"
[[ -v BERTBENCH_VARIABLES || -z "${SEED:-}" || "$runs" == 1 ]] ||
  fail "SEED=$SEED with $runs runs would make the same run several times; unset one of them"
data="${DATADIR:-$repository/data}"
results="${LOGDIR:-$repository/runs}"
[[ -d "$data" ]] || fail "$data is not a folder; set DATADIR to the one that holds the data"
command -v docker >/dev/null || fail "found no docker; install it, or use ./run_and_time.sh"
mkdir -p "$results"

# NCCL shares memory between the ranks (ipc) and pins it (memlock); torch's loader wants a larger stack.
options=(--rm --ipc=host --network=host --ulimit memlock=-1 --ulimit stack=67108864)
options+=(--stop-timeout 120) # for the snapshot that `docker stop` asks for: the run then ends with 75
options+=(--user "$(id -u):$(id -g)" --volume "$data:/data:ro" --volume "$results:/runs")
options+=(--env DATADIR=/data --env LOGDIR=/runs) # an image may have others
[[ "${GPUS:-all}" == none ]] || options+=(--gpus "${GPUS:-all}")

if [[ -n "${EVALDIR:-}" ]]; then
  [[ -d "$EVALDIR" ]] || fail "EVALDIR is $EVALDIR: not a folder; correct it, or unset it"
  EVALDIR="$(realpath "$EVALDIR")"
  options+=(--volume "$EVALDIR:$EVALDIR:ro")
fi
# What published submissions export (bertbench.launch.variables), unless `bertbench launch` has made arguments of it.
submission=(SEED DGXNNODES DGXNGPU WALLTIME WALLTIME_MINUTES BATCHSIZE GRADIENT_STEPS LR OPT_LAMB_BETA_1 OPT_LAMB_BETA_2
  WEIGHT_DECAY_RATE MAX_STEPS WARMUP_STEPS START_WARMUP_STEP MAX_SAMPLES_TERMINATION EVAL_ITER_SAMPLES
  TARGET_MLM_ACCURACY INIT_LOSS_SCALE EVALDIR EVAL_ITER_START_SAMPLES CHECKPOINTDIR CHECKPOINTDIR_PHASE1 DATADIR_PHASE2
  DATADIR_PHASE2_PACKED EXTRA_PARAMS MLPERF_SUBMISSION_ORG MLPERF_SUBMISSION_PLATFORM MLPERF_SUBMITTER MLPERF_SYSTEM_NAME
  MLPERF_STATUS MLPERF_DIVISION MLPERF_CLUSTER_NAME MLPERF_RULESET)
[[ ! -v BERTBENCH_VARIABLES ]] || submission=(BERTBENCH_VARIABLES)
for variable in "${submission[@]}" $(compgen -e | grep -E '^(NCCL|GLOO|UCX|TORCH_NCCL)_'); do
  [[ ! -v "$variable" ]] || options+=(--env "$variable=${!variable}")
done

if [[ "$named" == *.json ]]; then
  [[ -f "$named" ]] || fail "$named is not a file; give a system file, or the name of a system"
  options+=(--volume "$(realpath "$(dirname "$named")"):/systems:ro")
  set -- "/systems/$(basename "$named")" "$@"
elif [[ "$named" == "${DGXSYSTEM:-${CONFIG_NAME:-}}" && ! -v BERTBENCH_VARIABLES ]]; then
  options+=(--env DGXSYSTEM="$named") # a name of published submissions, too
else
  set -- "$named" "$@"
fi

worst=0
for ((run = 1; run <= runs; run++)); do
  cleared=0 # a container may not drop the machine's page cache: here, where the user may be allowed to
  if sync && sudo -n /sbin/sysctl -q vm.drop_caches=3 2>/dev/null; then cleared=1; fi
  code=0
  docker run "${options[@]}" --env BERTBENCH_CACHES_CLEARED="$cleared" --env BERTBENCH_LAUNCHED="$(date +%s.%N)" \
    "${CONT:-bertbench}" "$@" || code=$?
  ((code <= worst)) || worst=$code
  ((code == 0 || code == 3)) || exit "$code" # 3: ended in order without the target
done
exit "$worst"
