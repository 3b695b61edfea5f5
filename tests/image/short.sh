#!/usr/bin/env bash
# Build the image's `cpu` target and run its entry point for a few steps, without network: the short form that CI runs.
#   tests/image/short.sh WORK
# WORK/source is the project's folder. The base is this machine's /usr and the Python packages in WORK/packages, both
# mounted and read-only, so that nothing is downloaded; pip may use no index. The run's log becomes WORK/smoke_0.txt, its
# origin WORK/run.json, with the commit that COMMIT names.
set -euo pipefail

work="$1"
export BUILDAH_ISOLATION=chroot
storage=(--root "$work/storage" --runroot "$work/run" --storage-driver overlay)
mounts=(--volume /usr:/usr:ro --volume "$work/packages:/packages:ro")

mkdir -p "$work"/base/{usr,packages,etc,tmp}
ln -s usr/bin usr/sbin usr/lib usr/lib64 "$work/base/"
chmod 1777 "$work/base/tmp"
echo 'root:x:0:0:root:/root:/bin/sh' >"$work/base/etc/passwd"
echo 'root:x:0:' >"$work/base/etc/group"
container="$(buildah "${storage[@]}" from scratch)"
buildah "${storage[@]}" add --quiet "$container" "$work/base" /
buildah "${storage[@]}" config --env PATH=/usr/sbin:/usr/bin --env PYTHONPATH=/packages --env PIP_NO_INDEX=1 "$container"
buildah "${storage[@]}" commit --quiet --rm "$container" localhost/base

buildah "${storage[@]}" build --target cpu --build-arg FROM_IMAGE_NAME=localhost/base --build-arg COMMIT="$COMMIT" \
  "${mounts[@]}" --tag localhost/bertbench "$work/source"

command="$(buildah "${storage[@]}" inspect --type image \
  --format '{{range .OCIv1.Config.Entrypoint}}{{.}} {{end}}{{range .OCIv1.Config.Cmd}}{{.}} {{end}}' localhost/bertbench)"
read -ra words <<<"$command"
container="$(buildah "${storage[@]}" from localhost/bertbench)"
inside=(buildah "${storage[@]}" run "${mounts[@]}" "$container" --)
"${inside[@]}" "${words[@]}" --smoke
"${inside[@]}" /bin/cat /runs/cpu_demo/smoke/smoke_0.txt >"$work/smoke_0.txt"
"${inside[@]}" /bin/cat /runs/cpu_demo/smoke/smoke_0/run.json >"$work/run.json"
