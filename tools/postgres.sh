#!/usr/bin/env bash
# Looks for PostgreSQL and, as root on a machine with apt, installs it: the tests of the journal use a real server of their own.
# Without it those tests skip, so this never fails.
set -uo pipefail

for initdb in /usr/lib/postgresql/*/bin/initdb $(command -v initdb); do
  [ -x "$initdb" ] && exit 0
done

give_up() {
  echo "no PostgreSQL ($1): the tests of the journal that need it will be skipped" >&2
  exit 0
}

[ -z "${KUBEXM_NO_POSTGRES:-}" ] || give_up "KUBEXM_NO_POSTGRES is set"
[ "$(id -u)" = 0 ] || give_up "not root, so it cannot be installed"
command -v apt-get >/dev/null || give_up "no apt here to install it with"

# The tests start servers of their own: the system's must not come up because of them.
if [ ! -e /usr/sbin/policy-rc.d ]; then
  printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d && chmod 0755 /usr/sbin/policy-rc.d
  trap 'rm -f /usr/sbin/policy-rc.d' EXIT
fi
install='apt-get install -y -qq --no-install-recommends postgresql'
echo "installing postgresql for the tests of the journal (KUBEXM_NO_POSTGRES=1 leaves it out)" >&2
DEBIAN_FRONTEND=noninteractive timeout 240 sh -c "$install || { apt-get update -qq && $install; }" >/dev/null 2>&1 \
  || give_up "apt could not install it"
