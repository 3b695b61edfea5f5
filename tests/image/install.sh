#!/usr/bin/env bash
# What `make image-test` needs, on Debian or Ubuntu as root: tools that build and run containers without root, and an
# ordinary user for tests that are started by root. Elsewhere it says what is missing, and the tests skip themselves.
#   tests/image/install.sh [PACKAGES]    CI names those of the short form, test_short_image.py
set -euo pipefail

if [[ "$(id -u)" == 0 ]] && command -v apt-get >/dev/null; then
  # runc: crun refuses to work where cgroups of both versions are mounted
  [[ $# -gt 0 ]] || set -- buildah podman runc uidmap charliecloud mmdebstrap
  if ! dpkg --status "$@" >/dev/null 2>&1; then
    apt-get update --quiet --quiet
    apt-get install --yes --quiet --quiet --no-install-recommends "$@"
  fi
  id "${IMAGE_USER:=bertbench-image}" >/dev/null 2>&1 || useradd --create-home "$IMAGE_USER" # with its range of user ids
else
  for program in buildah podman runc newuidmap ch-run mmdebstrap; do
    command -v "$program" >/dev/null || echo "no $program here: install it, or the image's tests will be skipped" >&2
  done
fi
