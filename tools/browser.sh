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
echo "installing Chromium for the browser tests (KUBEXM_NO_BROWSER=1 leaves it out)" >&2
why=$("$(dirname "$0")/apt.sh" chromium) || give_up "$why"
