"""The pieces of shell that start, tell and end commands on the far side."""

from __future__ import annotations

from typing import Final

# Written for dash, bash and busybox, which agree on `kill -0 -PID` and on little else about kill.
# `kx END KIND SCRIPT WORDS...` runs a script with words and then says so on both streams: END on stdout; on stderr END,
# the pid, what the shell had to say of it (only if a signal ended it), the exit code, whether a child is left in the
# background, END. bash says nothing of signals in POSIX mode, and in a `$()` only from a subshell.
# A command (c) gets a session of its own. A question (q) is a script of ours that leaves nothing behind: it shares the
# session of this shell if that has one of its own, and needs no new program. Every program that is started on the way
# costs the host more than all the rest, so where /proc says who a subshell is, none but setsid is.
SETUP: Final = r"""
exec 3>&1 4>&2
for kx_d in /usr/local/sbin /usr/sbin /sbin; do
  case :$PATH: in *:$kx_d:*) ;; *) PATH=$PATH:$kx_d ;; esac
done
export PATH
unset CDPATH ENV kx_d
kx_s=$(command -v setsid 2>/dev/null) || kx_s=
kx_o=n
if [ -n "$kx_s" ] && [ -r /proc/self/stat ]; then
  read -r kx_a kx_b kx_c kx_d kx_g kx_x </proc/$$/stat
  if [ "$kx_g" = $$ ]; then kx_o=g; else kx_o=p; fi
fi
kx_d=
kx_r() {
  kx_t=$1$kx_o kx_k=$2; shift 2
  case $kx_t in
  qg) (kx_p=$$; eval "$kx_k") ;;
  c[gp]) (read -r kx_p kx_x </proc/self/stat; kx_d=y; eval "$kx_k") ;;
  *) $kx_s /bin/sh -c "kx_p=\$\$ kx_d=; $kx_k" /bin/sh "$@" ;;
  esac
  echo $?
}
if [ -n "$BASH_VERSION" ]; then set +o posix; kx_run() (kx_r "$@"); else kx_run() { kx_r "$@"; }; fi
kx() {
  kx_e=$1; shift
  kx_m=$(kx_run "$@" 2>&1)
  kx_b=0; [ "$1$kx_o" = qg ] || { kill -0 "-${kx_m%%[!0-9]*}" 2>/dev/null && kx_b=1; }
  printf '%s%s\n%s%s' "$kx_e" "$kx_m" "$kx_b" "$kx_e" >&4
  printf %s "$kx_e"
}
"""
# Who it is, then away from the streams that only the shell uses.
LAUNCH: Final = "echo $kx_p; echo {start} $kx_p >&4; exec >&3 2>&4 3>&- 4>&-; "
# The same in the terminal's session, whose processes are a group already.
LAUNCH_TTY: Final = (
    "g=$(read -r l </proc/$$/stat && set -- ${{l##*) }} && echo $3) 2>/dev/null; "
    "echo $$; echo {start} ${{g:-$$}} >&4; exec >&3 2>&4 3>&- 4>&-; "
)
# setsid would say in words of its own that there is no such program.
COMMAND: Final = '[ -n "$kx_d" ] && command -v "$1" >/dev/null 2>&1 && exec "$kx_s" "$@"; exec "$@"'
QUESTION: Final = 'eval "shift; $1"'
# The dead that nobody has reaped yet still count for `kill`, so the living are looked for in /proc where there is one.
KILL: Final = """
p=$1
k() { kill "-$1" "-$p" 2>/dev/null || kill "-$1" "$p" 2>/dev/null; }
lives() {
  k 0 || return 1
  [ -r /proc/self/stat ] || return 0
  for f in /proc/[0-9]*/stat; do
    read -r l 2>/dev/null <"$f" || continue
    set -- ${l##*) }
    if [ "$3" = "$p" ]; then case $1 in Z|X) ;; *) return 0 ;; esac; fi
  done
  return 1
}
k TERM || exit 0
i=0
while lives && [ $i -lt 20 ]; do sleep 0.1 || sleep 1; i=$((i+1)); done
k KILL
:
"""
