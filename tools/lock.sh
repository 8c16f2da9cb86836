#!/usr/bin/env bash
# Resolves the dependencies of pyproject.toml into requirements*.lock, for every platform, with hashes.
# uv is fetched into a scratch environment: it is no dependency of the project.
# Pins that still satisfy pyproject.toml are kept; UPGRADE=1 takes the newest of everything.
set -euo pipefail
cd "$(dirname "$0")/.."

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
"${PYTHON:-python3}" -m venv "$scratch"
"$scratch/bin/python" -m pip --disable-pip-version-check --quiet install uv

compile() {
  local out=$1
  shift
  # Neither the index nor local wheel folders are written down: a lock file is good wherever the packages come from.
  "$scratch/bin/uv" pip compile --quiet --universal --generate-hashes --python-version 3.11 \
    --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" ${UPGRADE:+--upgrade} \
    --output-file "$out" "$@"
}

# Each is pinned to the one before it, so that one environment can take them all.
compile requirements.lock pyproject.toml
compile requirements-build.lock --group build --constraints requirements.lock
compile requirements-dev.lock pyproject.toml --group dev --constraints requirements.lock --constraints requirements-build.lock
compile requirements-bench.lock pyproject.toml --group bench --constraints requirements-dev.lock

# What we are compared with has nothing to do with us; but fabric shall have the same libraries below it as we have.
compile requirements-bench-ssh-ansible.lock --group bench-ssh-ansible
compile requirements-bench-ssh-pyinfra.lock --group bench-ssh-pyinfra
compile requirements-bench-ssh-fabric.lock --group bench-ssh-fabric --constraints requirements.lock
