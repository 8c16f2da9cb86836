# Tiny packages in repositories on the host itself, made once, and everything that looks at them as if it were new.
# /var/lib/kx/clean.sh puts the host back to what it was.
set -e
export DEBIAN_FRONTEND=noninteractive GNUPGHOME=/var/lib/kx/gnupg

deb() { # NAME VERSION [MORE LINES OF CONTROL]
  d=/var/lib/kx/build/$1
  rm -rf "$d" && mkdir -p "$d/DEBIAN" "$d/etc/$1"
  echo "$2" >"$d/etc/$1/version"
  printf '/etc/%s/version\n' "$1" >"$d/DEBIAN/conffiles"
  printf 'Package: %s\nVersion: %s\nArchitecture: all\nMaintainer: T <t@example.com>\nDescription: %s\n%s' \
    "$1" "$2" "$1" "${3:+$3
}" >"$d/DEBIAN/control"
  [ -z "$4" ] || { printf '#!/bin/sh\n%s\n' "$4" >"$d/DEBIAN/postinst" && chmod 755 "$d/DEBIAN/postinst"; }
  dpkg-deb --root-owner-group -b "$d" /var/lib/kx/apt/ >/dev/null
}
rpm_() { # NAME VERSION RELEASE [MORE LINES OF THE SPEC]
  printf 'Name: %s\nVersion: %s\nRelease: %s\nSummary: t\nLicense: MIT\nBuildArch: noarch\n%s\n%%description\nt\n%%files\n' \
    "$1" "$2" "$3" "$4" >/var/lib/kx/build/spec
  rpmbuild -bb --quiet --define '_rpmdir /var/lib/kx/rpm' --define '_topdir /var/lib/kx/build/rpm' \
    --define '_build_name_fmt %%{NAME}-%%{VERSION}-%%{RELEASE}.rpm' /var/lib/kx/build/spec >/dev/null 2>&1
}

# Debian's rpm keeps a database in each user's home; zypper, as everywhere else, one for the whole system.
mkdir -p /etc/rpm && echo '%_dbpath /var/lib/rpm' >/etc/rpm/macros.kx
if [ ! -e /var/lib/kx/made ]; then
  rm -rf /var/lib/kx && mkdir -p /var/lib/kx/apt /var/lib/kx/rpm /var/lib/kx/build
  mkdir -m 700 "$GNUPGHOME"
  deb kx-tool 1.0-1
  deb kx-tool 1.2-1
  deb kx-tool 1.2-3
  deb kx-tool 2.0-1
  deb kx-lib 1.0
  deb kx-app 1.0 'Depends: kx-lib'
  deb kx-extra 1.0
  deb kx-plus 1.0 'Recommends: kx-extra'
  deb kx-rival 1.0 'Conflicts: kx-tool'
  deb kx-mailer 3.1 'Provides: kx-mail'
  deb kx-broken 1.0 '' 'echo "it cannot be" >&2; exit 3'
  deb kx-slow 1.0 'Depends: kx-lib' 'touch /var/lib/kx/started; while [ -e /var/lib/kx/wait ]; do sleep 0.1; done'
  (cd /var/lib/kx/apt && apt-ftparchive packages . >Packages && apt-ftparchive release . >Release)
  rpm_ kx-keep 1.0 1 'Provides: /bin/sh' # zypper on Debian fails on an empty database
  rpm_ kx-tool 1.0 1
  rpm_ kx-tool 1.2 1
  rpm_ kx-tool 1.2 3
  rpm_ kx-tool 2.0 1
  rpm_ kx-lib 1.0 1
  rpm_ kx-app 1.0 1 'Requires: kx-lib'
  rpm_ kx-extra 1.0 1
  rpm_ kx-plus 1.0 1 'Recommends: kx-extra'
  rpm_ kx-rival 1.0 1 'Conflicts: kx-tool'
  rpm_ kx-mailer 3.1 1 'Provides: kx-mail'
  rpm_ kx-aged 1.0 1 'Epoch: 2'
  rpm_ kx-slow 1.0 1 '%pre
touch /var/lib/kx/started; while [ -e /var/lib/kx/wait ]; do sleep 0.1; done'
  createrepo_c -q /var/lib/kx/rpm
  gpg -q --batch --passphrase '' --quick-generate-key 'KX <kx@example.com>' rsa2048 sign never 2>/dev/null
  gpg -q --export --armor >/var/lib/kx/key.asc
  (cd /var/lib/kx/apt && gpg -q --clearsign -o InRelease Release && rm Release)
  gpg -q --detach-sign --armor /var/lib/kx/rpm/repodata/repomd.xml
  gpgconf --kill all
  mkdir /var/lib/kx/was
  cp -a /etc/apt/sources.list /var/lib/kx/was/
  cat >/var/lib/kx/clean.sh <<'END'
export DEBIAN_FRONTEND=noninteractive
cp -a /var/lib/kx/was/sources.list /etc/apt/sources.list
rm -rf /etc/apt/sources.list.d/kx* /etc/apt/keyrings/kx* /etc/yum.repos.d/kx* /etc/zypp/repos.d/kx* /etc/pki/rpm-gpg/*kx*
rm -rf /var/cache/dnf/kx* /var/cache/zypp/*/kx /etc/zypp/locks
: >/etc/dnf/plugins/versionlock.list
apt-mark unhold $(apt-mark showhold) >/dev/null 2>&1
dpkg --force-all --purge $(dpkg-query -W -f '${Package}\n' 'kx-*' 2>/dev/null) >/dev/null 2>&1
rpm -e --nodeps $(rpm -qa 'kx-*' | grep -v kx-keep) $(rpm -qa gpg-pubkey) >/dev/null 2>&1
rm -f /etc/rpm/macros.kx
find /var/lib/apt/lists -type f -o -type l | grep -v /lock | xargs -r rm -f
exit 0
END
  rpm -i --nosignature /var/lib/kx/rpm/kx-keep-1.0-1.rpm 2>/dev/null
  touch /var/lib/kx/made
fi
sh /var/lib/kx/clean.sh
echo '%_dbpath /var/lib/rpm' >/etc/rpm/macros.kx
mkdir -p /etc/yum.repos.d /etc/zypp/repos.d
echo 'deb [signed-by=/var/lib/kx/key.asc] file:/var/lib/kx/apt ./' >/etc/apt/sources.list
printf '[kx]\nname=kx\nbaseurl=file:///var/lib/kx/rpm\ngpgcheck=0\nenabled=1\n' | tee /etc/yum.repos.d/kx.repo >/etc/zypp/repos.d/kx.repo
