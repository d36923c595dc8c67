"""Switches of the whole cluster and of single vhosts: what is off there (RULES X3).

What is off is refused where an argument, a policy or a message asks for it, and does not count where it was asked for
before. Of message TTL: messages that have a deadline when it is switched off keep it. Of dead-lettering: what died
before is still on its way.
"""
from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from mayfly.node.amqp.errors import PRECONDITION_FAILED
from mayfly.node.catalog import refusals
from mayfly.node.catalog.records import QueueSettings
from mayfly.node.catalog.results import Refusal

MESSAGE_TTL: Final = "message-ttl"
DEAD_LETTERING: Final = "dead-lettering"
FEATURES: Final = (MESSAGE_TTL, DEAD_LETTERING)
"""What can be switched off."""

CALLED: Final = {MESSAGE_TTL: "message TTL", DEAD_LETTERING: "dead-lettering"}
_ARGUMENTS: Final = {
    "x-message-ttl": MESSAGE_TTL,
    "x-dead-letter-exchange": DEAD_LETTERING,
    "x-dead-letter-routing-key": DEAD_LETTERING,
    "x-dead-letter-strategy": DEAD_LETTERING,
    "x-expires-dead-letter": DEAD_LETTERING,
}
_POLICY_KEYS: Final = {
    "message-ttl": MESSAGE_TTL,
    "dead-letter-exchange": DEAD_LETTERING,
    "dead-letter-routing-key": DEAD_LETTERING,
    "dead-letter-strategy": DEAD_LETTERING,
}


class SwitchRecord(msgspec.Struct, frozen=True, array_like=True):
    """Something that is off in a vhost, or, where that is None, in the whole cluster."""

    vhost: str | None
    feature: str


class Switches:
    """What is off."""

    def __init__(self, records: Iterable[SwitchRecord] = ()) -> None:
        self._records: dict[SwitchRecord, None] = dict.fromkeys(records)

    def records(self) -> list[SwitchRecord]:
        """All, in an order of their own."""
        return sorted(self._records, key=lambda record: (record.vhost is not None, record.vhost or "", record.feature))

    def turn(self, record: SwitchRecord, on: bool) -> bool:
        """Switch something on or off; whether that changed anything."""
        known = record in self._records
        if on:
            self._records.pop(record, None)
        else:
            self._records[record] = None
        return known == on

    def forget(self, vhost: str) -> None:
        """The vhost is gone."""
        for feature in FEATURES:
            self._records.pop(SwitchRecord(vhost, feature), None)

    def off_in(self, vhost: str) -> tuple[str, ...]:
        """What is off in a vhost, there or in the whole cluster; in the order of FEATURES."""
        if not self._records:
            return ()
        return tuple(feature for feature in FEATURES if self.is_off(feature, vhost))

    def is_off(self, feature: str, vhost: str) -> bool:
        """Whether something is off in a vhost."""
        records = self._records
        return bool(records) and (SwitchRecord(None, feature) in records or SwitchRecord(vhost, feature) in records)

    def where(self, feature: str, vhost: str) -> str:
        """Why it is off there, in words."""
        place = "in this cluster" if SwitchRecord(None, feature) in self._records else f"in vhost '{vhost}'"
        return f"{CALLED[feature]} is switched off {place}"

    def check_arguments(self, vhost: str, queue: str, arguments: Mapping[str, Any]) -> None:
        """Refuse (406) a queue that asks for what is off."""
        if not self._records:
            return
        for key, feature in _ARGUMENTS.items():
            if arguments.get(key, False) is not False and self.is_off(feature, vhost):
                raise refusals.invalid_argument(vhost, queue, key, self.where(feature, vhost))
        if arguments.get("x-overflow") == "reject-publish-dlx" and self.is_off(DEAD_LETTERING, vhost):
            raise refusals.invalid_argument(vhost, queue, "x-overflow", self.where(DEAD_LETTERING, vhost))

    def check_definition(self, vhost: str, definition: Mapping[str, Any]) -> None:
        """Refuse (406) a policy that asks for what is off."""
        for key in sorted(definition):
            feature = _POLICY_KEYS.get(key)
            if feature is None and definition.get(key) == "reject-publish-dlx":
                feature = DEAD_LETTERING
            if feature is not None and self.is_off(feature, vhost):
                raise Refusal(PRECONDITION_FAILED, f"{key}: {self.where(feature, vhost)}")

    def expiration_refusal(self, vhost: str, expiration: bytes) -> Refusal | None:
        """Why no message with this property may be published there; None: it may."""
        if not self.is_off(MESSAGE_TTL, vhost):
            return None
        shown = expiration.decode("utf-8", "replace")
        return Refusal(PRECONDITION_FAILED, f"invalid expiration '{shown}': {self.where(MESSAGE_TTL, vhost)}")


def without(settings: QueueSettings, off: tuple[str, ...]) -> QueueSettings:
    """The settings of a queue where this is off."""
    if MESSAGE_TTL in off:
        settings = replace(settings, message_ttl_ms=None)
    if DEAD_LETTERING in off:
        settings = replace(
            settings, dead_letter_exchange=None, dead_letter_routing_key=None, expires_dead_letter=False
        )
    return settings
