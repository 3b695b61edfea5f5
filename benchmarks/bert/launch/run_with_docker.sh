#!/usr/bin/env bash
# Runs of a system on this machine, each in a fresh container: run_with_docker.sh SYSTEM [options of run_and_time.sh]
# SYSTEM may be the path of a system file; its folder is then mounted, for the files beside it that it may extend.
#
#   CONT      image (default bertbench)
#   RUNS      runs, one after the other (default 1; a result needs 10)
#   DATADIR   folder with the data, read only in the container (default: data/ in the repository)
#   LOGDIR    folder for results (default: runs/ in the repository)
#   GPUS      what `docker run --gpus` gets: all (default), or none for a system that computes on the CPU
set -euo pipefail

fail() {
  echo "run_with_docker.sh: $1" >&2
  exit 2
}

repository="$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)"
[[ $# -ge 1 ]] || fail "no system given; \`bertbench systems\` lists them"
runs="${RUNS:-1}"
[[ "$runs" =~ ^[1-9][0-9]*$ ]] || fail "RUNS is '$runs'; set it to a number of at least 1"
data="${DATADIR:-$repository/data}"
results="${LOGDIR:-$repository/runs}"
[[ -d "$data" ]] || fail "$data is not a folder; set DATADIR to the one that holds the data"
command -v docker >/dev/null || fail "found no docker; install it, or use ./run_and_time.sh"
mkdir -p "$results"

# NCCL shares memory between the ranks (ipc) and pins it (memlock); torch's loader wants a larger stack.
options=(--rm --ipc=host --network=host --ulimit memlock=-1 --ulimit stack=67108864)
options+=(--stop-timeout 120) # for the snapshot that `docker stop` asks for: the run then ends with 75
options+=(--user "$(id -u):$(id -g)" --volume "$data:/data:ro" --volume "$results:/runs")
[[ "${GPUS:-all}" == none ]] || options+=(--gpus "${GPUS:-all}")

if [[ "$1" == *.json ]]; then
  [[ -f "$1" ]] || fail "$1 is not a file; give a system file, or the name of a system"
  options+=(--volume "$(realpath "$(dirname "$1")"):/systems:ro")
  set -- "/systems/$(basename "$1")" "${@:2}"
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
