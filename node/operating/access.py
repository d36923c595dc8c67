"""Users, vhosts, permissions and limits as operators set them: the `AccessPort`."""

import asyncio
import random
from collections.abc import Iterable
from concurrent.futures import Executor
from http import HTTPStatus
from typing import Any, Final

from mayfly.cluster.versions import LEVEL_VHOST_METADATA
from mayfly.node.amqp.errors import NOT_ALLOWED
from mayfly.node.amqp.errors import NOT_FOUND as AMQP_NOT_FOUND
from mayfly.node.catalog import (
    AddVhost,
    CatalogCommand,
    ClearPermissions,
    ClearTopicPermissions,
    DeleteUser,
    DeleteVhost,
    DescribeVhost,
    PutUser,
    Refusal,
    SetLimit,
    SetPermissions,
    SetTopicPermissions,
    refusals,
)
from mayfly.node.catalog.access_limits import limit_fault
from mayfly.node.catalog.declarations import DEFAULT_TYPES
from mayfly.node.catalog.expressions import expression_fault
from mayfly.node.catalog.passwords import (
    ALGORITHMS,
    QUICK_SALT_BYTES,
    SALT_BYTES,
    from_imported,
    make_password_hash,
    make_quick_hash,
)
from mayfly.node.catalog.refusals import needs_level
from mayfly.node.catalog.token_user import AnyUser
from mayfly.node.catalog.values import json_term
from mayfly.node.engine.engine import Engine
from mayfly.node.operating.cluster_control import ClusterControl
from mayfly.node.operating.definitions.names import checked_name, checked_tags
from mayfly.node.operating.definitions.reading import is_so_anyway
from mayfly.node.operating.ports.answers import NOT_FOUND, Answer, bad_request, in_doubt, no_such
from mayfly.node.operating.ports.spelling import check_spelling
from mayfly.node.operating.views.shown_user import shown_user
from mayfly.node.operating.views.shown_vhost import shown_vhost
from mayfly.node.operating.visibility import sees_vhost

Path = dict[str, str]

_DEFAULT_TYPE: Final = ("default_queue_type", "defaultqueuetype")
"""The second is what RabbitMQ 3.11.0 called it, and rabbit-hole does still."""
LONGEST_PASSWORD_BYTES: Final = 1024


