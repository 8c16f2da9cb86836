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
echo "installing postgresql for the tests of the journal (KUBEXM_NO_POSTGRES=1 leaves it out)" >&2
why=$("$(dirname "$0")/apt.sh" postgresql) || give_up "$why"
