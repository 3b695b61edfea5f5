#!/usr/bin/env bash
# Build the image's `cpu` target as an ordinary user: buildah in a chroot, on a Debian base that mmdebstrap makes.
#   tests/image/build.sh SOURCE WORK [buildah's build options, such as --build-arg PIP_INDEX_URL=URL]
# It leaves the image localhost/bertbench in WORK/storage, and the same as a folder in WORK/bertbench, which charliecloud
# runs. BASE names an image to start from where a registry is at hand, MIRROR a mirror of Debian where its own isn't.
# Minutes and 5 GB. The machine's certificates, and a folder in PIP_FIND_LINKS, are there while it is built.
set -euo pipefail

[[ $# -ge 2 ]] || { echo "build.sh: give the project's folder, and one to work in" >&2; exit 2; }
source="$1" work="$2"
shift 2
mkdir -p "$work"
export BUILDAH_ISOLATION=chroot
storage=(--root "$work/storage" --runroot "$work/run" --storage-driver overlay)

if [[ -z "${BASE:-}" ]]; then
  BASE=localhost/base
  mmdebstrap --quiet --mode=unshare --variant=minbase --include=python3,python3-venv,python3-pip,ca-certificates \
    bookworm "$work/base.tar" ${MIRROR:+"$MIRROR"}
  container="$(buildah "${storage[@]}" from scratch)"
  buildah "${storage[@]}" add --quiet "$container" "$work/base.tar" /
  buildah "${storage[@]}" commit --quiet --rm "$container" "$BASE"
  rm "$work/base.tar"
fi
options=(--volume /etc/ssl/certs:/etc/ssl/certs:ro)
if [[ -d "${PIP_FIND_LINKS:-}" ]]; then
  options+=(--build-arg "PIP_FIND_LINKS=$PIP_FIND_LINKS" --volume "$PIP_FIND_LINKS:$PIP_FIND_LINKS:ro")
fi
buildah "${storage[@]}" build --target cpu --build-arg "FROM_IMAGE_NAME=$BASE" "${options[@]}" "$@" \
  --tag localhost/bertbench "$source"

mkdir "$work/bertbench"
container="$(podman "${storage[@]}" create localhost/bertbench)"
podman "${storage[@]}" export "$container" | tar --extract --directory "$work/bertbench" --exclude "dev/*"
podman "${storage[@]}" rm "$container"