class Access:
    """Implements `AccessPort`. The local replica is read, brought up to date at the login."""

    def __init__(self, engine: Engine, cluster: ClusterControl, threads: Executor | None) -> None:
        """Passwords are hashed in the threads; None: the loop's own."""
        self._engine = engine
        self._catalog = engine.catalog
        self._cluster = cluster
        self._threads = threads

    # Reading

    def may_see(self, user: AnyUser, vhost: str) -> bool:
        """See `AccessPort.may_see`."""
        return sees_vhost(self._catalog, user, vhost)

    def users(self, name: str | None = None) -> list[dict[str, Any]]:
        """See `AccessPort.users`."""
        return [shown_user(user) for user in self._catalog.users() if name in (None, user.name)]

    def users_without_permissions(self) -> list[dict[str, Any]]:
        """See `AccessPort.users_without_permissions`."""
        allowed = {each.user for each in self._catalog.permissions()}
        return [row for row in self.users() if row["name"] not in allowed]

    def vhosts(self, name: str | None = None) -> list[dict[str, Any]]:
        """See `AccessPort.vhosts`."""
        return [shown_vhost(vhost) for vhost in self._catalog.vhosts() if name in (None, vhost.name)]

    def permissions(self, vhost: str | None, user: str | None) -> list[dict[str, Any]] | None:
        """See `AccessPort.permissions`."""
        if not self._are_there(vhost, user):
            return None
        return [
            {
                "user": each.user,
                "vhost": each.vhost,
                "configure": each.configure,
                "write": each.write,
                "read": each.read,
            }
            for each in self._catalog.permissions()
            if vhost in (None, each.vhost) and user in (None, each.user)
        ]

    def topic_permissions(self, vhost: str | None, user: str | None) -> list[dict[str, Any]] | None:
        """See `AccessPort.topic_permissions`."""
        if not self._are_there(vhost, user):
            return None
        return [
            {"user": each.user, "vhost": each.vhost, "exchange": each.exchange, "write": each.write, "read": each.read}
            for each in self._catalog.topic_permissions()
            if vhost in (None, each.vhost) and user in (None, each.user)
        ]

    def limits(self, kind: str, name: str | None) -> list[dict[str, Any]] | None:
        """See `AccessPort.limits`."""
        records: Iterable[Any] = self._catalog.vhosts() if kind == "vhost" else self._catalog.users()
        found = [record for record in records if name in (None, record.name)]
        if not found:
            return None
        return [{kind: record.name, "value": record.limits} for record in found if record.limits]

    def _are_there(self, vhost: str | None, user: str | None) -> bool:
        no_vhost = vhost is not None and not self._catalog.has_vhost(vhost)
        return not no_vhost and (user is None or self._catalog.user(user) is not None)

    # Changing

    async def put_user(self, at: Path, content: dict[str, Any], _by: AnyUser) -> Answer:
        """See `AccessPort.put_user`."""
        name = checked_name(at["user"], "a user's name")
        check_spelling(content, "password", "password_hash", "hashing_algorithm", "tags")
        tags = _tags(content)
        if content.get("password") is not None:
            password = _text(content, "password")
            if not 0 < len(password.encode("utf-8", "surrogatepass")) <= LONGEST_PASSWORD_BYTES:
                raise ValueError(f"a password has 1 to {LONGEST_PASSWORD_BYTES} octets; for none leave it out")
            salt = random.SystemRandom().randbytes(SALT_BYTES)
            loop = asyncio.get_running_loop()
            stored = await loop.run_in_executor(self._threads, make_password_hash, password, salt)
        else:
            algorithm = content.get("hashing_algorithm", ALGORITHMS[0])
            stored = from_imported(str(algorithm), _text(content, "password_hash", ""))
        existed = self._catalog.user(name) is not None
        return await self._put(PutUser(name, stored, tags), existed)

    def hash_password(self, password: str) -> dict[str, Any]:
        """See `AccessPort.hash_password`."""
        return {"ok": make_quick_hash(password, random.SystemRandom().randbytes(QUICK_SALT_BYTES))}

    async def delete_user(self, at: Path) -> Answer:
        """See `AccessPort.delete_user`."""
        return await self._delete(DeleteUser(at["user"]))

    async def delete_users(self, content: dict[str, Any]) -> Answer:
        """See `AccessPort.delete_users`."""
        names = content.get("users")
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise ValueError("users takes a list of names")
        for name in names:
            if self._catalog.user(name) is not None:
                done = await self._delete(DeleteUser(name))
                if done[0] >= HTTPStatus.BAD_REQUEST and done[0] != HTTPStatus.NOT_FOUND:
                    return done
        return HTTPStatus.NO_CONTENT, {}

    async def put_vhost(self, at: Path, content: dict[str, Any], by: AnyUser) -> Answer:
        """See `AccessPort.put_vhost`."""
        name = checked_name(at["vhost"], "a vhost's name")
        check_spelling(content, "description", "tags", *reversed(_DEFAULT_TYPE))
        described = _description(name, content)
        level = self._catalog.level
        if level < LEVEL_VHOST_METADATA and is_so_anyway(described):
            described = None
        if level < LEVEL_VHOST_METADATA and described is not None:
            what = "tags and default queue types of vhosts"
            return bad_request(needs_level(what, LEVEL_VHOST_METADATA, level).text)
        existed = self._catalog.has_vhost(name)
        known = self._catalog.vhost(name)
        description = _text(content, "description", "" if known is None else known.description)
        done = await self._put(AddVhost(name, description), existed)
        if described is not None and done[0] < HTTPStatus.BAD_REQUEST:
            told = await self._put(described, existed)
            done = told if told[0] >= HTTPStatus.BAD_REQUEST else done
        # What users of tokens may do, those say.
        if not existed and done[0] == HTTPStatus.CREATED and isinstance(by, str):
            await self._put(SetPermissions(by, name, ".*", ".*", ".*"), False)
        return done

    async def delete_vhost(self, at: Path) -> Answer:
        """See `AccessPort.delete_vhost`."""
        known = self._catalog.vhost(at["vhost"])
        if known is not None and known.protected:
            text = refusals.vhost_is_protected(known.name).text
            return HTTPStatus.PRECONDITION_FAILED, {"error": "precondition_failed", "reason": text}
        return await self._delete(DeleteVhost(at["vhost"]))

    async def protect_vhost(self, vhost: str, protected: bool) -> Answer:
        """See `AccessPort.protect_vhost`."""
        if not self._catalog.has_vhost(vhost):
            return HTTPStatus.NOT_FOUND, NOT_FOUND
        if self._catalog.level < LEVEL_VHOST_METADATA:
            what = "protecting vhosts from deletion"
            return bad_request(needs_level(what, LEVEL_VHOST_METADATA, self._catalog.level).text)
        return await self._put(DescribeVhost(vhost, protected=protected), True)

    async def put_permissions(self, at: Path, content: dict[str, Any], _by: AnyUser) -> Answer:
        """See `AccessPort.put_permissions`."""
        check_spelling(content, "configure", "write", "read")
        configure, write, read = (_expression(content, key) for key in ("configure", "write", "read"))
        existed = self._catalog.permission(at["user"], at["vhost"]) is not None
        command = SetPermissions(at["user"], at["vhost"], configure, write, read)
        return _without_either(await self._put(command, existed))

    async def delete_permissions(self, at: Path) -> Answer:
        """See `AccessPort.delete_permissions`."""
        return await self._delete(ClearPermissions(at["user"], at["vhost"]))

    async def put_topic_permissions(self, at: Path, content: dict[str, Any], _by: AnyUser) -> Answer:
        """See `AccessPort.put_topic_permissions`."""
        check_spelling(content, "exchange", "write", "read")
        exchange = _text(content, "exchange")
        write, read = _expression(content, "write"), _expression(content, "read")
        existed = self._catalog.topic_permission(at["user"], at["vhost"], exchange) is not None
        command = SetTopicPermissions(at["user"], at["vhost"], exchange, write, read)
        return _without_either(await self._put(command, existed))

    async def delete_topic_permissions(self, at: Path) -> Answer:
        """See `AccessPort.delete_topic_permissions`."""
        return await self._delete(ClearTopicPermissions(at["user"], at["vhost"], at.get("exchange")))

    async def put_limit(self, at: Path, content: dict[str, Any], _by: AnyUser) -> Answer:
        """See `AccessPort.put_limit`."""
        kind, name = _limited(at)
        check_spelling(content, "value")
        fault = limit_fault(kind, at["limit"], content.get("value"))
        if fault is not None:
            raise ValueError(fault)
        return await self._put(SetLimit(kind, name, at["limit"], content["value"]), True)

    async def delete_limit(self, at: Path) -> Answer:
        """See `AccessPort.delete_limit`."""
        kind, name = _limited(at)
        return await self._put(SetLimit(kind, name, at["limit"], None), True)

    async def _put(self, command: CatalogCommand, existed: bool) -> Answer:
        result = await self._cluster.command(command)
        if result is None or isinstance(result, Refusal):
            return _failed(result)
        await self._cluster.spread()
        return (HTTPStatus.NO_CONTENT if existed else HTTPStatus.CREATED), {}

    async def _delete(self, command: CatalogCommand) -> Answer:
        result = await self._cluster.command(command)
        if result is None or isinstance(result, Refusal):
            return _failed(result)
        await self._cluster.spread()
        if not getattr(result, "changed", True):
            return HTTPStatus.NOT_FOUND, NOT_FOUND
        return HTTPStatus.NO_CONTENT, {}


