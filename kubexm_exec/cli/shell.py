"""``kubexm shell``: an interactive shell on a host.

Nothing for the service: this process becomes the shell, at this terminal.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from kubexm_exec.cli import codes
from kubexm_exec.cli.common import Warnings, fail, inventory_option, site_documents, spec_option, telling
from kubexm_exec.service.documents import hosts_of, site_of

if TYPE_CHECKING:
    from kubexm_exec.model.graph import GraphHost

_HOST_KEYS = {"acceptNew": "accept-new", "strict": "yes", "off": "no"}


@click.command("shell")
@click.argument("host")
@inventory_option
@spec_option
@click.option("--print", "only_print", is_flag=True, help="Print the command that would be run, and run nothing.")
@telling
def command(host: str, inventory: str | None, spec: str | None, only_print: bool) -> None:
    """Open an interactive shell on HOST of the inventory.

    A local host gets $SHELL; an SSH host gets the `ssh` program with the inventory's address, port, user, key,
    gateway and host key policy. `ssh` itself asks for passwords.
    """
    site, state = site_of(site_documents(spec, inventory), Warnings().found)
    names = hosts_of(site, [host])
    if len(names) != 1:
        fail(f'"{host}" selects {len(names)} hosts; a shell needs exactly one', "hosts: " + ", ".join(names[:8]))
    if "privateKey" in state.hosts[names[0]].options:
        fail(
            f"host {names[0]} logs in with a key that is a secret, and `ssh` takes keys from files and agents only",
            f"kubexm exec {names[0]} --shell LINE runs a line there",
            code=codes.FAILED,
        )
    argv = shell_argv(state.hosts[names[0]], os.environ.get("SHELL", ""))
    if argv is None:
        connector = state.hosts[names[0]].connector
        fail(f'connector "{connector}" of host {names[0]} offers no interactive shell', code=codes.FAILED)
    if only_print:
        import shlex

        click.echo(shlex.join(argv))
        return
    if shutil.which(argv[0]) is None:
        fail(f"there is no program {argv[0]}", "install it, or log in another way", code=codes.FAILED)
    try:
        os.execvp(argv[0], argv)  # the shell has the terminal to itself, signals and all
    except OSError as error:
        fail(f"{argv[0]} cannot be run: {error.strerror}", code=codes.FAILED)


def shell_argv(host: GraphHost, shell: str) -> list[str] | None:
    """The program that opens a shell on a host, or None if its connector is not known to have one."""
    if host.connector == "local":
        return [shell or "/bin/sh"]
    if host.connector != "ssh":
        return None
    options: Mapping[str, Any] = host.options
    argv = ["ssh"]
    if host.port is not None:
        argv += ["-p", str(host.port)]
    if host.user:
        argv += ["-l", host.user]
    if key := options.get("privateKeyPath"):
        argv += _identity(_home(str(key)))
    if jump := options.get("proxyJump"):
        argv += ["-J", str(jump)]
    for name, value in (
        ("ProxyCommand", options.get("proxyCommand")),
        ("UserKnownHostsFile", options.get("knownHosts")),
        ("StrictHostKeyChecking", _HOST_KEYS.get(str(options.get("hostKeys", "acceptNew")))),
    ):
        if value:
            argv += ["-o", f"{name}={value}"]
    # After "--": a name from an inventory is never read as an option.
    return [*argv, "--", host.address]


def _identity(path: str) -> list[str]:
    """Which key to log in with; of a certificate ssh wants to know the private key too."""
    from kubexm_exec.connectors.ssh.keyfiles import CERTIFICATE

    key = path.removesuffix(CERTIFICATE)
    return ["-i", key, *(["-o", f"CertificateFile={path}"] if key != path else [])]


def _home(path: str) -> str:
    from pathlib import Path

    return str(Path(path).expanduser()) if path.startswith("~") else path
