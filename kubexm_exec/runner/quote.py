"""The one place where data is made safe for a POSIX shell."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from typing import Final

from kubexm_exec.connectors.base import OWN_SCRIPT, Command, Readable

EACH: Final = r"""
each() {
  if xargs --version >/dev/null 2>&1 </dev/null || ! printf 'x\0' | IFS= read -r -d '' kx_w 2>/dev/null; then
    kx_n=$1; shift; xargs -0 -n "$kx_n" "$@"; return
  fi
  kx_k=$(($# - 1)) kx_n=$(($# - 1 + $1)); shift
  while IFS= read -r -d '' kx_w; do
    set -- "$@" "$kx_w"
    if [ $# -eq $kx_n ]; then
      "$@" </dev/null || return
      kx_i=0
      for kx_w do shift; if [ $kx_i -lt $kx_k ]; then set -- "$@" "$kx_w"; fi; kx_i=$((kx_i + 1)); done
    fi
  done
  [ $# -eq $kx_k ] || "$@" </dev/null
}
"""
"""``each NUMBER COMMAND...`` runs a command with the words of its input, each ended by NUL, so many at a time.

The xargs of busybox (such as 1.35) sometimes corrupts a word where it splits its input; there the shell reads them.
"""


def quote(text: str) -> str:
    """The text as one word of a POSIX shell."""
    return shlex.quote(text)


def join(words: Iterable[str]) -> str:
    """The words as one line of a POSIX shell."""
    return " ".join(quote(word) for word in words)


def script(
    body: str,
    *arguments: str,
    stdin: bytes | Readable | None = None,
    cwd: str | None = None,
    env: Mapping[str, str] | None = None,
    max_output: int = 1 << 20,
    question: bool = False,
) -> Command:
    """A fixed piece of shell with data as its positional arguments, so that no data is ever read as shell.

    Its tools print English, by which messages are recognized. A ``question`` starts nothing that outlives it, and costs
    the host less.
    """
    return Command(
        argv=("sh", "-c", body, OWN_SCRIPT, *arguments),
        env={"LC_ALL": "C", **(env or {})},
        stdin=stdin,
        cwd=cwd,
        max_output=max_output,
        question=question,
    )
