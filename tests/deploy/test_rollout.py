"""What `make test-k8s` takes for a fault of a rollout, on looks that were not made by Kubernetes."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests.k8s.rollout import Look, Pod, faults, look, order

NAMES = ("mq-0", "mq-1", "mq-2")


def moment(up: int = 3, stuck: tuple[int, ...] = (), **pods: str) -> Look:
    """`pods`: a letter for the image, `+` where it is ready, `!` where it was told to stop."""
    states = {name: pods.get(name.replace("-", ""), "a+") for name in NAMES}
    return Look(
        {name: Pod(f"{name} {said[0]}", said[0], "+" in said, "!" in said) for name, said in states.items()}, up, stuck
    )


GOOD = [
    moment(),
    moment(mq2="a+!"),
    moment(mq2="a!", up=2),
    moment(mq2="b", up=2),
    moment(mq2="b+"),
    moment(mq2="b+", mq1="a+!"),
    moment(mq2="b+", mq1="b", up=2),
    moment(mq2="b+", mq1="b+", mq0="a!", up=2),
    moment(mq2="b+", mq1="b+", mq0="b+"),
]


def test_one_after_the_other_is_as_it_has_to_be() -> None:
    assert faults(GOOD, "b") == []
    assert order(GOOD) == ["mq-2", "mq-1", "mq-0"]


@pytest.mark.parametrize(
    ("at", "bad", "text"),
    [
        (2, moment(mq2="a!", mq1="a!", up=2), "mq-1, mq-2 stop at the same time"),
        (5, moment(mq2="b", mq1="a!", up=2), "mq-1 is told to stop before mq-2 are ready"),
        (3, moment(mq2="b", up=1), "1 of 3 nodes are up"),
        (3, moment(mq2="b", up=2, stuck=(4, 7)), "groups 4, 7 have no majority"),
        (8, moment(mq2="b+", mq1="b+", mq0="a+"), "mq-0 has a"),
    ],
)
def test_what_goes_wrong_is_found(at: int, bad: Look, text: str) -> None:
    assert text in faults([*GOOD[:at], bad, *GOOD[at + 1 :]], "b")


def test_a_pod_that_was_left_out_is_found() -> None:
    assert faults([each for each in GOOD if not each.pods["mq-1"].is_ending], "b") == [
        "mq-2, mq-0 were told to stop, not each once"
    ]


def test_a_group_needs_a_majority_of_its_voters_up() -> None:
    status = SimpleNamespace(conditions=[SimpleNamespace(type="Ready", status="True")])
    spec = SimpleNamespace(containers=[SimpleNamespace(image="a")])
    named = SimpleNamespace(name="mq-0", uid="u", deletion_timestamp=None)
    pod = SimpleNamespace(metadata=named, spec=spec, status=status)
    members = {"members": [{"id": id, "up": id in (1, 4)} for id in (1, 2, 3, 4)]}
    shards = {"shards": [{"group": 1, "voters": [1, 2, 4]}, {"group": 2, "voters": [1, 2, 3]}]}
    assert look([pod], members, shards) == Look({"mq-0": Pod("u", "a", True, False)}, 2, (2,))
