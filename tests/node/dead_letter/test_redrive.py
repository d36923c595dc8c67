"""What a redriven message is, and that it may die again where it has died (RULES R1, D5)."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from pamqp.commands import Basic

from mayfly.cluster.versions import LEVEL_HIGHEST
from mayfly.node.amqp.content import Content
from mayfly.node.amqp.field_table import FieldTable
from mayfly.node.catalog import Catalog, DeclareQueue, QueueRecord
from mayfly.node.catalog.routing_steps import TooManySteps
from mayfly.node.dead_letter import (
    DeathHistory,
    DeathWriter,
    RedriveRouter,
    RedriveTerms,
    is_cycle,
    origin_of,
    terms_of,
)
from mayfly.node.dead_letter.publisher_headers import as_stored
from tests.node.amqp.contents import make_exchange_and_key
from tests.node.amqp.headers import build_header

WRITER = DeathWriter()


def message(**headers: Any) -> Content:
    header = as_stored(build_header(Basic.Properties(headers=headers or None), 1))
    return Content(make_exchange_and_key("orders", "k"), header, b"m")


def die(content: Content, queue: str, reason: str = "expired") -> tuple[Content, DeathHistory]:
    dead = WRITER.write(content, queue, reason, 1, "", None)
    return dead.content(b"m"), dead.history


def redrive(content: Content, dead_in: str, **terms: Any) -> Content:
    catalog = Catalog(1)
    for name in ("work", "retry", "dead"):
        catalog.apply(DeclareQueue("/", name, durable=True))
    decision = RedriveRouter(catalog).decide("/", dead_in, RedriveTerms(**terms), content)
    assert decision.content is not None
    return decision.content


def test_d5_deaths_before_a_redrive_make_no_cycle() -> None:
    """Of a message that is redriven (R1)."""
    content, history = die(message(), "retry")
    content, history = die(content, "work")
    assert is_cycle(history, "retry")
    again, history = die(redrive(content, "dead"), "work")
    assert history == (("work", "expired"),)
    assert not is_cycle(history, "retry")
    again, history = die(again, "retry")
    assert is_cycle(history, "work"), "but it does not go round for ever"


def test_r1_the_count_of_redrives_grows() -> None:
    content, _ = die(message(), "work")
    for count in (1, 2, 3):
        content = redrive(content, "dead")
        headers = content.headers_table()
        assert headers is not None
        assert headers.python()["x-redrive-count"] == count
        content, _ = die(content, "work", "rejected")


class Endless(Catalog):
    """With it, to route any message takes too much."""

    def route(self, *args: Any, **kwargs: Any) -> tuple[QueueRecord, ...]:
        raise TooManySteps


def test_r1_what_takes_too_many_steps_to_route_has_no_route() -> None:
    router = RedriveRouter(Endless(1))
    decision = router.decide("/", "dead", RedriveTerms(exchange="many"), die(message(), "work")[0])
    assert decision.meant
    assert not decision.targets


def test_r1_the_origin_is_another_queue_than_its_own() -> None:
    content, _ = die(message(), "work", "rejected")
    content, _ = die(content, "dead")
    origin = origin_of(content.headers_table() or FieldTable(), "dead")
    assert origin is not None
    assert (origin.queue, origin.reason, origin.exchange, origin.keys) == ("work", "rejected", "orders", ["k"])


def test_r1_who_claims_to_be_redriven_goes_round_so_often_and_no_more() -> None:
    """A client may write any header."""
    for claimed in (-5, 0, 1, 3, 2**62):
        content = message(**{"x-redrive-deaths": claimed})
        queues, rounds = ["one", "two"], 0
        for number in range(30):
            content, history = die(content, queues[number % 2])
            if is_cycle(history, queues[(number + 1) % 2]):
                break
            rounds += 1
        assert rounds <= max(1, claimed if claimed < 10 else 1) + 1


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(("expired", "rejected", "maxlen"))), max_size=6),
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(("expired", "rejected", "maxlen"))), max_size=6),
    st.sampled_from("abc"),
)
def test_d5_cycles_are_those_of_the_deaths_since(before: Any, since: Any, queue: str) -> None:
    """As those of a message that has died since the redrive alone, which comes to no queue that would be a cycle."""
    content = message()
    for name, reason in before:
        content, _ = die(content, name, reason)
    content = redrive(content, "dead", queue="work")
    alone = message()
    history: DeathHistory = ()
    own: DeathHistory = ()
    for name, reason in since:
        assert is_cycle(history, name) == is_cycle(own, name)
        if is_cycle(own, name):
            return
        content, history = die(content, name, reason)
        alone, own = die(alone, name, reason)
    assert is_cycle(history, queue) == is_cycle(own, queue)


@given(
    st.builds(
        RedriveTerms, st.none() | st.text(), st.none() | st.text(), st.none() | st.text(),
        headers=st.lists(st.tuples(st.text(), st.text())).map(tuple), min_age_ms=st.none() | st.integers(0, 1 << 40),
    )
)  # fmt: skip
def test_r1_terms_are_read_as_they_were_written(terms: RedriveTerms) -> None:
    assert terms_of(terms.encoded()) == terms


def test_j4_a_redrive_has_no_route_to_a_mirror() -> None:
    """Neither to one that is named, nor to one that has the name of where the message died."""
    catalog = Catalog(1)
    catalog._state.level = LEVEL_HIGHEST
    for name, arguments in (("s", {}), ("work", {"x-mirror": "s"})):
        catalog.apply(DeclareQueue("/", name, durable=True, arguments={"x-queue-type": "stream", **arguments}))
    catalog.apply(DeclareQueue("/", "dead", durable=True))
    assert catalog.queue("/", "work") is not None
    content, _ = die(message(), "work")
    for terms in (RedriveTerms(), RedriveTerms(queue="work")):
        assert RedriveRouter(catalog).decide("/", "dead", terms, content).targets == ()
