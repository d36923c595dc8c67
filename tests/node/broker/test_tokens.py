"""Clients that show a token of a provider as their password."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
from pamqp import commands, frame

from mayfly.node.catalog import AddVhost, DeleteVhost
from mayfly.node.catalog.token_user import TokenUser
from mayfly.node.limits import ROUTES_CACHED_OF_TOKEN
from mayfly.node.oauth.algorithms import ALGORITHMS
from mayfly.node.oauth.authority import Authority, TokenRules
from mayfly.node.oauth.claims import ClaimRules
from mayfly.node.oauth.keys import KeySet, read_keys
from mayfly.node.oauth.token import TokenRefused, UnknownKey
from tests.node.conftest import Client, World, closed
from tests.node.oauth import provider
from tests.node.oauth.provider import CLUSTER, EVERYTHING, NOW_S, claims, jwk, jwks, token

LATER_MS = 50


class Tokens:
    """`TokenLogins` with a clock of the test's, whose provider shows other keys when `shown` are set."""

    def __init__(self) -> None:
        self.only = False
        self.now_ms = NOW_S * 1000
        self.shown: bytes = jwks()
        self.authority = Authority(TokenRules(ClaimRules(resource_server_id=CLUSTER), ALGORITHMS, 0), KeySet())
        self.waiting: list[Callable[[], None]] = []
        self.renew()

    def look_at(self, token: str) -> TokenUser | str | None:
        try:
            return self.authority.user_of(token, self.now_ms)
        except UnknownKey:
            return None
        except TokenRefused as refused:
            return str(refused)

    def renew_keys(self, done: Callable[[], None]) -> None:
        self.waiting.append(done)

    def renew(self) -> None:
        self.authority.keys = read_keys(self.shown)[0]
        waiting, self.waiting = self.waiting, []
        for done in waiting:
            done()


class TokenWorld(World):
    def __init__(self) -> None:
        self.tokens = Tokens()
        super().__init__(tokens=self.tokens)

    def by_token(self, *scopes: str, user: str = "", vhost: str = "/", **more: Any) -> Client:
        return self.client(user=user, password=token(claims(*(scopes or EVERYTHING), **more)), vhost=vhost)

    def is_refused(self, password: str, **login: Any) -> bool:
        client = self.login(password=password, **{"user": "guest", **login})
        (close,) = client.take()
        assert isinstance(close, commands.Connection.Close)
        assert (close.reply_code, "token" in str(close.reply_text)) == (403, False)
        return True


@pytest.fixture
def world() -> TokenWorld:
    return TokenWorld()


def bind(queue: str, exchange: str, key: str) -> Any:
    return commands.Queue.Bind(queue=queue, exchange=exchange, routing_key=key)


def refusal(client: Client, method: Any, channel: int = 1) -> str:
    code_and_text = closed(client.call(channel, method))
    assert code_and_text[:2] == ("channel", 403)
    client.send(channel, commands.Channel.CloseOk())
    client.open_channel(channel)
    return code_and_text[2]


@pytest.mark.parametrize("user", ["", "guest", "anything", "a\0b"[:1]])
def test_the_token_says_who_it_is_whatever_the_name(world: TokenWorld, user: str) -> None:
    client = world.by_token(user=user)
    assert client.connection.user == "ada"
    client.declare("q")
    client.publish(1, "q", b"m", user_id="ada")
    assert client.get("q").body == b"m"
    client.publish(1, "q", b"m", user_id="guest")
    assert closed(client.take(1)[-1])[1] == 406
    assert world.verified == 0


def test_users_of_the_catalog_come_as_before(world: TokenWorld) -> None:
    world.client().declare("q")
    assert world.verified == 1
    world.add_user("eyJ", "eyJ.not.%", ".*", ".*", ".*")
    world.client(user="eyJ", password="eyJ.not.%")


def test_without_tokens_they_are_passwords_like_others() -> None:
    world = World()
    text = token(claims(*EVERYTHING))
    assert world.login("guest", text).take()[0].reply_code == 403
    world.add_user("odd", text, ".*", ".*", ".*")
    world.client(user="odd", password=text)


def test_a_node_that_takes_nothing_but_tokens(world: TokenWorld) -> None:
    world.tokens.only = True
    assert world.is_refused("guest")
    assert world.is_refused("", mechanism="EXTERNAL", certificate_user="guest")
    world.by_token()


def test_tokens_that_do_not_count_are_refused(world: TokenWorld) -> None:
    said = claims(*EVERYTHING)
    for bad in (
        token(claims(*EVERYTHING, exp=NOW_S)), token(claims(*EVERYTHING, aud="other")), token(claims(sub=None)),
        token(said, key=provider.key_for("RS256", "another")), provider.unsigned(said),
        provider.signed_with_secret(said, provider.pem()), token(said)[:-2], token(said) + "=",
    ):  # fmt: skip
        assert world.is_refused(bad)
    assert not world.cluster.catalog.user("ada")
    world.client()  # Those before have slowed nobody down.


