#!/usr/bin/env bash
# Makes ready what the tests on full hosts need, as root on a machine with apt: the tools, and a base image in a cache outside the
# checkout. Without them those tests skip, so this never fails.
#   tools/machines.sh           install and build what is missing
#   tools/machines.sh --where   print the folder of the image that the recipe makes, whether it is there or not
set -uo pipefail
PATH=$PATH:/usr/sbin:/sbin
lab=$(cd "$(dirname "$0")/../tests/lab" && pwd)
cache=${KUBEXM_LAB_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/kubexm-lab}
mapfile -t packages < <(grep -v '^#' "$lab/packages.txt" | tr -s ' ' '\n')
# An image of another recipe is another image.
image=$cache/base-$({ cat "$lab/image.sh" && printf '%s\n' "${packages[@]}"; } | sha256sum | cut -c1-16)

if [ "${1:-}" = --where ]; then
  echo "$image"
  exit 0
fi

give_up() {
  echo "no test machines ($1): the tests on full hosts will be skipped" >&2
  exit 0
}

[ -z "${KUBEXM_NO_MACHINES:-}" ] || give_up "KUBEXM_NO_MACHINES is set"
[ "$(id -u)" = 0 ] || give_up "not root"

wanted=()
while read -r tool package; do
  command -v "$tool" >/dev/null || wanted+=("$package")
done <<'TOOLS'
systemd-nspawn systemd-container
debootstrap debootstrap
nft nftables
ip iproute2
ssh-keygen openssh-client
nsenter util-linux
TOOLS

if [ "${#wanted[@]}" -gt 0 ]; then
  echo "installing ${wanted[*]} for the tests on full hosts (KUBEXM_NO_MACHINES=1 leaves them out)" >&2
  why=$("$(dirname "$0")/apt.sh" "${wanted[@]}") || give_up "$why"
fi

unshare -m true 2>/dev/null || give_up "no mount namespaces here"
mkdir -p "$cache" || give_up "cannot write $cache"
exec 9>"$cache/lock"
if ! flock -n 9; then
  echo "somebody else is building the image of the test machines: waiting for it" >&2
  flock 9
fi
if [ -d "$image" ]; then
  touch "$image" # somebody asks for it: see the end
  exit 0
fi

rm -rf "$cache"/building.*
echo "building the image of the test machines in $cache, once (two minutes or so)" >&2
new=$cache/building.$$
log=$cache/build.log
unshare -m -p -f --kill-child sh "$lab/image.sh" "$new" "${packages[@]}" >"$log" 2>&1 9>&- &
pid=$!
trap 'kill "$pid" 2>/dev/null; rm -rf "$new"' EXIT
since=$SECONDS
until timeout 10 tail --pid="$pid" -f /dev/null; do
  printf '  %3d s  %s\n' $((SECONDS - since)) "$(tail -n 1 "$log" | cut -c1-100)" >&2
done
wait "$pid" || {
  tail -n 20 "$log" >&2
  give_up "the image could not be built, see $log"
}
mv "$new" "$image" || give_up "cannot write $image"
echo "the image is there after $((SECONDS - since)) s: $(du -sh "$image" | cut -f1)" >&2
# Images of older recipes that nobody has asked for lately.
find "$cache" -maxdepth 1 -name 'base-*' -mtime +30 -exec rm -rf {} +
