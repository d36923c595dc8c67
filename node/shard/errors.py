"""What the state machine raises."""

from mayfly.cluster.group.state_machine import BadCommand


class ShardError(BadCommand):
    """A command, setting or snapshot that no encoder of ours writes: a defect, or damage that checksums
    missed.

    Commands before the bad one in the same batch stay applied; the bad one changed nothing unless it
    says so. The same bytes raise the same error on every replica.
    """


class BrokenInvariant(Exception):
    """What a shard knows contradicts itself: a defect of ours, whatever the command was.

    No BadCommand: a replica that passed over it would go on with other counts than the rest. It stops.
    """
