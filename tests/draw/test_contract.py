from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from kubexm_exec.draw.contract import Wait, Waits, bundle, contract, reduce, topological


def graph_of(*edges: str) -> Waits:
    """``a b`` means that b waits for a."""
    waits: Waits = {}
    for edge in edges:
        source, target = edge.split()
        waits.setdefault(source, {})
        waits.setdefault(target, {})[source] = Wait()
    return waits


def edges_of(waits: Waits) -> set[str]:
    return {f"{source} {target}" for target, sources in waits.items() for source in sources}


def ancestors(waits: Waits, vertex: str) -> set[str]:
    found: set[str] = set()
    pending = list(waits[vertex])
    while pending:
        other = pending.pop()
        if other not in found:
            found.add(other)
            pending += waits[other]
    return found


def random_waits(count: int, pairs: list[tuple[int, int]]) -> Waits:
    waits: Waits = {str(index): {} for index in range(count)}
    for a, b in pairs:
        if a < b < count:
            waits[str(b)][str(a)] = Wait()
    return waits


PAIRS = st.lists(st.tuples(st.integers(0, 14), st.integers(0, 14)), max_size=60)


def test_topological_order_keeps_the_given_one_where_it_can() -> None:
    waits = graph_of("c a")
    assert topological(["a", "b", "c"], lambda vertex: waits.get(vertex, {})) == ["b", "c", "a"]


def test_topological_order_enters_a_cycle_at_its_first_vertex() -> None:
    waits = graph_of("a b", "b c", "c a", "c d")
    assert topological(["a", "b", "c", "d"], lambda vertex: waits[vertex]) == ["a", "b", "c", "d"]


def test_edges_implied_by_a_longer_way_are_dropped() -> None:
    waits = graph_of("a b", "b c", "a c", "a d", "c d")
    reduce(list(waits), waits, lambda source, target: True)
    assert edges_of(waits) == {"a b", "b c", "c d"}


def test_a_way_that_implies_nothing_drops_nothing() -> None:
    waits = graph_of("a b", "b c", "a c")
    reduce(list(waits), waits, lambda source, target: source != "b")
    assert edges_of(waits) == {"a b", "b c", "a c"}


@given(PAIRS)
def test_reducing_keeps_what_is_before_what_and_no_edge_too_many(pairs: list[tuple[int, int]]) -> None:
    waits = random_waits(15, pairs)
    before = {vertex: ancestors(waits, vertex) for vertex in waits}
    reduce(list(waits), waits, lambda source, target: True)
    assert {vertex: ancestors(waits, vertex) for vertex in waits} == before
    for vertex, sources in waits.items():
        for source in sources:
            assert not any(source in before[other] for other in sources), f"{source} {vertex} is implied"


def test_a_gate_between_one_and_many_is_drawn_through() -> None:
    waits = graph_of("a g", "g x", "g y", "g z")
    assert contract(list(waits), waits, {"g"}) == []
    assert edges_of(waits) == {"a x", "a y", "a z"}
    assert all(wait.barrier for sources in waits.values() for wait in sources.values())


def test_a_gate_between_many_and_many_stays() -> None:
    waits = graph_of("a g", "b g", "c g", "g x", "g y")
    assert contract(list(waits), waits, {"g"}) == ["g"]
    assert len(edges_of(waits)) == 5


def test_gates_behind_one_another_become_one_edge() -> None:
    waits = graph_of("a task#end", "task#end module#end", "module#end b")
    contract(list(waits), waits, {"task#end", "module#end"})
    assert edges_of(waits) == {"a b"}


@given(PAIRS, st.sets(st.integers(0, 14)))
def test_contracting_keeps_what_is_before_what_and_never_adds_edges(
    pairs: list[tuple[int, int]], chosen: set[int]
) -> None:
    waits = random_waits(15, pairs)
    gates = {str(index) for index in chosen}
    before = {vertex: ancestors(waits, vertex) - gates for vertex in waits if vertex not in gates}
    count = len(edges_of(waits))
    staying = contract(list(waits), waits, gates)
    assert {vertex: ancestors(waits, vertex) - gates for vertex in waits if vertex not in gates} == before
    assert len(edges_of(waits)) <= count
    for gate in staying:
        behind = sum(gate in sources for sources in waits.values())
        assert len(waits[gate]) * behind > len(waits[gate]) + behind


def test_several_that_wait_for_the_same_several_share_a_new_gate() -> None:
    waits = graph_of("a x", "b x", "c x", "a y", "b y", "c y", "a z")
    assert bundle(waits) == ["#join1"]
    assert edges_of(waits) == {"a #join1", "b #join1", "c #join1", "#join1 x", "#join1 y", "a z"}


def test_a_long_chain_is_reduced_without_recursion() -> None:
    names = [str(index) for index in range(3000)]
    waits: Waits = {name: {} for name in names}
    for before, after in pairwise(names):
        waits[after][before] = Wait()
        waits[after][names[0]] = Wait()
    reduce(names, waits, lambda source, target: True)
    assert sum(map(len, waits.values())) == 2999
