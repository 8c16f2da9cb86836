"""Private folders on a host for a while: for scripts, and for new content that a program of the host judges."""

from __future__ import annotations

import contextlib
import posixpath
import re
import secrets
from collections.abc import Iterator, Sequence
from typing import Final

from kubexm_exec.connectors.base import Command, Marks
from kubexm_exec.model.command import CommandResult
from kubexm_exec.model.errors import CommandTimedOut, ConnectorError, StepFailed
from kubexm_exec.runner.commands import TOOLS, ask, failure
from kubexm_exec.runner.errors import exit_text, file_failure
from kubexm_exec.runner.files.transfer import LARGE, Outgoing, upload_slot
from kubexm_exec.runner.quote import script
from kubexm_exec.runner.session import Session
from kubexm_exec.runner.transfers import Source
from kubexm_exec.safepaths import WAY

# `for_a_while COMMAND...` goes to a folder for temporary files, and runs a command there. In a folder where everybody
# may write, nobody may rename what others own.
_PLACES: Final = f"""{WAY}
for_a_while() {{
  for t in "${{TMPDIR:-/tmp}}" /tmp /var/tmp; do
    cd -P -- "$t" 2>/dev/null || continue
    if shared; then
      case $mode_of_here in [1357]???) [ "$owner_of_here" = 0 ] || [ -O . ] || continue ;; *) continue ;; esac
    fi
    "$@" && return
  done
  return 1
}}
"""
# The mark of the session ($1) is in the name, by which the next session of a killed run finds the folder.
_FOLDER: Final = f"""{_PLACES}
make() {{ made=$(mktemp -d "./kx.$mark.XXXXXXXXXX") && printf '%s\\n' "${{PWD%/}}/${{made#./}}"; }}
mark=$1
for_a_while make
"""
# What the program says goes to the standard error. The standard output is ours: the exit code of the program, and where
# the content was; without it, the program was not run.
_VALIDATE: Final = f"""{TOOLS}{_PLACES}
folder=$1 name=$2 mode=$3 size=$4 was=$PWD; shift 4
umask 077
for_a_while private "$folder" || exit
trap 'leave "$folder"' EXIT
cat >"./$name" || exit
[ "$(wc -c <"./$name")" -eq "$size" ] || {{ echo "its end did not arrive" >&2; exit 1; }}
chmod -- "$mode" "./$name" || exit
path=$PWD/$name
for word do
  shift
  made=
  while :; do
    case $word in *%s*) ;; *) break ;; esac
    made=$made${{word%%"%s"*}}$path word=${{word#*"%s"}}
  done
  set -- "$@" "$made$word"
done
( cd -- "$was" && unset LC_ALL && exec "$@" ) </dev/null >&2
code=$?
leave "$folder"
trap - EXIT
printf '%s %s' "$code" "$path"
"""
_OURS: Final = re.compile(rb"^kx: (?:line )?\d+: (?:exec: )?", re.MULTILINE)
"""What the shell puts before its own words: a place in the script, which is none of the user's."""
_DROP: Final = """
for t in "${TMPDIR:-/tmp}" /tmp /var/tmp; do
  if [ -d "$t/$1" ] && [ ! -L "$t/$1" ] && [ -O "$t/$1" ]; then rm -rf -- "$t/$1"; fi
done
"""


def _mark(session: Session) -> str:
    return session.connector.own_mark if isinstance(session.connector, Marks) else ""


@contextlib.contextmanager
def folder(session: Session) -> Iterator[str]:
    """A private folder, which is removed at the end of the ``with``, whatever happens."""
    result = ask(session, _FOLDER, _mark(session))
    path = result.out.rstrip("\n")
    if result.exit_code != 0 or "/kx." not in path:
        raise file_failure(session, "make a temporary folder in", "/tmp", result)
    try:
        yield path
    finally:
        ask(session.for_cleanup(), 'rm -rf -- "$1"', path)


def validate(
    session: Session, path: str, content: bytes | Source, command: Sequence[str], *, executable: bool = False
) -> None:
    """Have a program judge the content that a file is to have, in one round trip; it is sent for that alone."""
    session.changes("validate", path)
    # The name is known here too: what is interrupted can be removed.
    name = f"kx.{_mark(session)}.{secrets.token_hex(16)}"
    mode = "0700" if executable else "0600"
    size = len(content) if isinstance(content, bytes) else content.size
    arguments = (name, posixpath.basename(path), mode, str(size), *command)
    with contextlib.ExitStack() as stack:
        stdin: bytes | Outgoing
        if isinstance(content, bytes):
            stdin = content
        else:
            if size >= LARGE:
                stack.enter_context(upload_slot(session, posixpath.basename(path)))
            stdin = stack.enter_context(Outgoing(session, content, posixpath.basename(path)))
        try:
            result = ask(session, _VALIDATE, *arguments, stdin=stdin)
        except BaseException:
            # Also after a cancel or a timeout, by which the script was killed.
            with contextlib.suppress(ConnectorError, CommandTimedOut, StepFailed):
                ask(session.for_cleanup(), _DROP, name)
            raise
    code, _, place = result.stdout.partition(b" ")
    if not code.isdigit():
        if result.exit_code in (126, 127):
            raise failure(session, script("cat"), result)
        raise file_failure(session, "validate", path, result)
    if int(code) != 0:
        said = _OURS.sub(b"", result.stderr.replace(place, path.encode()))
        raise _rejected(session, path, command, int(code), said)


def _rejected(session: Session, path: str, command: Sequence[str], code: int, said: bytes) -> StepFailed:
    result = CommandResult(command="", exit_code=code, stderr=said)
    shown = Command(argv=tuple(command))
    error = failure(session, shown, result, message=f"validate {path}: {exit_text(code)}")
    error.refused = True
    error.hint = error.hint or "the file was not changed: correct its new content, or the command in `validate`"
    return error
