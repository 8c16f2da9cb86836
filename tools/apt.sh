#!/usr/bin/env bash
# Installs Debian packages for the tests: tools/apt.sh PACKAGE...
# The tests start servers of their own, so no service comes up because of it. Where it cannot, it prints why and fails.
set -uo pipefail

[ "$(id -u)" = 0 ] || { echo "not root, so nothing can be installed" && exit 1; }
command -v apt-get >/dev/null || { echo "no apt here to install $* with" && exit 1; }

if [ ! -e /usr/sbin/policy-rc.d ]; then
  printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d && chmod 0755 /usr/sbin/policy-rc.d
  trap 'rm -f /usr/sbin/policy-rc.d' EXIT
fi
install="apt-get install -y -qq --no-install-recommends $*"
DEBIAN_FRONTEND=noninteractive timeout 240 sh -c "$install || { apt-get update -qq && $install; }" >/dev/null 2>&1 \
  || { echo "apt could not install $*" && exit 1; }
