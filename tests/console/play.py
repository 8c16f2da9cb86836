"""Plays a recorded run on the live console of a real terminal: ``python play.py SCENARIO SPEED [KIND]``."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from kubexm_exec.console import make_console
from kubexm_exec.console.summary import render_summary
from kubexm_exec.result import Status
from tests.console import scenario


def main(name: str, speed: str, kind: str = "live", verbose: str = "0") -> None:
    run: scenario.Script = getattr(scenario, name)()
    result = run.finish(Status.FAILED if run.failed else Status.SUCCESS)
    console = make_console(kind, run.graph, sys.stdout, color=None, verbose=int(verbose))
    began = time.time()
    try:
        for event in run.events:
            due = began + (event.time - scenario.START) / float(speed)
            time.sleep(max(0.0, due - time.time()))
            console(replace(event, time=due))
    except KeyboardInterrupt:
        console.close(None)
        raise SystemExit(130) from None
    console.close(result)
    text = render_summary(run.graph, result, color=False, width=100, spec_command="kubexm-run specs/site.yaml")
    console.output.write(text)


if __name__ == "__main__":
    main(*sys.argv[1:])
