"""The key of a repository, wherever the control node has it from: text, a file, the web."""

from __future__ import annotations

import hashlib
from typing import Final

from kubexm_exec.step import HttpError, StepContext, StepFailed
from kubexm_steps.lib.files import local_failure
from kubexm_steps.lib.http import failed, request

_TIME: Final = 30.0


def load_key(
    ctx: StepContext, name: str, *, text: str | None, file: str | None, url: str | None, sha256: str | None
) -> bytes | None:
    """The key of the repository of that name, as it was given or fetched; another digest than it must have fails."""
    if text is not None:
        key = text.encode("utf-8")
    elif file is not None:
        path = ctx.local_path(file)
        try:
            key = path.read_bytes()
        except OSError as error:
            raise local_failure("read", path, error) from error
    elif url is not None:
        key = _fetched(ctx, name, url)
    else:
        return None
    digest = hashlib.sha256(key).hexdigest()
    if sha256 and digest != sha256.lower():
        raise StepFailed(
            f"the key of {name} has the sha256 {digest}, not {sha256.lower()}",
            hint="nothing was written; find out whether the key was changed on purpose",
        )
    return key


def _fetched(ctx: StepContext, name: str, url: str) -> bytes:
    """The key from the web: once a run, whatever the number of hosts."""
    cache = ctx.cache("run")
    mark = f"repository-key {url}"
    if mark not in cache:
        what = f"fetch the key of {name} from {url}"
        try:
            reply = request(ctx, "GET", url, timeout=_TIME)
        except HttpError as error:
            raise failed(what, error) from error
        if reply.status != 200:
            raise StepFailed(f"{what}: the server answered {reply.status}", hint="look at `keyUrl`")
        cache[mark] = reply.body
    key: bytes = cache[mark]
    return key
