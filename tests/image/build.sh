#!/usr/bin/env bash
# Build the image's `cpu` target for real and run the demo in it, without a container engine: buildah in a chroot, on a
# Debian base that debootstrap makes. Needs root, buildah and debootstrap; minutes and some GB in WORK.
#   tests/image/build.sh WORK [buildah's build options, such as --build-arg PIP_FIND_LINKS=DIR --volume DIR:DIR]
# MIRROR names a Debian mirror where debootstrap's own doesn't do.
set -euo pipefail

[[ $# -ge 1 ]] || { echo "build.sh: give a folder to work in" >&2; exit 2; }
repository="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
work="$1"
shift
mkdir -p "$work"
base="$work/base"
if [[ ! -e "$base/.whole" ]]; then
  debootstrap --variant=minbase --include=python3,python3-venv,python3-pip,ca-certificates bookworm "$base" ${MIRROR:+"$MIRROR"}
  touch "$base/.whole"
fi

export BUILDAH_ISOLATION=chroot
storage=(--root "$work/storage" --runroot "$work/run" --storage-driver vfs) # leaves no mounts behind
container="$(buildah "${storage[@]}" from scratch)"
buildah "${storage[@]}" copy "$container" "$base" /
buildah "${storage[@]}" commit --rm "$container" localhost/base
buildah "${storage[@]}" build --target cpu --build-arg FROM_IMAGE_NAME=localhost/base "$@" --tag localhost/bertbench "$repository"

# `docker run IMAGE`, step by step: the image's user, environment, entry point and command.
container="$(buildah "${storage[@]}" from localhost/bertbench)"
buildah "${storage[@]}" run "$container" -- /workspace/bertbench/run_and_time.sh cpu_demo
buildah "${storage[@]}" run "$container" -- cat /runs/cpu_demo/bert/result_0.txt > "$work/result_0.txt"
buildah "${storage[@]}" rm "$container"
