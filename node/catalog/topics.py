"""Topic patterns: words between dots, `*` for one word, `#` for any number of them, none included.

Patterns and keys come from clients, and a match can't be interrupted, so what it costs is bounded, whatever they are:

    a.b.c                no wildcard: looked up
    a.b.#                `#` at the end alone: one look-up for each beginning of the key
    *.b.#.c and others   a tree of the patterns' words, all walked at once. Few keys reach many of its nodes; one that
                         reaches more than `MOST_VISITS` is answered by `WordMasks` instead, which cost the same for
                         every key, and remembered

The last kind costs its words on every key that reaches far, so a vhost may have only so many of them (`weight`).
"""
from __future__ import annotations

from typing import Final

from mayfly.node.catalog.records import BindingRecord
from mayfly.node.catalog.routing_steps import RoutingSteps
from mayfly.node.catalog.targets import Target, Targets
from mayfly.node.catalog.word_masks import WordMasks

MOST_VISITS: Final = 1000
"""Nodes of the tree that one match looks at before the masks take over: half a millisecond. Ordinary ones take a few
for each word of the key."""

MOST_REMEMBERED: Final = 1024
"""Keys of an exchange whose answer by the masks is remembered..."""

MOST_TARGETS_REMEMBERED: Final = 65_536
"""...and destinations in those answers: half a megabyte."""


def words(text: str) -> list[str]:
    """The words of a key or pattern. The empty one has no word at all, not one empty word (golden
    amqp.topic_matching: "*" does not match "")."""
    return text.split(".") if text else []


def canonical(pattern: str) -> tuple[str, ...]:
    """The words of a pattern; equal for patterns that match the same because of how `*` and `#` follow each other. Of
    each run of them, as in `#.*.#`, the `*` come first and then one `#`, if there is any."""
    found: list[str] = []
    open_run = False
    for word in words(pattern):
        if word == "#":
            open_run = True
            continue
        if open_run and word != "*":
            found.append("#")
            open_run = False
        found.append(word)
    if open_run:
        found.append("#")
    return tuple(found)


def _is_wild(parts: tuple[str, ...]) -> bool:
    return "*" in parts or "#" in parts[:-1]


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


