"""The entry points of the programs: an interrupt is understood before what they need is loaded."""

from __future__ import annotations

from kubexm_exec.cli.leaving import leave_after


def kubexm() -> None:
    """``kubexm``."""

    def work() -> None:
        from kubexm_exec.cli.main import main

        main(prog_name="kubexm")

    leave_after(work)


def kubexm_run() -> None:
    """``kubexm-run``."""

    def work() -> None:
        from kubexm_exec.cli.run import command

        command(prog_name="kubexm-run")

    leave_after(work)
