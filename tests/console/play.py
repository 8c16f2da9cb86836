"""Plays a recorded run on a console of a real terminal: ``python play.py SCENARIO SHARE FLAG [KIND [VERBOSE]]``.

It stops after that share of the events, until the file FLAG is there; then it plays the rest and prints the summary.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from msgspec.structs import replace

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from kubexm_exec.cli.typed import next_commands
from kubexm_exec.console import make_console
from kubexm_exec.console.summary import render_summary
from kubexm_exec.model.result import Status
from tests.console import scenario, script


def main(name: str, share: str, flag: str, kind: str = "live", verbose: str = "0") -> None:
    run: script.Script = getattr(scenario, name)()
    result = run.finish(Status.FAILED if run.failed else Status.SUCCESS)
    console = make_console(kind, run.graph, sys.stdout, color=None, verbose=int(verbose))
    stop = max(1, int(len(run.events) * float(share)))
    # What was recorded last happens now.
    shift = time.time() - run.events[stop - 1].time
    try:
        for number, event in enumerate(run.events):
            if number == stop:
                while not Path(flag).exists():
                    time.sleep(0.02)
            console(replace(event, time=event.time + shift))
    except KeyboardInterrupt:
        console.close(None)
        raise SystemExit(130) from None
    console.close(result)
    text = render_summary(
        run.graph, result, color=False, width=100, commands=next_commands(["kubexm-run", "specs/site.yaml"])
    )
    console.output.write(text)


if __name__ == "__main__":
    main(*sys.argv[1:])
