#!/usr/bin/env bash
# Makes ready what the tests of object stores need: moto's S3 server in an environment of its own, in a cache outside the
# checkout. Without it those tests skip, so this never fails.
#   tools/objectstore.sh           make the environment if it is missing
#   tools/objectstore.sh --where   print its folder, whether it is there or not
set -uo pipefail
packages=('moto[s3,server]>=5.1,<6' 'botocore>=1.35,<2')
cache=${KUBEXM_LAB_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/kubexm-lab}
python=${PYTHON:-python3}
version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)
# An environment of another recipe is another environment.
place=$cache/objectstore-$version-$(printf '%s\n' "${packages[@]}" | sha256sum | cut -c1-16)

if [ "${1:-}" = --where ]; then
  echo "$place"
  exit 0
fi

give_up() {
  echo "no object store ($1): the tests with a real one will be skipped" >&2
  exit 0
}

[ -e "$place/.complete" ] && exit 0
mkdir -p "$cache" || give_up "$cache cannot be made"
scratch=$(mktemp -d "$cache/.objectstore.XXXXXX") || give_up "no room in $cache"
trap 'rm -rf "$scratch"' EXIT
"$python" -m venv "$scratch" || give_up "no virtual environment can be made"
"$scratch/bin/python" -m pip --disable-pip-version-check --quiet install "${packages[@]}" || give_up "moto cannot be installed"
touch "$scratch/.complete"
# Only its Python and its packages are used, so that it does not matter where it was made.
mv -T "$scratch" "$place" 2>/dev/null || [ -e "$place/.complete" ] || give_up "$place cannot be made"
trap - EXIT
exit 0
