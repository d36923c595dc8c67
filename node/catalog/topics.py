"""Topic patterns: words between dots, `*` for one word, `#` for any number of them, none included.

A tree of the patterns' words. Matching walks all patterns at once, a set of tree nodes per word, so that a
key costs (words x nodes reached) whatever the number of `#` in a pattern.
"""
from __future__ import annotations

from node.catalog.records import BindingRecord
from node.catalog.targets import Target, Targets


def words(text: str) -> list[str]:
    """The words of a key or pattern. The empty one has no word at all, not one empty word (golden
    amqp.topic_matching: "*" does not match "")."""
    return text.split(".") if text else []


class _Node:
    """What the patterns have in common up to here."""

    __slots__ = ("children", "hash", "repeats", "star", "targets")

    def __init__(self, repeats: bool) -> None:
        self.children: dict[str, _Node] = {}
        self.star: _Node | None = None
        self.hash: _Node | None = None
        self.repeats = repeats
        self.targets: Targets | None = None

    def child(self, word: str) -> _Node | None:
        return self.star if word == "*" else self.hash if word == "#" else self.children.get(word)

    def grow(self, word: str) -> _Node:
        node = self.child(word)
        if node is None:
            node = _Node(repeats=word == "#")
            if word == "*":
                self.star = node
            elif word == "#":
                self.hash = node
            else:
                self.children[word] = node
        return node

    def prune(self, word: str) -> None:
        if word == "*":
            self.star = None
        elif word == "#":
            self.hash = None
        else:
            del self.children[word]

    @property
    def empty(self) -> bool:
        return not (self.children or self.star or self.hash or self.targets)


class TopicTree:
    """The bindings of one topic exchange."""

    def __init__(self) -> None:
        self._root = _Node(repeats=False)

    def add(self, binding: BindingRecord, target: Target) -> None:
        """Bind by the pattern in the binding's routing key."""
        node = self._root
        for word in words(binding.routing_key):
            node = node.grow(word)
        if node.targets is None:
            node.targets = Targets()
        node.targets.add(binding, target)

    def remove(self, binding: BindingRecord) -> None:
        """Undo `add`; the binding must be there."""
        path: list[tuple[_Node, str]] = []
        node = self._root
        for word in words(binding.routing_key):
            path.append((node, word))
            below = node.child(word)
            assert below is not None, "a binding that was never added"
            node = below
        assert node.targets is not None, "a binding that was never added"
        node.targets.remove(binding)
        if not node.targets:
            node.targets = None
        for above, word in reversed(path):
            if not node.empty:
                break
            above.prune(word)
            node = above

    def match(self, key: str) -> list[Targets]:
        """The targets of all patterns that match the key."""
        current = _with_empty_repeats([self._root])
        for word in words(key):
            following: list[_Node] = []
            for node in current:
                if node.repeats:
                    following.append(node)
                if (child := node.children.get(word)) is not None:
                    following.append(child)
                if node.star is not None:
                    following.append(node.star)
            if not following:
                return []
            current = _with_empty_repeats(following)
        return [node.targets for node in current if node.targets is not None]


def _with_empty_repeats(nodes: list[_Node]) -> list[_Node]:
    """The nodes, and what a `#` that stands for no word leads on to; each once."""
    for node in nodes:
        if node.hash is not None:
            break
    else:
        return nodes
    reached = dict.fromkeys(nodes)
    for node in nodes:
        below = node.hash
        while below is not None and below not in reached:
            reached[below] = None
            below = below.hash
    return list(reached)
