#!/usr/bin/env bash
# Looks for sshd and sudo and, as root on a machine with apt, installs them: the SSH tests connect to real servers. Without them
# those tests skip, so this never fails.
set -uo pipefail
PATH=$PATH:/usr/sbin:/sbin

command -v sshd >/dev/null && command -v sudo >/dev/null && exit 0

give_up() {
  echo "no sshd or no sudo ($1): some SSH tests will be skipped" >&2
  exit 0
}

[ -z "${KUBEXM_NO_SSHD:-}" ] || give_up "KUBEXM_NO_SSHD is set"
[ "$(id -u)" = 0 ] || give_up "not root, so they cannot be installed"
command -v apt-get >/dev/null || give_up "no apt here to install them with"

# The tests start servers of their own: the system's must not come up because of them.
if [ ! -e /usr/sbin/policy-rc.d ]; then
  printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d && chmod 0755 /usr/sbin/policy-rc.d
  trap 'rm -f /usr/sbin/policy-rc.d' EXIT
fi
install='apt-get install -y -qq --no-install-recommends openssh-server sudo'
echo "installing openssh-server and sudo for the SSH tests (KUBEXM_NO_SSHD=1 leaves them out)" >&2
DEBIAN_FRONTEND=noninteractive timeout 240 sh -c "$install || { apt-get update -qq && $install; }" >/dev/null 2>&1 \
  || give_up "apt could not install them"
