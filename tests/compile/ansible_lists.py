"""Lists inventories with the real ansible-inventory: a process of ansible's own Python that forks for each of them.

To start the program anew takes a second each time, nearly all of it for imports. This file is run by a Python that has
ansible; it reads paths (JSON, one a line) and answers each with [exit code, what was printed].
"""

from __future__ import annotations

import json
import os
import sys
import tempfile


def listed(path: str) -> tuple[int, str]:
    """What ``ansible-inventory -i PATH --list`` gives."""
    from ansible.cli.inventory import InventoryCLI  # type: ignore[import-not-found, unused-ignore]

    with tempfile.TemporaryFile("w+") as printed:
        child = os.fork()
        if not child:
            os.dup2(printed.fileno(), 1)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            code = 1
            try:
                InventoryCLI.cli_executor(["ansible-inventory", "-i", path, "--list"])
            except SystemExit as end:
                code = int(end.code or 0)
            finally:
                sys.stdout.flush()
                os._exit(code)
        _, status = os.waitpid(child, 0)
        printed.seek(0)
        return os.waitstatus_to_exitcode(status), printed.read()


if __name__ == "__main__":
    for line in sys.stdin:
        sys.stdout.write(json.dumps(listed(json.loads(line))) + "\n")
        sys.stdout.flush()
