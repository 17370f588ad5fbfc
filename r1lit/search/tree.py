"""The tree that Monte Carlo tree search grows, and PUCT, the rule that leads through it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from r1lit.search.partial_response import PartialResponse
from r1lit.search.steps import SearchState


@dataclass(eq=False)
class Node:
    """A partial response in the tree: its prior P, value v, visits N and total value W."""

    response: PartialResponse
    prior: float = 1.0
    value: float | None = None
    num_visits: int = 0
    total: float = 0.0
    children: list[Node] = field(default_factory=list)

    @property
    def mean(self) -> float:
        """Q = W / N, and 0 before the first visit."""
        return self.total / self.num_visits if self.num_visits else 0.0

    def select(self, c_puct: float) -> Node:
        """Return the child of the largest Q + U; among equals that of the largest prior.

        U(s, a) = c_puct P(s, a) sqrt(sum over b of N(s, b)) / (1 + N(s, a)).
        """
        root = math.sqrt(sum(child.num_visits for child in self.children))

        def rank(child: Node) -> tuple[float, float]:
            bonus = c_puct * child.prior * root / (1 + child.num_visits)
            return child.mean + bonus, child.prior

        return max(self.children, key=rank)

    def path(self, c_puct: float) -> list[Node]:
        """Return the nodes from this one to a leaf, each the selected child of the one before."""
        path = [self]
        while path[-1].children:
            path.append(path[-1].select(c_puct))
        return path

    def most_visited(self) -> Node:
        """Return where the most visited path ends; among equals the larger mean value leads on."""
        node = self
        while any(child.num_visits for child in node.children):
            node = max(node.children, key=lambda child: (child.num_visits, child.mean))
        return node


@dataclass(eq=False)
class Tree:
    """The tree of one search: how many nodes it has, and the whole responses found in it."""

    state: SearchState
    root: Node
    num_nodes: int = 1
    found: list[PartialResponse] = field(default_factory=list)


def back_up(path: list[Node]) -> None:
    """Add the last node's value, and a visit, to every node of a path from the root."""
    value = path[-1].value
    assert value is not None
    for node in path:
        node.num_visits += 1
        node.total += value
