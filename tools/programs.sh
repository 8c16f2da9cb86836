#!/usr/bin/env bash
# Looks for etcd, containerd and a registry and, as root on a machine with apt, installs them: tests of steps put them on full hosts,
# unless newer ones were built for that. Without them those tests skip, so this never fails.
set -uo pipefail

[ "$(command -v etcd etcdctl containerd docker-registry | wc -l)" = 4 ] && exit 0

give_up() {
  echo "no etcd, containerd or docker-registry ($1): tests of steps that need them will be skipped" >&2
  exit 0
}

[ -z "${KUBEXM_NO_PROGRAMS:-}" ] || give_up "KUBEXM_NO_PROGRAMS is set"
echo "installing etcd, containerd and docker-registry for the tests of steps (KUBEXM_NO_PROGRAMS=1 leaves them out)" >&2
why=$("$(dirname "$0")/apt.sh" etcd-server etcd-client containerd runc docker-registry) || give_up "$why"