def test_guest_by_a_token_comes_from_this_machine_only(world: TokenWorld) -> None:
    text = token(claims(*EVERYTHING, name="guest"))
    assert world.is_refused(text, loopback=False)
    world.client(password=text)


def test_a_vhost_of_which_the_token_says_nothing(world: TokenWorld) -> None:
    world.cluster.catalog.apply(AddVhost("other"))
    client = world.login("", token(claims("read:other/*")))
    (tune,) = client.take()
    client.send(0, commands.Connection.TuneOk(tune.channel_max, tune.frame_max, 0), commands.Connection.Open("/"))
    (close,) = client.take()
    assert (close.reply_code, close.reply_text) == (530, "NOT_ALLOWED - access to vhost '/' refused for user 'ada'")
    world.by_token("read:other/*", vhost="other")


def test_scopes_count_for_every_method(world: TokenWorld) -> None:
    world.client().declare("q")
    world.client().declare("mine")
    client = world.by_token("configure:*/mine", "read:*/q", "write:*/amq.default")
    client.declare("mine")
    client.publish(1, "q")
    assert client.get("q").body == b"m"
    text = "ACCESS_REFUSED - access to queue '{}' in vhost '/' refused for user 'ada'"
    assert refusal(client, commands.Queue.Declare(queue="other", durable=True)) == text.format("other")
    assert refusal(client, commands.Queue.Delete(queue="q")) == text.format("q")
    assert refusal(client, commands.Basic.Get(queue="mine")) == text.format("mine")
    assert refusal(client, commands.Basic.Consume(queue="mine")) == text.format("mine")
    assert refusal(client, commands.Queue.Purge(queue="mine")) == text.format("mine")
    assert refusal(client, bind("mine", "amq.direct", "k")) == text.format("mine")
    assert "exchange 'new'" in refusal(client, commands.Exchange.Declare(exchange="new"))
    client.publish(1, "q", exchange="amq.direct")
    assert "exchange 'amq.direct'" in closed(client.take(1)[-1])[2]


def test_keys_of_topic_exchanges(world: TokenWorld) -> None:
    scopes = ("configure:*/*", "write:*/q", "write:*/amq.topic/u-{sub}.*", "read:*/amq.topic/a.*")
    client = world.by_token(*scopes)
    client.declare("q")
    assert isinstance(client.call(1, bind("q", "amq.topic", "a.#")), commands.Queue.BindOk)
    assert "topic '#'" in refusal(client, bind("q", "amq.topic", "#"))
    client.publish(1, "u-ada.x", exchange="amq.topic")
    client.publish(1, "u-eve.x", exchange="amq.topic")
    assert "topic 'u-eve.x'" in closed(client.take(1)[-1])[2]
    client.send(1, commands.Channel.CloseOk())
    client.open_channel()
    client.publish(1, "u-ada.x", exchange="amq.topic", headers={"CC": ["b"]})
    assert "topic 'b'" in closed(client.take(1)[-1])[2]


def test_routes_are_not_shared_with_others_of_that_name(world: TokenWorld) -> None:
    """What one may publish is remembered by exchange and key, and a name says nothing of a token."""
    world.add_user("ada", "pw", ".*", ".*", ".*")
    world.client(user="ada", password="pw").declare("q")
    users = [world.client(user="ada", password="pw"), world.by_token("read:*/*"), world.by_token()]
    for _ in range(2):
        for client in users:
            client.publish(1, "q")
    assert [bool(client.take(1)) for client in users] == [False, True, False]
    assert world.client().count("q") == 4


def test_a_connection_by_a_token_remembers_few_routes(world: TokenWorld) -> None:
    """Nobody shares them: with as many as all connections of a user have, tokens would take a node's memory."""
    by_token, by_password = world.by_token(), world.client()
    by_token.declare("q")
    assert isinstance(by_token.call(1, bind("q", "amq.topic", "#")), commands.Queue.BindOk)
    count = ROUTES_CACHED_OF_TOKEN + 1
    for client in (by_token, by_password):
        for number in range(count):
            client.publish(1, f"key {number}", exchange="amq.topic")
    assert len(by_token.connection.routes.known) <= ROUTES_CACHED_OF_TOKEN
    assert len(by_password.connection.routes.known) == count
    assert by_token.count("q") == 2 * count


def test_the_impersonator_by_a_token(world: TokenWorld) -> None:
    client = world.by_token(*EVERYTHING, "tag:impersonator")
    client.declare("q")
    client.publish(1, "q", user_id="somebody")
    assert client.count("q") == 1


def test_a_deleted_vhost_and_a_user_of_the_same_name(world: TokenWorld) -> None:
    world.cluster.catalog.apply(AddVhost("v"))
    here, there = world.by_token(), world.by_token(vhost="v")
    world.cluster.submit_catalog(DeleteVhost("v"), lambda _: None)
    world.settle()
    assert closed(there.take()[-1])[1] == 320
    here.declare("q")


