"""Pass 2, schedule: assign every node to a block.

A block is attention of one kind, mask and normalisation, then an MLP that reads its output. Nodes
that no result needs are removed. The nodes with the most blocks still to follow come first. Then
each node moves to the latest block that has room for it, so that fewer registers are alive and more
results are written in place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from innerloop.language.nodes import Node, Setting

AVERAGES = ("1/n", "1/N", "1/i")


class BlockKind(NamedTuple):
    """Kind, mask and normalisation of a block's attention."""

    kind: str
    mask: str
    normalisation: str


class Schedule(NamedTuple):
    """The nodes that are needed, the attention of each block (None: an MLP alone), and a bound.

    `depth` is the length of the longest chain of nodes each of which reads the one before: no
    schedule of these nodes has fewer blocks.
    """

    nodes: list[Node]
    blocks: list[BlockKind | None]
    depth: int


def schedule_nodes(
    nodes: list[Node], results: Iterable[str], relu: bool, counts: Mapping[str, int]
) -> Schedule:
    """Return a schedule of the nodes that the results need.

    With `relu`, linear attention becomes ReLU attention. `counts` has the number of tokens under a
    mask, if it is fixed: sums and averages can then share a block.
    """
    nodes = _drop_dead(nodes, results)
    known = {node.name: node for node in nodes}
    needs = {n.name: [known[r] for r in n.list_reads() if r in known] for n in nodes}
    users = {n.name: [u for u in nodes if n in needs[u.name]] for n in nodes}
    height = _measure_heights(nodes, users)
    for node in nodes:
        node.block = 0
    blocks: list[BlockKind | None] = []
    while any(not node.block for node in nodes):
        waiting = [node for node in nodes if not node.block]
        ready = [n for n in waiting if n.attends and all(u.block for u in needs[n.name])]
        number, chosen = len(blocks) + 1, None
        if ready:
            chosen = _choose_kind(ready, height, relu)
            for node in ready:
                if _fits(node, chosen, relu, counts):
                    node.block = number
        for node in waiting:
            if not node.attends and all(
                u.block and (u.attends or u.block < number) for u in needs[node.name]
            ):
                node.block = number
        blocks.append(chosen)
    _move_late(nodes, blocks, users, relu, counts)
    return Schedule(nodes, blocks or [None], max(height.values(), default=0) + bool(nodes))


def _drop_dead(nodes: list[Node], results: Iterable[str]) -> list[Node]:
    needed = set(results)
    for node in reversed(nodes):  # nodes read earlier ones only
        if node.name in needed:
            needed |= node.list_reads()
    return [node for node in nodes if node.name in needed]


def count_delay(first: Node, then: Node) -> int:
    """Return the least number of blocks between a node and one that it reads.

    It is 0 for an MLP that reads attention, because both can be in the same block.
    """
    return 0 if first.attends and not then.attends else 1


def _measure_heights(nodes: list[Node], users: Mapping[str, list[Node]]) -> dict[str, int]:
    """Return, for each node, the number of blocks that must follow its own block."""
    height: dict[str, int] = {}
    for node in reversed(nodes):
        after = [height[u.name] + count_delay(node, u) for u in users[node.name]]
        height[node.name] = max(after, default=0)
    return height


def _find_kind(node: Node, relu: bool) -> str:
    return "relu" if relu and node.kind == "linear" else node.kind


def _choose_kind(ready: list[Node], height: Mapping[str, int], relu: bool) -> BlockKind:
    """Return the attention of a block: that of the node that most blocks must follow."""
    top = max(ready, key=lambda node: (height[node.name], node.setting is not None))
    kind = _find_kind(top, relu)
    setting = top.setting
    if setting is None:  # any average will do: share the block of another node
        same = [n.setting for n in ready if n.setting and _find_kind(n, relu) == kind]
        averages = [each for each in same if each.normalisation in AVERAGES]
        setting = averages[0] if averages else Setting("context", "1/n")
    return BlockKind(kind, *setting)


def _fits(node: Node, chosen: BlockKind, relu: bool, counts: Mapping[str, int]) -> bool:
    """Return whether a block with this attention can compute a node."""
    if _find_kind(node, relu) != chosen.kind:
        return False
    counted = bool(counts.get(chosen.mask))
    if node.setting is None:
        return chosen.normalisation in AVERAGES or counted
    if tuple(node.setting) == chosen[1:]:
        return True
    return node.setting.mask == chosen.mask and counted and chosen.kind != "softmax"


def _move_late(
    nodes: list[Node],
    blocks: list[BlockKind | None],
    users: Mapping[str, list[Node]],
    relu: bool,
    counts: Mapping[str, int],
) -> None:
    for node in reversed(nodes):
        latest = [u.block - count_delay(node, u) for u in users[node.name]]
        for block in range(min(latest, default=len(blocks)), node.block, -1):
            chosen = blocks[block - 1]
            if not node.attends or (chosen and _fits(node, chosen, relu, counts)):
                node.block = block
                break
