"""Folders kept the same on a full host whose root is an overlay: its files are on other devices than its folders."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubexm_exec.testing import StepTest
from tests.lab.machines import Machine

pytestmark = pytest.mark.xdist_group("machines")


def test_what_is_too_much_goes_also_from_an_overlay_and_what_is_mounted_inside_stays(
    machine: Machine, tmp_path: Path
) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "index").write_text("hello\n")
    machine.sh(
        "mkdir -p /srv/site/old /srv/site/disk && mount -t tmpfs kx /srv/site/disk && touch /srv/site/disk/kept"
        " && echo much >/srv/site/extra && echo much >/srv/site/old/file && ln -s /etc /srv/site/link"
    )
    world = StepTest(tmp_path, "sync", {"src": "site", "path": "/srv/site", "delete": True}, host=machine.host())
    listing = "cd /srv/site && find . ! -type d -o -empty | sort"
    try:
        before = machine.sh(listing)
        shown = {diff.path: diff.note for diff in world.forecast().diffs}
        assert shown["/srv/site/extra"] == shown["/srv/site/link"] == shown["/srv/site/old/file"] == "removed"
        assert shown["/srv/site/old"] == "folder removed"
        assert machine.sh(listing) == before
        world.run()
        assert machine.sh(listing).split() == ["./disk/kept", "./index"]
        world.rollback()
        assert machine.sh(listing) == before
    finally:
        world.close()
        machine.sh("umount /srv/site/disk; rm -rf /srv/site")