# -- the end of a token ---------------------------------------------------------------


def test_the_end_of_its_token_closes_a_connection(world: TokenWorld) -> None:
    client = world.by_token(exp=NOW_S + 60)
    client.declare("q")
    client.consume("q")
    client.connection.tick(1_000_000)
    client.connection.tick(1_059_999)
    world.settle()
    assert client.take() == []
    client.connection.tick(1_060_000)
    world.settle()
    assert closed(client.take()[-1]) == (
        "connection", 320, "CONNECTION_FORCED - the token of user 'ada' has expired",
    )  # fmt: skip


def renewed(client: Client, secret: str) -> Any:
    return client.call(0, commands.Connection.UpdateSecret(secret, "it ends"))


def test_another_token_takes_the_place_of_the_first(world: TokenWorld) -> None:
    client = world.by_token("configure:*/*", "write:*/*", exp=NOW_S + 60)
    client.declare("q")
    client.publish(1, "q")
    client.connection.tick(1_000_000)
    second = token(claims("read:*/*", "configure:*/*", exp=NOW_S + 120))
    assert isinstance(renewed(client, second), commands.Connection.UpdateSecretOk)
    client.connection.tick(1_060_000)
    assert client.get("q").body == b"m"
    client.publish(1, "q")
    assert "refused for user 'ada'" in closed(client.take(1)[-1])[2]
    client.connection.tick(1_180_000)
    world.settle()
    assert "expired" in closed(client.take()[-1])[2]


def test_a_second_token_that_does_not_count_closes_the_connection(world: TokenWorld) -> None:
    for bad in (
        token(claims(*EVERYTHING, exp=NOW_S)), token(claims(*EVERYTHING, name="eve")), token(claims("read:other/*")),
        "no token", "", provider.unsigned(claims(*EVERYTHING)),
    ):  # fmt: skip
        client = world.by_token()
        assert closed(renewed(client, bad)) == (
            "connection", 530, "NOT_ALLOWED - New secret was refused by one of the backends",
        )  # fmt: skip


def test_a_second_token_with_octets_that_are_no_text(world: TokenWorld) -> None:
    client = world.by_token()
    update = commands.Connection.UpdateSecret(token(claims(*EVERYTHING)).replace(".", ".?", 1), "")
    client.send_bytes(frame.marshal(update, 0).replace(b"?", b"\xff"))
    assert closed(client.take(0)[-1])[1] == 530


def test_a_user_with_a_password_may_say_another_secret_which_is_not_looked_at(world: TokenWorld) -> None:
    client = world.client()
    assert isinstance(renewed(client, token(claims("read:nothing/*"))), commands.Connection.UpdateSecretOk)
    client.declare("q")
    assert client.connection.user == "guest"


# -- keys -----------------------------------------------------------------------------


def test_a_key_that_is_new_is_looked_for_once(world: TokenWorld) -> None:
    text = token(claims(*EVERYTHING), kid="new")
    client = world.login("", text)
    assert client.take() == []
    world.tokens.shown = jwks(jwk(), jwk(kid="new"))
    world.tokens.renew()
    world.settle()
    assert isinstance(client.take()[0], commands.Connection.Tune)
    world.client(password=text)
    assert world.tokens.waiting == []


def test_a_key_that_nobody_has(world: TokenWorld) -> None:
    client, gone = (world.login("", token(claims(*EVERYTHING), kid="nobody's")) for _ in range(2))
    gone.lose()
    world.tokens.renew()
    world.settle()
    assert closed(client.take()[-1])[1] == 403
    assert gone.take() == []


def test_a_second_token_waits_for_its_key_and_a_third_does_not(world: TokenWorld) -> None:
    client = world.by_token()
    update = commands.Connection.UpdateSecret(token(claims(*EVERYTHING), kid="new"), "")
    client.send(0, update)
    client.declare("q")
    assert client.take(0) == []
    world.tokens.shown = jwks(jwk(), jwk(kid="new"))
    world.tokens.renew()
    world.settle()
    assert isinstance(client.take(0)[-1], commands.Connection.UpdateSecretOk)
    other = commands.Connection.UpdateSecret(token(claims(*EVERYTHING), kid="newer"), "")
    client.send(0, other, other)
    assert closed(client.take(0)[-1])[1] == 503
    world.tokens.renew()
    world.settle()


# -- secrets --------------------------------------------------------------------------


def test_no_token_is_logged(world: TokenWorld, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    good, bad = token(claims(*EVERYTHING)), token(claims(*EVERYTHING), key=provider.key_for("RS256", "another"))
    world.client(user=good, password=good).lose()
    world.login(bad, bad).lose()
    renewed(world.by_token(), bad)
    assert "refused" in caplog.text
    for text in (good, bad):
        assert not [part for part in text.split(".") if part in caplog.text]