class TopicPatterns:
    """The bindings of one topic exchange."""

    def __init__(self, steps: RoutingSteps, most_visits: int = MOST_VISITS) -> None:
        self._steps = steps
        self._most_visits = most_visits
        self._literal: dict[str, Targets] = {}
        self._beginnings: dict[str, Targets] = {}
        """Of `a.b.#` under `a.b.`, of `#` under the empty text."""
        self._wild: dict[tuple[str, ...], Targets] = {}
        """All others, by their words; the tree has them, too."""
        self._root = _Node(repeats=False)
        self._masks: WordMasks | None = None
        """The patterns of the tree once more, from when they are needed for the first time."""
        self._remembered: dict[str, list[Targets]] = {}
        self._targets_remembered = 0
        self.weight = 0
        """Words of the patterns in the tree."""

    def add(self, binding: BindingRecord, target: Target) -> None:
        """Bind by the pattern in the binding's routing key."""
        pattern = binding.routing_key
        parts = canonical(pattern)
        if _is_wild(parts):
            targets = self._wild.get(parts)
            if targets is None:
                targets = self._add_wild(parts)
        else:
            table, key = self._table(pattern, parts)
            targets = table.get(key)
            if targets is None:
                targets = table[key] = Targets()
        targets.add(binding, target)

    def _add_wild(self, parts: tuple[str, ...]) -> Targets:
        node = self._root
        for word in parts:
            node = node.grow(word)
        targets = node.targets = self._wild[parts] = Targets()
        self.weight += len(parts)
        self._forget_answers()
        if self._masks is not None:
            self._masks.add(parts, targets)
        return targets

    def added_weight(self, pattern: str) -> int:
        """What a binding with that pattern adds to `weight`."""
        parts = canonical(pattern)
        return len(parts) if _is_wild(parts) and parts not in self._wild else 0

    def remove(self, binding: BindingRecord) -> None:
        """Undo `add`; the binding must be there."""
        pattern = binding.routing_key
        parts = canonical(pattern)
        wild = _is_wild(parts)
        table, key = self._table(pattern, parts)
        targets = self._wild[parts] if wild else table[key]
        targets.remove(binding)
        if targets:
            return
        if wild:
            self._remove_wild(parts)
        else:
            del table[key]

    def _table(self, pattern: str, parts: tuple[str, ...]) -> tuple[dict[str, Targets], str]:
        if not parts or parts[-1] != "#":
            return self._literal, pattern
        return self._beginnings, "".join([word + "." for word in parts[:-1]])

    def _remove_wild(self, parts: tuple[str, ...]) -> None:
        del self._wild[parts]
        self.weight -= len(parts)
        self._forget_answers()
        if self._masks is not None and not self._masks.remove(parts):
            self._masks = None
        path: list[tuple[_Node, str]] = []
        node = self._root
        for word in parts:
            path.append((node, word))
            below = node.child(word)
            assert below is not None
            node = below
        node.targets = None
        for above, word in reversed(path):
            if not node.empty:
                break
            above.prune(word)
            node = above

    def match(self, key: str) -> list[Targets]:
        """The targets of all patterns that match the key."""
        found: list[Targets] = []
        targets = self._literal.get(key)
        if targets is not None:
            found.append(targets)
        if self._beginnings:
            self._match_beginnings(key, found)
        if self._wild:
            wild = self._remembered.get(key) if self._remembered else None
            if wild is None:
                parts = words(key)
                wild = self._walk(parts)
                if wild is None:
                    wild = self._by_masks(key, parts)
            found += wild
        return found

    def _match_beginnings(self, key: str, found: list[Targets]) -> None:
        beginnings = self._beginnings
        self._steps.taken += 1 + key.count(".")
        targets = beginnings.get("")
        if targets is not None:
            found.append(targets)
        end = key.find(".") + 1
        while end:
            targets = beginnings.get(key[:end])
            if targets is not None:
                found.append(targets)
            end = key.find(".", end) + 1
        if key:
            targets = beginnings.get(key + ".")
            if targets is not None:
                found.append(targets)

    def _by_masks(self, key: str, parts: list[str]) -> list[Targets]:
        masks = self._masks
        if masks is None:
            masks = self._masks = WordMasks(self._steps)
            for pattern, targets in self._wild.items():
                masks.add(pattern, targets)
        found = masks.match(parts)
        if (
            len(self._remembered) >= MOST_REMEMBERED
            or self._targets_remembered + len(found) > MOST_TARGETS_REMEMBERED
        ):
            self._forget_answers()
        self._targets_remembered += len(found)
        self._remembered[key] = found
        return found

    def _forget_answers(self) -> None:
        self._remembered.clear()
        self._targets_remembered = 0

    def _walk(self, parts: list[str]) -> list[Targets] | None:
        """The targets in the tree, or None if that would be too long a way. A `#` is looked at with its parent, since
        it may stand for no word; no `#` follows a `#`."""
        root = self._root
        current = [root] if root.hash is None else [root, root.hash]
        visits, most_visits = len(current), self._most_visits
        for word in parts:
            following: list[_Node] = []
            stays = opens = False
            for node in current:
                if node.repeats:
                    stays = True
                    following.append(node)
                if (child := node.children.get(word)) is not None:
                    following.append(child)
                    if child.hash is not None:
                        opens = True
                        following.append(child.hash)
                if (child := node.star) is not None:
                    following.append(child)
                    if child.hash is not None:
                        opens = True
                        following.append(child.hash)
            if stays and opens:  # a `#` may be there by itself and by its parent
                following = list(dict.fromkeys(following))
            if not following:
                self._steps.taken += visits
                return []
            current = following
            visits += len(following)
            if visits > most_visits:
                self._steps.taken += visits
                return None
        self._steps.taken += visits
        return [node.targets for node in current if node.targets is not None]
