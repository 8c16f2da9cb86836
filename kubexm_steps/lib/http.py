"""HTTP for steps: a request of the control node, which is given up with the step, or of the host."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from kubexm_exec.step import Cancel, HttpError, Reply, StepContext, StepFailed

_LOOKS_A_SECOND: Final = 20
T = TypeVar("T")


def request(
    ctx: StepContext,
    method: str,
    url: str,
    *,
    timeout: float,
    headers: Mapping[str, str] | None = None,
    own: Mapping[str, str] | None = None,
    body: bytes | None = None,
    ca_file: str = "",
    insecure: bool = False,
    follow: bool = True,
    on_host: bool = False,
) -> Reply:
    """One request; any status is an answer. Raises HttpError.

    ``own`` are headers that any server may see, ``headers`` those that no other server than that of the URL gets.
    With ``on_host`` the host sends it, and ``ca_file`` is there.
    """
    if on_host:
        from kubexm_exec.step.http import Request

        return ctx.runner.web.request(
            Request(method, url, headers or {}, own or {}, body),
            timeout=timeout, ca_file=ca_file, insecure=insecure, follow=follow,
        )  # fmt: skip

    def work(cancel: Cancel) -> Reply:
        # It takes 80 ms, and most runs send no request.
        from kubexm_exec.step.http import Request, Trust, fetch

        asked = Request(method, url, headers or {}, own or {}, body)
        return fetch(asked, timeout=timeout, trust=Trust(ca_file, insecure), follow=follow, cancel=cancel)

    return patiently(ctx, work)


def patiently(ctx: StepContext, work: Callable[[Cancel], T]) -> T:
    """Do something that blocks, in a thread, and leave it behind when the run is cancelled or the step's time is over.

    What is left behind is told by its ``Cancel``, ends with its own timeout, and touches nothing of ours.
    """
    done = threading.Event()
    given_up = Cancel()
    results: list[T] = []
    errors: list[BaseException] = []

    def target() -> None:
        try:
            results.append(work(given_up))
        except BaseException as error:  # noqa: BLE001  # it is raised again, in the thread that waits
            errors.append(error)
        finally:
            done.set()

    threading.Thread(target=target, name="kubexm-request", daemon=True).start()
    try:
        while not done.wait(1 / _LOOKS_A_SECOND):
            ctx.sleep(0)
    except BaseException:
        given_up.set()
        raise
    if errors:
        raise errors[0]
    return results[0]


def failed(what: str, error: HttpError) -> StepFailed:
    """The failure that a missing answer is."""
    return StepFailed(f"{what}: {error.reason}", hint=error.hint)
