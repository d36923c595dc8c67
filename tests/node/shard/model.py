"""A naive shard: plain lists, one message at a time, nothing derived. For comparison only."""

from collections.abc import Sequence

from tests.node.shard.model_outbox import ModelOutbox
from tests.node.shard.model_queue import Item, Person, Row, priority_in


class Model:
    """The rules, written down as simply as they can be."""

    def __init__(self, expiries: int, deliveries: int, returned: int = 10_000) -> None:
        self.returned = returned
        self.return_left = 0
        self.expiries = expiries
        self.deliveries = deliveries
        self.rows: dict[int, Row] = {}
        self.deleted: dict[int, str] = {}
        self.outbox = ModelOutbox()
        self.remains: list[tuple[int, list[Item]]] = []
        self.queue_expired = 0
        self.expired_queues = 0
        self.next_order = 1
        self.level = 1
        self.now = 0
        self.led = 0
        self.entry = 0
        self.touched: list[Row] = []
        self.due_asked = False
        self.effects: list[tuple[object, ...]] = []
        self.expiry_left = 0
        self.delivery_left = 0
        self.sizes: dict[str, int] = {}
        """What each body counts for in a window, with its key, its header and what is fixed."""

    # -- an entry --

    def begin(self, entry: int, now: int, led: int) -> None:
        self.entry, self.now, self.led = entry, now, led
        self.expiry_left, self.delivery_left = self.expiries, self.deliveries
        self.due_asked = False
        self.return_left = self.returned

    def finish(self) -> None:
        for row in self.touched:
            if self.rows.get(row.number) is row:
                self.serve(row)
        self.touched = []
        for number in sorted(self.rows):
            row = self.rows[number]
            if self.delivery_left > 0 and row.waiting and not row.braked and (row.ready or row.returned):
                self.serve(row)
        for number in sorted(self.rows):
            row = self.rows[number]
            if self.expiry_left > 0 and row.limited(True) and row.is_over():
                self.serve(row)
        while self.remains and self.expiry_left > 0:
            number, items = self.remains[0]
            self.expiry_left -= 1
            self.queue_expired += 1
            self.outbox.add(number, items.pop(0), "queue_expired")
            if not items:
                self.remains.pop(0)
        while self.due_asked and self.expiry_left > 0:
            due = self.due()
            if not due or due[0][0] > self.now:
                break
            self.serve(self.rows[due[0][1]])
        for row in self.rows.values():
            row.kept = row.kept and not row.is_empty() and bool(row.settings.get("expires_if_empty"))

    def unfinished(self) -> bool:
        """Whether the bounds of an entry left something to do at once."""
        waiting = any(row.waiting and not row.braked and (row.ready or row.returned) for row in self.rows.values())
        over = any(row.limited(True) and row.is_over() for row in self.rows.values())
        return waiting or over or bool(self.remains)

    def due(self) -> list[tuple[int, int]]:
        found = []
        for row in self.rows.values():
            heads = [part[0].deadline for part, _ in row.lines() if part and part[0].deadline >= 0]
            heads = [] if row.dialect == "ottermq" else heads
            if row.braked:
                heads.append(row.brake_ends())
            if heads:
                found.append((min(heads), row.number))
        return sorted(found)

    def catch_up(self, row: Row) -> None:
        """What the entry has put into it up to now is served before somebody looks."""
        if row in self.touched and (row.consumers() or (row.limited(True) and row.is_over())):
            self.serve(row)

    def touch(self, row: Row) -> None:
        if row not in self.touched:
            self.touched.append(row)

    # -- messages --

    def die(self, row: Row, item: Item, reason: str) -> None:
        if row.setting("brake_window_ms") and reason in ("rejected", "delivery_limit"):
            row.fail(self.now)
            if row.braked:
                self.touch(row)
        if row.settings.get("dead_letter_exchange") is not None:
            self.outbox.add(row.number, item, reason)

    def next_live(self, row: Row, fresh: bool) -> Item | None:
        for part, line in row.lines():
            for head in part:
                zero = fresh and head.deadline == self.now and head.entry == self.entry
                if head.deadline < 0 or head.deadline > self.now or zero:
                    line.remove(head)
                    return head
                if self.expiry_left <= 0:
                    return None
                self.expiry_left -= 1
                line.remove(head)
                self.die(row, head, "expired")
        return None

    def serve(self, row: Row) -> None:
        row.judge(self.now)
        while row.waiting and not row.braked and self.delivery_left > 0 and (row.ready or row.returned):
            item = self.next_live(row, True)
            if item is None:
                break
            self.delivery_left -= 1
            best = max(person.priority for person in row.waiting)
            person = next(person for person in row.waiting if person.priority == best)
            row.waiting.remove(person)
            person.last += 1
            person.given += self.sizes[item.body] if person.window else 0
            if not person.no_ack:
                person.held[person.last] = item
            self.effects.append((person.session, person.number, person.last, item.body, item.count, item.acquired))
            if person.has_room():
                row.waiting.append(person)
        for part, line in row.lines() if row.dialect != "ottermq" else ():
            while part and 0 <= part[0].deadline <= self.now and self.expiry_left > 0:
                self.expiry_left -= 1
                line.remove(part[0])
                self.die(row, part.pop(0), "expired")
        while row.limited(True) and row.is_over() and self.expiry_left > 0:
            self.expiry_left -= 1
            row.overflowed += 1
            part, line = next((part, line) for part, line in row.lines() if part)
            line.remove(part[0])
            self.die(row, part[0], "maxlen")

    def has_room(self, row: Row, body: str) -> bool:
        """Whether a queue that refuses takes this."""
        if not row.is_over([len(body)]):
            return True
        self.serve(row)
        idle = row.waiting and not row.braked and not (row.ready or row.returned) and self.delivery_left > 0
        return bool(idle) or not row.is_over([len(body)])

    def admit(self, row: Row, person: Person) -> None:
        single = row.single_active and (row.single is not person or self.outranked(row))
        if (
            person not in row.waiting
            and person.attached
            and person.active
            and not single
            and person.has_room()
        ):
            row.waiting.append(person)
            self.touch(row)

    def outranked(self, row: Row) -> bool:
        """Whether the single active consumer is to yield."""
        best = max((person.priority for person in row.consumers()), default=0)
        return self.level >= 5 and row.single_active and row.single is not None and best > row.single.priority

    def give_way(self, row: Row) -> None:
        """The single active consumer gets no more if it is to yield, and yields once it holds nothing."""
        if not self.outranked(row):
            return
        assert row.single is not None
        if row.single in row.waiting:
            row.waiting.remove(row.single)
        if not row.single.held:
            best = max(person.priority for person in row.consumers())
            row.single = next(person for person in row.consumers() if person.priority == best)
            self.admit(row, row.single)

    def raise_level(self, level: int) -> None:
        self.level = max(level, self.level)
        for row in self.rows.values():
            if self.outranked(row):
                self.touch(row)
                self.give_way(row)

    def enqueue(self, row: Row, body: str, ttl: int | None, marked: bool = False) -> None:
        priority = min(priority_in(body) or row.usual, row.setting("max_priority") or 0)
        if row.usual:
            priority = 0 if priority == row.usual else priority + 1
        deadline = row.deadline(self.now, ttl)
        if row.dialect == "lavinmq" and row.consumers() and 0 in (ttl, row.setting("message_ttl_ms")):
            deadline = -1
        row.ready.append(Item(self.entry, body, deadline, 0, priority, self.now, ttl, -1 if marked else 0))
        self.expiry_left += 1
        self.delivery_left += 1
        self.touch(row)

    def after(self, item: Item, failed: bool) -> Item:
        return Item(
            item.entry, item.body, item.deadline, item.count + failed, item.priority, item.born, item.ttl,
            max(item.acquired, 0) + 1,
        )

    def come_back(
        self, row: Row, items: list[Item], to_back: bool, together: bool = False, failed: bool = True
    ) -> None:
        """`together`: more than an entry deals with, all that somebody held: those that are late die in line."""
        failed = failed or row.dialect == "lavinmq"
        limit = row.setting("delivery_limit")
        by_priority = to_back or not row.usual
        for item in items:
            if (item.priority and by_priority) or (limit is not None and item.count + failed > limit):
                together = False
        if not together:
            self.return_left -= len(items)
        for item in items:
            back = self.after(item, failed)
            late = 0 <= back.deadline <= self.now and not together
            if limit is not None and back.count > limit:
                row.delivery_limited += 1
                self.die(row, back, "delivery_limit")
            elif late and self.expiry_left > 0:
                self.expiry_left -= 1
                self.die(row, back, "expired")
            elif to_back and not late:
                row.ready.append(back)
            else:
                row.returned.append(back)
        self.touch(row)

    # -- commands --

    def publish(self, numbers: Sequence[int], body: str, ttl: int | None) -> None:
        for number in numbers:
            if number in self.rows:
                self.enqueue(self.rows[number], body, ttl)

    def guarded(self, numbers: Sequence[int], body: str, ttl: int | None) -> bool:
        """A publish that full queues may refuse; whether one did."""
        refused = False
        for number in numbers:
            row = self.rows.get(number)
            if row is None:
                continue
            if row.limited(False) and not self.has_room(row, body):
                refused = True
                row.refused += 1
                if row.settings["overflow"] == "reject-publish-dlx":
                    self.die(row, Item(self.entry, body, -1), "maxlen")
            else:
                self.enqueue(row, body, ttl)
        return refused

    def has_room_for(self, row: Row, bodies: list[str]) -> bool:
        """Whether a queue that refuses takes all of these."""
        sizes = [len(body) for body in bodies]
        if row.is_over(sizes):
            self.serve(row)
        together = sum(self.sizes[body] for body in bodies)
        rooms = [99 if p.no_ack or not p.prefetch else p.prefetch - len(p.held) for p in row.waiting]
        # Who may not have room for all of them in its window is sure to take one.
        rooms = [room if p.window_left() >= together else 1 for room, p in zip(rooms, row.waiting, strict=True)]
        idle = not (row.ready or row.returned or row.braked) and min(sum(rooms), self.delivery_left) >= len(bodies)
        return idle or not row.is_over(sizes)

    def transaction(self, publishes: list[tuple[list[int], str]], ttl: int | None) -> bool:
        """The publishes of a transaction; False if they are refused, all of them."""
        asked: dict[int, list[str]] = {}
        for numbers, body in publishes:
            for number in numbers:
                if number in self.rows and self.rows[number].limited(False):
                    asked.setdefault(number, []).append(body)
        taken = True
        for number, bodies in asked.items():
            if not self.has_room_for(self.rows[number], bodies):
                self.rows[number].refused += len(bodies)
                taken = False
        for numbers, body in publishes if taken else ():
            self.publish(numbers, body, ttl)
        return taken

    def arrive(self, row: Row, body: str, marked: bool) -> bool:
        """A dead letter; False if it has to wait. `marked`: a delivery of it failed before."""
        if row.limited(False) and not self.has_room(row, body):
            if row.settings["overflow"] != "reject-publish-dlx" or row.settings.get("dead_letter_exchange") is None:
                return False
            row.refused += 1
            self.die(row, Item(self.entry, body, -1, acquired=-1 if marked else 0), "maxlen")
        else:
            self.enqueue(row, body, None, marked)
        return True

    def update(self, number: int, settings: dict[str, object]) -> None:
        row = self.rows.get(number)
        if row is None or row.settings == settings:
            return
        if row.settings.get("expires_ms") != settings.get("expires_ms"):
            self.used(row)
        if row.setting("brake_window_ms"):
            self.touch(row)
        row.settings = settings
        if not row.setting("brake_window_ms"):
            row.failures, row.braked = [], False
        if settings.get("ttl_retroactive"):
            for item in row.ready + row.returned + [item for person in row.people for item in person.held.values()]:
                item.deadline = row.deadline(item.born, item.ttl)
        if not row.is_empty():
            self.touch(row)

    def used(self, row: Row) -> None:
        row.kept = False
        row.epoch += 1
        row.started = self.led

    def create(self, number: int, settings: dict[str, object]) -> object:
        if number in self.deleted:
            return ("gone", self.deleted[number])
        if number in self.rows:
            return self.touch_queue(number)
        self.rows[number] = Row(number, settings, self.led)
        return ("counts", 0, 0)

    def touch_queue(self, number: int) -> object:
        row = self.rows.get(number)
        if row is None:
            return ("gone", self.deleted.get(number, ""))
        self.catch_up(row)
        if row.dialect != "lavinmq":
            self.used(row)
        return ("counts", len(row.ready) + len(row.returned), len(row.consumers()))

    def person(self, session: tuple[int, int], row: Row | None, number: int) -> Person | None:
        for person in row.people if row else ():
            if (person.session, person.number) == (session, number):
                return person
        return None

    def add(self, session: tuple[int, int], row: Row, number: int) -> Person:
        person = Person(session, number, self.next_order)
        self.next_order += 1
        row.people.append(person)
        return person

    def get(self, session: tuple[int, int], number: int, holder: int, no_ack: bool) -> object:
        row = self.rows.get(number)
        if row is None:
            return ("gone", self.deleted.get(number, ""))
        self.used(row)
        self.catch_up(row)
        row.judge(self.now)
        item = None if row.braked else self.next_live(row, False)
        self.touch(row)
        if item is None:
            left = len(row.ready) + len(row.returned)
            return ("get", None, 0, left, left > 0 and not row.braked)
        delivery = 0
        if not no_ack:
            person = self.person(session, row, holder) or self.add(session, row, holder)
            person.last += 1
            delivery = person.last
            person.held[delivery] = item
        return ("get", item.body, delivery, len(row.ready) + len(row.returned), False)

    def attach(
        self, session: tuple[int, int], number: int, consumer: int, prefetch: int, no_ack: bool,
        exclusive: bool, priority: int, window: int = 0,
    ) -> object:  # fmt: skip
        row = self.rows.get(number)
        if row is None:
            return ("gone", self.deleted.get(number, ""))
        if self.person(session, row, consumer):
            return ("refused", "duplicate-consumer")
        if any(person.exclusive for person in row.consumers()) or (exclusive and row.consumers()):
            return ("refused", "exclusive")
        self.catch_up(row)
        person = self.add(session, row, consumer)
        person.consumer = person.attached = True
        person.prefetch, person.no_ack, person.exclusive, person.priority = (
            prefetch,
            no_ack,
            exclusive,
            priority,
        )
        person.window = window
        self.used(row)
        if row.single is None:
            row.single = person
        self.give_way(row)
        self.admit(row, person)
        self.touch(row)
        return ("attached", len(row.consumers()))

    def detach(self, session: tuple[int, int], number: int, holder: int, way: int) -> None:
        give_back = way != 0
        row = self.rows.get(number)
        person = self.person(session, row, holder)
        if row is None or person is None:
            return
        if person.attached:
            person.attached = False
            if person in row.waiting:
                row.waiting.remove(person)
            if row.single is person:
                best = max((other.priority for other in row.consumers()), default=0)
                row.single = next((other for other in row.consumers() if other.priority == best), None)
            if row.single and row.single_active:
                self.admit(row, row.single)
            self.touch(row)
        if give_back:
            items = list(person.held.values())
            person.held = {}
            if items:
                self.come_back(row, items, False, len(items) > max(self.return_left, 0), way == 1)
        if not person.held and (person.consumer or give_back):
            self.leave(row, person)
        if person.consumer and row.settings.get("auto_delete") and not row.consumers():
            self.remove(row, "auto-delete")

    def leave(self, row: Row, person: Person) -> None:
        row.people.remove(person)
        if person.consumer and not row.suspended():
            self.used(row)

    def flow(self, session: tuple[int, int], number: int, consumer: int, active: bool) -> None:
        row = self.rows.get(number)
        person = self.person(session, row, consumer)
        if row is None or person is None or not person.attached:
            return
        person.active = active
        if active:
            self.admit(row, person)
        elif person in row.waiting:
            row.waiting.remove(person)

    def set_prefetch(self, session: tuple[int, int], number: int, consumer: int, prefetch: int) -> None:
        row = self.rows.get(number)
        person = self.person(session, row, consumer)
        if row is None or person is None or not person.attached:
            return
        person.prefetch = prefetch
        if person.has_room():
            self.admit(row, person)
        elif person in row.waiting:
            row.waiting.remove(person)

    def take(self, session: tuple[int, int], number: int, consumer: int, taken: int) -> None:
        """A consumer's node has said what the client has taken of it all."""
        row = self.rows.get(number)
        person = self.person(session, row, consumer)
        if row is not None and person is not None and person.attached and person.taken < taken:
            person.taken = min(taken, person.given)
            self.admit(row, person)

    def held(self, session: tuple[int, int], number: int, holder: int) -> list[int]:
        """The delivery ids of what somebody holds."""
        person = self.person(session, self.rows.get(number), holder)
        return [] if person is None else list(person.held)

    def holds(self, session: tuple[int, int], number: int, holder: int, ids: Sequence[int]) -> bool:
        """Whether somebody holds all of these, or the queue is gone."""
        row = self.rows.get(number)
        person = self.person(session, row, holder)
        return row is None or (person is not None and all(each in person.held for each in ids))

    def settle(
        self, session: tuple[int, int], number: int, holder: int, outcome: int, ids: Sequence[int]
    ) -> None:
        row = self.rows.get(number)
        person = self.person(session, row, holder)
        if row is None or person is None:
            return
        left = person.last - min(max(ids, default=0), person.last)
        run = list(ids) == list(range(ids[0], ids[0] + len(ids))) if ids else False
        together = run and left <= self.returned and len(person.held) - left > max(self.return_left, 0)
        together = together and ids[0] <= min(person.held)
        items = [person.held.pop(number) for number in ids if number in person.held]
        if not items:
            return
        if outcome in (1, 5):
            to_back = outcome == 1 and self.level < 5 and row.setting("delivery_limit") is None
            self.come_back(row, items, to_back, together, outcome == 1)
        elif outcome in (2, 6):
            for item in items:
                counts = outcome == 2 and self.level >= 5
                self.die(row, self.after(item, True) if counts else item, "rejected")
        if person.attached:
            self.admit(row, person)
            self.give_way(row)
        elif person.consumer and not person.held:
            self.leave(row, person)

    def release_brake(self, number: int) -> object:
        row = self.rows.get(number)
        if row is None:
            return ("gone", self.deleted.get(number, ""))
        if not row.braked:
            return ("refused", "not-braked")
        row.failures, row.braked = [], False
        self.touch(row)
        return None

    def purge(self, number: int) -> object:
        row = self.rows.get(number)
        if row is None:
            return ("gone", self.deleted.get(number, ""))
        self.catch_up(row)
        count = len(row.ready) + len(row.returned)
        row.ready, row.returned = [], []
        self.touch(row)
        return ("purged", count)

    def delete(self, number: int, if_unused: bool, if_empty: bool) -> object:
        row = self.rows.get(number)
        if row is None:
            return ("gone", self.deleted.get(number, ""))
        if if_unused and row.consumers():
            return ("refused", "in-use")
        self.catch_up(row)
        count = len(row.ready) + len(row.returned)
        if if_empty and count:
            return ("refused", "not-empty")
        self.remove(row, "deleted")
        return ("deleted", count)

    def remove(self, row: Row, reason: str) -> None:
        for person in row.consumers():
            self.effects.append((person.session, person.number, "cancelled", row.number))
        left = [item for person in row.people for item in person.held.values()]
        for part, _ in row.lines():
            left += part
        dies = row.settings.get("expires_dead_letter") and row.settings.get("dead_letter_exchange") is not None
        if reason == "expired" and dies and left:
            self.remains.append((row.number, left))
        del self.rows[row.number]
        if reason:
            self.deleted[row.number] = reason

    def expire_queue(self, number: int, epoch: int) -> None:
        row = self.rows.get(number)
        expires = row.setting("expires_ms") if row else None
        if row is None or expires is None or row.suspended() or row.epoch != epoch:
            return
        if self.led >= row.started + expires:
            if row.settings.get("dead_letter_exchange") is not None:
                self.serve(row)
                heads = [part[0].deadline for part, _ in row.lines() if part]
                if self.expiry_left <= 0 and any(0 <= deadline <= self.now for deadline in heads):
                    return
            if row.settings.get("expires_if_empty") and not row.is_empty():
                row.kept = True
            else:
                self.expired_queues += 1
                self.remove(row, "expired")

    def due_leases(self) -> list[tuple[int, int]]:
        found = []
        for row in self.rows.values():
            expires = row.setting("expires_ms")
            if expires is not None and not row.suspended() and not row.kept and self.led >= row.started + expires:
                found.append((row.started + expires, row.number, row.epoch))
        return [(number, epoch) for _, number, epoch in sorted(found)]

    def close(self, session: tuple[int, int]) -> None:
        everybody = [
            (person.order, number, person.number)
            for number, row in self.rows.items()
            for person in row.people
            if person.session == session
        ]
        for _, number, holder in sorted(everybody):
            self.detach(session, number, holder, 2 if self.level >= 5 else 1)

    def route(self, sequence: int, outcome: int, local: list[int], remote: list[int], body: str) -> None:
        death = self.outbox.take(sequence)
        if death is None:
            return
        if outcome == 1:
            self.outbox.parked[sequence] = death
        elif outcome == 0:
            item = death[2]
            marked = self.level >= 5 and (item.count > 0 or item.acquired == -1)
            for number in local:
                if number not in self.rows:
                    continue
                if self.outbox.lanes.get(number) or not self.arrive(self.rows[number], body, marked):
                    self.outbox.line_up(number, Item(self.entry, body, -1, acquired=-1 if marked else 0))
            for lane in remote:
                self.outbox.line_up(lane, Item(self.entry, body, -1, acquired=-1 if marked else 0))

    def transfer(self, source: int, lane: int, first: int, bodies: list[str], marked: bool) -> None:
        row = self.rows.get(lane)
        if row is None or first > row.received.get(source, 0) + 1:
            return
        for sequence, body in enumerate(bodies, first):
            if sequence == row.received.get(source, 0) + 1:
                if not self.arrive(row, body, marked):
                    break
                row.received[source] = sequence

    # -- what is left --

    def live_entries(self) -> set[int]:
        items = self.outbox.items()
        for _, left in self.remains:
            items += left
        for row in self.rows.values():
            items += row.ready + row.returned
            for person in row.people:
                items += person.held.values()
        return {item.entry for item in items}
