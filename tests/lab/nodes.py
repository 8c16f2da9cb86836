"""Full hosts that can run a kubelet: control groups that they may divide, and plain folders for containers."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator

from tests.lab.machines import Machine, running

# Containers are unpacked to an overlay, which must not lie on another one.
_FOLDERS = ("containerd", "kubelet", "etcd")
# What the kernel has only once and the kubelet or a module sets: files of the machine's own.
_SETTINGS = {
    "vm/overcommit_memory": 1,
    "vm/panic_on_oom": 0,
    "kernel/panic": 10,
    "kernel/panic_on_oops": 1,
    "kernel/keys/root_maxkeys": 1000000,
    "kernel/keys/root_maxbytes": 25000000,
    "fs/inotify/max_user_instances": 128,
}
_MODULES = ("overlay", "br_netfilter", "nf_tables", "nf_conntrack", "vxlan")
_UNIT = """\
[Unit]
Description=What a kubelet needs of the lab
Before=ssh.service

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh /etc/lab-node.sh

[Install]
WantedBy=multi-user.target
"""


class Node(Machine):
    """A machine for a node of a cluster, with a repository of the packages that clusters need."""

    _controllers = True
    _environment = {**Machine._environment, "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "0"}  # noqa: RUF012

    @property
    def gateway(self) -> str:
        """The address of this computer on its network."""
        return self._ground.gateway

    def make(self) -> None:
        """Its disk, as that of any machine; its control groups are writable as soon as it is up."""
        super().make()
        for name in _FOLDERS:
            (self.folder / "plain" / name).mkdir(parents=True)
        etc = self.root / "etc"
        script = ["set -eu", "mount -o remount,rw,bind /sys/fs/cgroup", "mkdir -p /run/lab-node"]
        script += [
            f'[ ! -d "/sys/fs/cgroup/{each.parts[-3]}" ] || mount -o remount,rw,bind "/sys/fs/cgroup/{each.parts[-3]}"'
            for each in self._groups
        ]
        for name, value in _SETTINGS.items():
            file = f"/run/lab-node/{name.replace('/', '_')}"
            script += [f"echo {value} >{file}", f"mount --bind {file} /proc/sys/{name}"]
        script.append("mount --make-rshared /")
        (etc / "lab-node.sh").write_text("\n".join([*script, ""]))
        system = etc / "systemd" / "system"
        (system / "lab-node.service").write_text(_UNIT)
        (system / "multi-user.target.wants").mkdir(exist_ok=True)
        (system / "multi-user.target.wants" / "lab-node.service").symlink_to("/etc/systemd/system/lab-node.service")
        # Pods get it, and CoreDNS asks whoever it names: nobody answers there.
        (etc / "resolv.conf").write_text(f"nameserver {self.gateway}\n")
        (etc / "apt" / "sources.list.d" / "lab.list").write_text("deb [trusted=yes] file:/usr/share/lab/debs ./\n")
        # The kernel here has what nodes need built in, and a distribution's kernel would say so in these files.
        modules = self.root / "lib" / "modules" / os.uname().release
        modules.mkdir(parents=True)
        (modules / "modules.builtin").write_text("".join(f"kernel/lab/{name}.ko\n" for name in _MODULES))
        for name in ("modules.order", "modules.builtin.modinfo"):
            (modules / name).write_text("")
        subprocess.run(["chroot", str(self.root), "depmod", os.uname().release], check=True, timeout=60)

    def _options(self) -> list[str]:
        binds = [f"--bind={self.folder}/plain/{name}:/var/lib/{name}" for name in _FOLDERS]
        legacy = ["systemd.unified_cgroup_hierarchy=0", "systemd.legacy_systemd_cgroup_controller=1"]
        return [*binds, "--bind=/dev/kmsg", *legacy]


@contextlib.contextmanager
def nodes(count: int) -> Iterator[list[Node]]:
    """That many of them that are up, on one network; gone at the end."""
    with running(Node, count) as made:
        yield made
