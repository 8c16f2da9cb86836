"""What `kubexm cluster kubeconfig` writes, and where."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kubexm_exec.cli import codes
from kubexm_exec.cli.common import fail
from kubexm_exec.cli.targets import Product, check_targets, write_text
from kubexm_exec.console.text import one_line

if TYPE_CHECKING:
    from kubexm_exec.service.clusters import Looking


def write_kubeconfig(file: str, target: str | None, looking: Looking, *, merge: bool, force: bool) -> None:
    """Write it to a file of its own, or into one that there is; ends the program if that cannot be."""
    from kubexm_exec.service.kubeconfig import NoKubeconfig, kubeconfig_text, merged

    name = looking.cluster.settings.document.metadata.name
    if merge and target == "-":
        fail("there is nothing to merge with on standard output", "leave out --merge, or name a file with -o")
    if merge and target is None:
        path = Path.home() / ".kube" / "config"
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    else:
        path = Path(target or f"{name}.kubeconfig")
    # Merging replaces the file by itself and more.
    check_targets([(str(path), Product.KUBECONFIG)], "text", force=force or merge, reads=[file])
    found = looking.kubeconfig()
    if isinstance(found, NoKubeconfig):
        for each in found.unseen:
            click.echo(f"{each.host}: {one_line(each.message)}", err=True)
        fail("no control plane has answered", f"kubexm cluster status -f {file} tells more", code=codes.FAILED)
    if merge:
        before = path.read_text("utf-8", "replace") if path.is_file() else ""
        text = merged(found, before, str(path), force=force)
    else:
        text = kubeconfig_text(found, file)
    if str(path) == "-":
        write_text("-", text)
        return
    if path.is_file() and path.stat().st_mode & 0o077:
        path.chmod(0o600)
    write_text(str(path), text, private=True)
    click.echo(
        f"{'merged into' if merge else 'written to'} {path}: cluster {name} at {found.server}, from {found.host}"
    )
    click.echo(f"Next:  kubectl --kubeconfig {path} --context {found.name} get nodes")
