#!/usr/bin/env bash
# Looks for Chromium and, as root on a machine with apt, installs it: the browser tests drive it. Without it they skip, so this never fails.
set -uo pipefail

for name in chromium chromium-browser google-chrome; do
  command -v "$name" >/dev/null && exit 0
done

give_up() {
  echo "no Chromium ($1): the browser tests will be skipped" >&2
  exit 0
}

[ -z "${KUBEXM_NO_BROWSER:-}" ] || give_up "KUBEXM_NO_BROWSER is set"
[ "$(id -u)" = 0 ] || give_up "not root, so it cannot be installed"
command -v apt-get >/dev/null || give_up "no apt here to install it with"

install='apt-get install -y -qq --no-install-recommends chromium'
echo "installing Chromium for the browser tests (KUBEXM_NO_BROWSER=1 leaves it out)" >&2
DEBIAN_FRONTEND=noninteractive timeout 240 sh -c "$install || { apt-get update -qq && $install; }" >/dev/null 2>&1 \
  || give_up "apt could not install it"
