#!/bin/sh
# Makes the base image of the test machines: image.sh FOLDER PACKAGES... It wants root and mount namespaces of its own, so that
# nothing is left mounted whatever happens; tools/machines.sh sees to that. What this file says is in the image's name.
set -eu
root=$1
shift
suite=bookworm
# Not installed: for tests that do it.
later="nginx postgresql-15 haproxy keepalived socat conntrack ethtool prometheus-node-exporter"

# The mirror that this machine is set up for; debootstrap knows one by itself.
mirror=$(apt-get indextargets 'Created-By: Packages' 'Origin: Debian' --format '$(REPO_URI) $(CODENAME)' 2>/dev/null \
  | awk '$2 !~ /-/ {print $1; exit}')
# shellcheck disable=SC2086 # no word if there is none
debootstrap --variant=minbase "$suite" "$root" $mirror
[ -n "$mirror" ] || mirror=$(awk '$1 == "deb" {print $2; exit}' "$root/etc/apt/sources.list")
echo "deb $mirror $suite main" >"$root/etc/apt/sources.list"
{
  apt-config dump | grep -i '^Acquire::[a-z]*::proxy' || true
  printf 'Acquire::Languages "none";\nAcquire::Check-Valid-Until "false";\n'
} >"$root/etc/apt/apt.conf.d/99lab"
cp -L /etc/resolv.conf "$root/etc/resolv.conf"
printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
chmod 0755 "$root/usr/sbin/policy-rc.d"
echo force-unsafe-io >"$root/etc/dpkg/dpkg.cfg.d/lab"
mount -t proc proc "$root/proc"

LATER=$later chroot "$root" sh -eu -s "$@" <<'INSIDE'
export DEBIAN_FRONTEND=noninteractive LC_ALL=C
apt-get -q update
apt-get -q -y --no-install-recommends install "$@" </dev/null
# Debian's dnf-plugins-core and zypper exclude each other: only what holds packages is taken out of it.
(cd /tmp && apt-get -q download dnf-plugins-core && dpkg-deb --fsys-tarfile dnf-plugins-core_*.deb |
  tar -x -C / --wildcards '*/dnf-plugins/versionlock.py' '*/dnfpluginscore/*' '*/plugins/versionlock.*' && rm dnf-plugins-core_*.deb)
# What tests install themselves: a repository on the machine's own disk, which nobody uses who does not name it.
(mkdir -p /usr/share/lab/debs/partial && cd /usr/share/lab/debs && apt-get -q -y --no-install-recommends --download-only \
  -o Dir::Cache::archives="$PWD/" install $LATER && rm -rf lock partial && apt-ftparchive packages . >Packages)
apt-get clean
rm -rf /var/lib/apt/lists/* /usr/share/doc/* /usr/share/man/* /usr/share/locale/* /usr/share/info/*
rm -f /etc/apt/apt.conf.d/99lab /usr/sbin/policy-rc.d /etc/ssh/ssh_host_* /etc/resolv.conf
# No machine reaches a mirror: tests bring repositories of their own.
: >/etc/apt/sources.list
printf 'UseDNS no\nHostKey /etc/ssh/ssh_host_ed25519_key\n' >/etc/ssh/sshd_config.d/lab.conf
systemctl set-default multi-user.target
systemctl enable ssh.service cron.service
for unit in nftables ufw firewalld; do systemctl disable "$unit.service"; done
# What would only cost time, or wait for a network or a console that no machine has.
systemctl mask systemd-networkd.service systemd-resolved.service systemd-timesyncd.service systemd-logind.service \
  systemd-update-utmp.service ldconfig.service getty.target console-getty.service e2scrub_reap.service \
  apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer fstrim.timer dnf-makecache.timer
INSIDE

umount "$root/proc"
