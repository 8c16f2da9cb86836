"""Sets the garbage collector up for a program that makes much and throws little away."""

from __future__ import annotations

import gc

_YOUNG = 200_000
"""More than a small run makes from its beginning to its end: a look through all of it would find next to nothing."""


def prepare() -> None:
    """Call it first of all: loading code and compiling make much that stays, and hardly any garbage."""
    gc.set_threshold(_YOUNG, 20, 50)


def settle() -> None:
    """Call it when the graph is there and the run begins: what is there stays, so it is not looked through again.

    The graph and the results of a run live to its end. With the usual settings a quarter of the time of a large run of
    short steps would go into looking for garbage among them.
    """
    gc.freeze()
    gc.set_threshold(_YOUNG, 20, 50)
