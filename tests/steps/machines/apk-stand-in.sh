# A stand-in for apk, which Debian does not have: an index, a database and a world file, and the answers of apk 2.14.
set -e
rm -rf /srv/apk && mkdir -p /srv/apk/build /etc/apk /var/cache/apk
: >/etc/apk/world
: >/srv/apk/db
cat >/srv/apk/index <<'END'
kx-tool 1.0-r0
kx-tool 1.2-r3
kx-tool 2.0-r0
kx-lib 1.0-r0
kx-app 1.0-r0 kx-lib
END
touch /var/cache/apk/APKINDEX.00000000.tar.gz
printf 'pkgname = kx-tool\npkgver = 2.0-r0\n' >/srv/apk/build/.PKGINFO
tar -czf /srv/apk/kx-tool-2.0-r0.apk -C /srv/apk/build .PKGINFO
cat >/usr/local/bin/apk <<'END'
#!/bin/sh
db=/srv/apk/db index=/srv/apk/index world=/etc/apk/world
die() { echo "ERROR: $*" >&2; exit 1; }
have() { sed -n "s/^$1 //p" $db; }
say() { n=$((n + 1)); echo "($n/?) $*" | sed 's/?/9/'; }
put() { # NAME VERSION
  old=$(have "$1")
  if [ -z "$old" ]; then say "Installing $1 ($2)"; elif [ "$old" = "$2" ]; then return; else say "Upgrading $1 ($old -> $2)"; fi
  [ -n "$dry" ] || { grep -v "^$1 " $db >$db.new; echo "$1 $2" >>$db.new; sort $db.new >$db; }
  for dep in $(awk -v n="$1" -v v="$2" '$1 == n && $2 == v {for (i = 3; i <= NF; i++) print $i}' $index); do
    [ -n "$(have "$dep")" ] || put "$dep" "$(awk -v n="$dep" '$1 == n {v = $2} END {print v}' $index)"
  done
}
dry= n=0
if [ "$1" = --simulate ]; then dry=1; shift; fi
what=$1; shift
case $what in
  update) touch /var/cache/apk/APKINDEX.00000000.tar.gz ;;
  info)
    [ "$1" = -v ] && exec sed 's/ /-/' $db
    [ "$1" = -ev ] || die "what is info $1?"
    v=$(have "$2"); [ -n "$v" ] && echo "$2-$v"
    ;;
  search) [ "$1" = -q ] || die "what is search $1?"; awk '{print $1}' $index | sort -u | grep "^${2%\*}" ;;
  policy)
    for name do
      versions=$(awk -v n="$name" '$1 == n {print $2}' $index)
      [ -n "$versions" ] || continue
      echo "$name policy:"
      for v in $versions; do
        echo "  $v:"
        [ "$(have "$name")" != "$v" ] || echo "    lib/apk/db/installed"
        echo "    https://packages.example.com/main"
      done
    done
    ;;
  add)
    [ "$1" != --allow-untrusted ] || shift
    for spec do
      case $spec in
        /*) put kx-tool 2.0-r0; name=kx-tool spec=kx-tool ;;
        *)
          name=${spec%%=*} v=${spec#"$name"}; v=${v#=}
          [ -n "$v" ] || v=$(have "$name")
          [ -n "$v" ] || v=$(awk -v n="$name" '$1 == n {v = $2} END {print v}' $index)
          grep -q "^$name $v\( \|$\)" $index || die "unable to select packages: $spec (no such package)"
          put "$name" "$v"
          ;;
      esac
      [ -n "$dry" ] || { grep -v "^$name\(=\|$\)" $world >$world.new; echo "$spec" >>$world.new; sort $world.new >$world; rm $world.new; }
    done
    ;;
  del)
    for name do
      v=$(have "$name"); [ -n "$v" ] || continue
      say "Purging $name ($v)"
      [ -n "$dry" ] || { sed -i "/^$name /d" $db; sed -i "/^$name\(=\|$\)/d" $world; }
      for dep in $(awk -v n="$name" '$1 == n {for (i = 3; i <= NF; i++) print $i}' $index | sort -u); do
        grep -q "^$dep\(=\|$\)" $world || { say "Purging $dep ($(have "$dep"))"; [ -n "$dry" ] || sed -i "/^$dep /d" $db; }
      done
    done
    ;;
  *) die "'$what' is not an apk command" ;;
esac
END
chmod 755 /usr/local/bin/apk
