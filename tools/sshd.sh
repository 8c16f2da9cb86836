#!/usr/bin/env bash
# Looks for sshd, sudo, busybox and csh and, as root on a machine with apt, installs them: the SSH tests connect to real servers and
# try every shell. Without them those tests skip, so this never fails.
set -uo pipefail
PATH=$PATH:/usr/sbin:/sbin

command -v sshd >/dev/null && command -v sudo >/dev/null && command -v busybox >/dev/null && command -v csh >/dev/null && exit 0

give_up() {
  echo "no sshd, sudo, busybox or csh ($1): some SSH tests will be skipped" >&2
  exit 0
}

[ -z "${KUBEXM_NO_SSHD:-}" ] || give_up "KUBEXM_NO_SSHD is set"
echo "installing openssh-server, sudo, busybox and csh for the SSH tests (KUBEXM_NO_SSHD=1 leaves them out)" >&2
why=$("$(dirname "$0")/apt.sh" openssh-server sudo busybox csh) || give_up "$why"
