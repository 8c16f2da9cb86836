"""The shell scripts that start, report and end commands on the host."""

from __future__ import annotations

from typing import Final

# Written for dash, bash and busybox, which agree on `kill -0 -PID` and on little else about kill.
# `kx END KIND SCRIPT WORDS...` runs a script with words and then says so on both streams (on a terminal they are one,
# and that is stderr): END on stdout; on stderr END, a number, what the shell had to say of it (only if a signal ended
# it), the exit code, whether a child is left in the background, END. A command (c) may leave children behind, a
# question (q) is a script of ours that does not, and a builtin (b) of the shell that changes nothing in it needs no
# process at all.
#
# Every process that is started on the way costs the host more than all the rest, so where /proc tells enough (kx_o=y)
# there is just the one that the command needs: it shares the session of this shell, in which nothing else ever runs,
# so that all of it can be killed; a child that is left behind has a number between the last ones before and after it;
# and what the shell says of signals goes into a pipe, made of a here-document, and not into its output.
# Elsewhere each command gets a session of its own by `setsid`. bash says nothing of signals in POSIX mode, and in a
# `$()` only from a subshell.
SETUP: Final = r"""
exec 3>&1 4>&2
kx_w=
[ -t 3 ] && kx_w=y
for kx_d in /usr/local/sbin /usr/sbin /sbin; do
  case :$PATH: in *:$kx_d:*) ;; *) PATH=$PATH:$kx_d ;; esac
done
export PATH
unset CDPATH ENV kx_d
[ -z "$BASH_VERSION" ] || set +o posix
kx_o=n
if [ -z "$kx_y" ] && [ -r /proc/loadavg ] && [ -r /proc/$$/stat ]; then
  read -r kx_x kx_x kx_x kx_x kx_z </proc/loadavg
  read -r kx_x kx_x kx_x kx_x kx_g kx_v kx_x </proc/$$/stat
  # Some containers are shown the numbers of their host.
  if [ "$kx_z" -ge $$ ] && [ $((kx_z - $$)) -lt 5000 ]; then
    exec 5<<kx

kx
    read -r kx_x <&5
    if [ -p /proc/self/fd/5 ] && [ -w /proc/self/fd/5 ]; then exec 5<>/proc/self/fd/5 2>&5; kx_o=y; fi
  fi
fi
kx_in() {
  kx_i=$1
  read -r kx_x 2>/dev/null </proc/$1/stat || return
  set -- ${kx_x##*) }
  case $1 in Z|X) return ;; esac
  if [ "$4" = "$kx_v" ]; then kx_b=1; return; fi
  # In another session, it still writes to our streams if it has them open.
  for kx_f in /proc/$kx_i/fd/*; do
    if [ "$kx_f" -ef /proc/$$/fd/3 ] || [ "$kx_f" -ef /proc/$$/fd/4 ]; then kx_b=1; return; fi
  done
}
kx_left() {
  kx_n=$((kx_z - kx_a))
  if [ $kx_n -gt 0 ] && [ $kx_n -lt 200 ]; then
    while [ $kx_a -lt "$kx_z" ]; do
      kx_a=$((kx_a + 1))
      if [ -e /proc/$kx_a ]; then kx_in $kx_a; fi
    done
    return
  fi
  for kx_x in /proc/[0-9]*; do
    kx_x=${kx_x#/proc/} kx_i=0
    [ "$kx_x" -gt "$kx_a" ] && kx_i=1
    [ "$kx_x" -le "$kx_z" ] && kx_i=$((kx_i + 1))
    # The numbers may have begun anew meanwhile.
    if [ $kx_i = 2 ] || { [ $kx_n -le 0 ] && [ $kx_i = 1 ]; }; then kx_in "$kx_x"; fi
  done
}
if [ $kx_o = y ]; then
  # A command that signals its whole group means its own processes.
  trap : HUP INT QUIT TERM USR1 USR2
  kx_p="$kx_g $$"
  kx_run() {
    kx_t=$1 kx_k=$2 kx_b=0 kx_m=0; shift 2
    [ $kx_t != c ] || read -r kx_x kx_x kx_x kx_x kx_a </proc/loadavg
    if [ $kx_t = b ]; then eval "$kx_k"; else (eval "$kx_k"); fi
    kx_c=$?
    if [ $kx_c -gt 128 ]; then
      echo kx >&5
      while IFS= read -r kx_x <&5 && [ "$kx_x" != kx ]; do
        kx_m="$kx_m
$kx_x"
      done
    fi
    kx_m="$kx_m
$kx_c"
    [ $kx_t != c ] || {
      read -r kx_x kx_x kx_x kx_x kx_z </proc/loadavg
      [ $((kx_z - kx_a)) = 1 ] || kx_left
    }
  }
else
  # In another session a command would have no terminal. One that outlives its terminal is found by the shell that
  # waits for it, so that this has to outlive it too.
  kx_s=
  [ -n "$kx_y" ] || kx_s=$(command -v setsid 2>/dev/null) || kx_s=
  kx_r() (
    trap : HUP
    kx_k=$2; shift 2; export kx_v
    $kx_s /bin/sh -c "kx_p=\$\$; echo \$\$; $kx_k" /bin/sh "$@"
    echo $?
  )
  kx_run() {
    kx_m=$(kx_r "$@" 2>&1)
    kx_b=0
    kill -0 "-${kx_m%%[!0-9]*}" 2>/dev/null && kx_b=1
  }
fi
kx() {
  kx_e=$1; shift
  kx_run "$@"
  [ -n "$kx_w" ] || printf %s "$kx_e"
  printf '%s%s\n%s%s' "$kx_e" "$kx_m" "$kx_b" "$kx_e" >&4
}
"""
# Whom to kill and whom to leave; a shell that keeps all commands in one group needs to say so only once.
TELL: Final = "echo {start} $kx_p >&4; "
# Away from the streams that only the shell uses.
LAUNCH: Final = "exec >&3 2>&4 3>&- 4>&- 5<&-; "
# The same in the terminal's session, whose processes are a group already. The shell above may not outlive the terminal,
# so the command says who it is itself: its number, and when it began, which no other process with that number did.
LAUNCH_TTY: Final = (
    "g=$(read -r l </proc/$$/stat && set -- ${{l##*) }} && echo $3 =$$:${{20}}) 2>/dev/null; "
    "echo {start} ${{g:-$$}} >&4; exec >&3 2>&4 3>&- 4>&-; "
)
COMMAND: Final = 'exec "$@"'
BUILTIN: Final = '"$@" >&3 2>&4'
QUESTION: Final = 'eval "shift; $1"'
# The group, and a shell in it that outlives its commands. The dead that nobody has reaped yet still count for `kill`,
# so the living are looked for in /proc where there is one.
KILL: Final = """
p=$1 o=$2
k() { kill "-$1" "-$p" 2>/dev/null || kill "-$1" "$p" 2>/dev/null; }
lives() {
  k 0 || return 1
  [ -r /proc/self/stat ] || return 0
  for f in /proc/[0-9]*/stat; do
    case ${o:+$f} in "/proc/$p/stat"|"/proc/$o/stat") continue ;; esac
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
# Looks for what a lost connection has left (look), or ends it (end). The shells that wait for it (r) are known by a
# word in their command lines, given as a pattern; the rest (t) is whatever they have started, what is in the same
# groups, and the processes that are named with the moment when they began: a number that is used again means nobody
# else. It names in this way what it has found, or what it cannot end, and is an error then; whoever looks again needs
# that, since a process whose parent has ended cannot be told from others. For the same reason what stands between the
# shells and a process of somebody else, which cannot be ended, is held (b) and not ended: another session of the run
# knows nothing of what was found before.
END_LEFT: Final = r"""
[ -r /proc/self/cmdline ] && command -v grep >/dev/null || { echo 'no /proc or no grep on the host'; exit 1; }
w=$1 t=" $2 " a=$3
grouped() { case $g in *" $1 "*) ;; *) g="$g$1 " m=y ;; esac; }
found() {
  case $o in *" $1 "*) return ;; esac
  case $r$t in *" $2 "*|*" $2:"*) return ;; esac
  case $g in *" $3 "*) return ;; esac
  return 1
}
find_all() {
  o=$t t=' ' r=' ' g=' ' h=' ' m=y
  for f in $(grep -l -e "$w" /proc/[0-9]*/cmdline 2>/dev/null); do f=${f#/proc/}; r="$r${f%/*} "; done
  while [ -n "$m" ]; do
    m=
    for f in /proc/[0-9]*/stat; do
      read -r l 2>/dev/null <"$f" || continue
      i=${l%% *}
      set -- ${l##*) }
      case $1 in Z|X) continue ;; esac
      case $r in *" $i "*) grouped "$3"; continue ;; esac
      case $t in *" $i:${20} "*) continue ;; esac
      found "$i:${20}" "$2" "$3" || continue
      t="$t$i:${20} " h="$h$3 " m=y
      grouped "$3"
    done
  done
  [ "$t$r" != '  ' ]
}
hold() {
  b=' '
  for f in $t; do
    f=${f%:*}
    kill -0 "$f" 2>/dev/null && continue
    while read -r l 2>/dev/null </proc/$f/stat; do
      set -- ${l##*) }
      f=$2
      case $t in *" $f:"*) b="$b$f "; kill -STOP "$f" 2>/dev/null ;; *) break ;; esac
    done
  done
}
each() { for f in $t; do case $b in *" ${f%:*} "*) ;; *) kill "-$1" "${f%:*}" 2>/dev/null ;; esac; done; }
n=0
while find_all; do
  if [ "$a" = look ] || [ $n -ge 20 ]; then echo "processes$t"; exit 1; fi
  hold
  if [ "$t" = ' ' ]; then
    kill -KILL $r 2>/dev/null
  elif [ $n = 0 ]; then
    if [ "$b" != ' ' ]; then each TERM; else for f in $h; do kill -TERM "-$f" 2>/dev/null; done; fi
  elif [ $n -ge 10 ]; then
    # Nobody is to do the next thing because what it waited for has ended.
    each STOP
    each KILL
  fi
  sleep 0.2 || sleep 1
  n=$((n+1))
done
"""

# Removes the temporary folders of a session that was killed ($1: its mark), as the user whose they are.
CLEAR_LEFT: Final = r"""
for t in "${TMPDIR:-/tmp}" /tmp /var/tmp; do
  for f in "$t/kx.$1."*; do
    if [ -d "$f" ] && [ ! -L "$f" ] && [ -O "$f" ]; then rm -rf -- "$f"; fi
  done
done
"""
