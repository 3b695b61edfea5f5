#!/usr/bin/env bash
# What the Slurm tests need, for `make test-all`: Debian's or Ubuntu's Slurm and munge, 10 seconds and 30 MB.
# It installs only as root with apt-get; elsewhere it says so, and the tests skip themselves. No daemon is left running:
# Debian starts none without a slurm.conf, and tests/slurm/cluster.py starts its own in a folder of its own.
set -euo pipefail

if command -v slurmctld >/dev/null && command -v slurmd >/dev/null && command -v munged >/dev/null; then
  echo "Slurm is installed: $(slurmctld -V)"
elif [[ "$(id -u)" == 0 ]] && command -v apt-get >/dev/null; then
  apt-get update --quiet
  apt-get install --yes --quiet --no-install-recommends slurm-wlm munge
else
  echo "no Slurm here, and installing it needs root and apt-get: its tests will be skipped" >&2
fi
