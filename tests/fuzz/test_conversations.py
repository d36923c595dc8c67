"""A bounded part of `make fuzz`: conversations from fixed seeds."""

from tests.fuzz.conversations import Conversations

SEEDS = range(300)


def test_hostile_conversations() -> None:
    conversations = Conversations()
    for seed in SEEDS:
        try:
            conversations.converse(seed)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {type(error).__name__}: {error}") from error