def _without_either(done: Answer) -> Answer:
    """RabbitMQ's answer where the user or the vhost of permissions is missing."""
    status, content = done
    if status != HTTPStatus.NOT_FOUND:
        return done
    return bad_request(f"vhost_or_user_not_found: {content['reason']}")


def _failed(result: Refusal | None) -> Answer:
    if result is None:
        return in_doubt()
    return no_such(result.text) if result.code in (AMQP_NOT_FOUND, NOT_ALLOWED) else bad_request(result.text)


def _limited(at: Path) -> tuple[Any, str]:
    return ("vhost", at["vhost"]) if "vhost" in at else ("user", at["user"])


def _description(vhost: str, content: dict[str, Any]) -> DescribeVhost | None:
    """What the body of a PUT says of a vhost beside its description; None for nothing. An empty type is none: Terraform
    sends it. Raises ValueError, of the type in RabbitMQ's words."""
    kind = next((content[field] for field in _DEFAULT_TYPE if field in content), None)
    kind = None if kind in ("", "undefined") else kind
    if kind is not None and not isinstance(kind, str):
        raise ValueError(f"{json_term(kind)} is not a valid default_queue_type value")
    if kind is not None and kind not in DEFAULT_TYPES:
        raise ValueError(f"{kind} is not a valid queue type")
    given = content.get("tags")
    tags = None if given is None else checked_tags(given)
    return None if kind is None and tags is None else DescribeVhost(vhost, tags, kind)


def _text(content: dict[str, Any], field: str, default: str | None = None) -> str:
    """Never quotes the value: it may be a password."""
    value = content.get(field, default)
    if value is None:
        raise ValueError(f"{field} is missing in the body")
    if not isinstance(value, str):
        raise ValueError(f"{field} takes a string")
    return value


def _expression(content: dict[str, Any], field: str) -> str:
    text = _text(content, field)
    fault = expression_fault(text)
    if fault is not None:
        raise ValueError(f"{field} takes a regular expression, and '{text}' can't be used: {fault}")
    return text


def _tags(content: dict[str, Any]) -> tuple[str, ...]:
    tags = content.get("tags")
    if tags is None:
        raise ValueError('tags_not_present: tags is missing in the body; "" is none')
    return checked_tags(tags)
