"""Looking for things by their names, where whoever asks says how."""

from typing import Final

from mayfly.node.catalog.expressions import Expression, expression_fault

_NAMES_AT_ONCE: Final = 4096
"""To be looked at for a text in them: about 2 ms."""
_SEARCHED_AT_ONCE: Final = 400
"""The same for a regular expression, which takes a step for each character."""


class NameSearch:
    """Finds names with a text in them, or that a regular expression fits; capitals or not."""

    def __init__(self, text: str, is_pattern: bool) -> None:
        """Raises ValueError for a pattern that is none, or not taken."""
        self._text = text.lower()
        self._expression: Expression | None = None
        self.names_at_once: int = _NAMES_AT_ONCE
        """How many may be looked at before other work gets its turn."""
        if is_pattern:
            fault = expression_fault(text)
            if fault is not None:
                raise ValueError(f"no regular expression: {fault}")
            self._expression = Expression(f"(?i){text}")
            self.names_at_once = _SEARCHED_AT_ONCE

    def finds(self, name: str) -> bool:
        """Whether the name is one."""
        if self._expression is None:
            return self._text in name.lower()
        return self._expression.search(name)
