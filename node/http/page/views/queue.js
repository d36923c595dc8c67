// One queue: what is in it, until when, and what may be done with it.

import { at, get, post, remove } from "../api.js";
import { age, countdown, leaseBar } from "../clock.js";
import { h, show } from "../dom.js";
import { ask, tell } from "../parts/dialog.js";
import { Facts, figure } from "../parts/facts.js";
import { Plot } from "../parts/plot.js";
import { count, duration, exactly, octets, rate } from "../units.js";
import { bindingsTable } from "./exchanges.js";
import { Journal } from "./journal.js";
import { getForm } from "./messages.js";
import { publishForm } from "./publish.js";
import { redriveSection } from "./redrive.js";
import { Scheduled } from "./scheduled.js";
import { StreamSection } from "./stream.js";

const COUNTS = {
  enqueued: "Enqueued", delivered: "Delivered", acknowledged: "Acknowledged", expired: "Expired",
  dead_lettered: "Dead-lettered", overflowed: "Dropped at the limit", refused: "Refused when full",
  delivery_limited: "Beyond the delivery limit", duplicates: "Repeated transfers dropped",
};

export function queueView({ user, names: [vhost, name], refresh: again }) {
  const path = at("/api/mayfly/queues", vhost, name);
  const isAdministrator = user.tags.includes("administrator");
  const facts = new Facts({
    ready_live: "Ready and live", expired_here: "Deadline passed", scheduled: "Scheduled", next_due: "Next due",
    unacknowledged: "Unacknowledged", oldest: "Oldest ready",
    deadline: "Next deadline", consumers: "Consumers", bytes: "Bodies ready", shard: "Shard",
  }, ["shard"]);
  const lease = h("div", { class: "sheet" });
  const rates = new Plot("Messages per second", [
    { name: "enqueued", label: "in", colour: "ready" }, { name: "delivered", label: "out", colour: "held" },
    { name: "expired", label: "expired", colour: "time" }, { name: "dead_lettered", label: "dead-lettered", colour: "late" },
  ], rate);
  const counts = new Facts(COUNTS);
  const settings = h("div", { class: "sheet" });
  const about = h("p");
  const moving = h("div");
  const brake = new BrakeNotice(vhost, name, again);
  const actions = h("div", { class: "actions" },
    isAdministrator && h("button", { type: "button", class: "plain", on: { click: move } }, "Move to another shard"),
    h("button", { type: "button", class: "plain grave", on: { click: purge } }, "Purge"),
    h("button", { type: "button", class: "plain grave", on: { click: drop } }, "Delete"));
  const bindings = bindingsTable("Bindings to here", "source", again);
  const redrive = redriveSection(vhost, name, again);
  const scheduled = new Scheduled("queues", vhost, name, again);
  const stream = new StreamSection(vhost, name);
  const journal = new Journal(vhost, name);
  const element = h("div", {}, moving, brake.element, facts.element, scheduled.element, stream.element, h("h2", {}, "Lease"), lease,
    h("h2", {}, "The last five minutes"), h("div", { class: "plots" }, rates.element),
    h("h2", {}, "Since it was declared"), counts.element, h("h2", {}, "Settings"), settings, journal.element,
    h("h2", {}, "Bindings"), bindings.element, h("h2", {}, "Messages"), publishForm(vhost, "amq.default", name, again),
    getForm(vhost, name, again), redrive.element, h("h2", {}, "Actions"), actions);
  let before = null;

  async function refresh() {
    const [queue, its] = await Promise.all([get(path), get(`${at("/api/queues", vhost, name)}/bindings`)]);
    bindings.update(its);
    await redrive.refresh(queue);
    show(about, [queue.durable ? "durable" : "transient", queue.exclusive && "exclusive",
      queue.auto_delete && "auto-delete", `in ${vhost}`].filter(Boolean).join(", "));
    facts.update({
      ready_live: known(queue.ready_live, count), expired_here: known(queue.ready - queue.ready_live, count),
      scheduled: known(queue.scheduled, count), next_due: countdown(queue.next_due_in_ms),
      unacknowledged: known(queue.unacknowledged, count), oldest: age(queue.oldest_ready_age_ms),
      deadline: countdown(queue.next_deadline_in_ms), consumers: known(queue.consumers, count),
      bytes: known(queue.ready_bytes, octets), shard: queue.shard ?? "in the memory of its node",
    });
    await scheduled.refresh(queue.scheduled);
    await stream.refresh(queue);
    await journal.refresh(queue);
    show(lease, leaseShown(queue));
    counts.update(Object.fromEntries(Object.keys(COUNTS).map((key) => [key, known(queue[key], (value) => figure(count(value), value))])));
    show(settings, settingsShown(queue));
    show(moving, movingShown(queue));
    brake.update(queue.brake);
    plotted(queue);
  }

  function plotted(queue) {
    const nowMs = performance.now();
    if (queue.enqueued === undefined || (before && nowMs - before.nowMs < 900)) return;
    if (before) {
      const seconds = (nowMs - before.nowMs) / 1000;
      rates.add(Object.fromEntries(["enqueued", "delivered", "expired", "dead_lettered"].map((key) =>
        [key, Math.max(0, queue[key] - before.queue[key]) / seconds])));
    }
    before = { nowMs, queue };
  }

  async function purge() {
    const isDone = await ask({
      title: `Purge ${name}?`, text: "All ready messages are gone then, without dead letters; what consumers hold stays theirs.", button: "Purge",
      act: () => remove(`${at("/api/queues", vhost, name)}/contents`),
    });
    if (isDone) tell(`${name} is purged.`);
    again();
  }

  async function drop() {
    const onlyEmpty = h("input", { type: "checkbox", name: "empty", checked: true });
    const onlyUnused = h("input", { type: "checkbox", name: "unused", checked: true });
    const isDone = await ask({
      title: `Delete ${name}?`, text: "The queue and the messages in it are gone then.", button: "Delete",
      fields: [h("label", { class: "row" }, onlyEmpty, "only if it is empty"),
        h("label", { class: "row" }, onlyUnused, "only if nobody consumes from it")],
      act: () => remove(at("/api/queues", vhost, name), { "if-empty": onlyEmpty.checked, "if-unused": onlyUnused.checked }),
    });
    if (isDone) location.hash = "#/queues";
  }

  async function move() {
    const shard = h("input", { type: "number", name: "shard", min: 1, required: true });
    const isDone = await ask({
      title: `Move ${name} to another shard`, button: "Move", isGrave: false,
      text: "It stays in use meanwhile; its messages follow in their order.",
      fields: [h("label", {}, "Shard", shard)],
      act: () => post(`${at("/queues", vhost, name)}/move`, { shard: Number(shard.value) }),
    });
    if (isDone) tell(`${name} moves to shard ${shard.value}.`);
    again();
  }
  return { title: name || "(no name)", about, element, refresh };
}

function known(value, say) {
  return value === undefined || Number.isNaN(value) ? "?" : say(value);
}

function leaseShown(queue) {
  if (!queue.lease) return h("p", { class: "none" }, "No lease: this queue does not expire.");
  const use = queue.last_use ? `Last use: ${queue.last_use}, ` : "";
  return h("dl", { class: "pairs" }, h("dt", {}, "Left"), h("dd", {}, leaseBar(queue.lease, true)),
    h("dt", {}, "Period"), h("dd", {}, exactly(queue.lease.period_ms)),
    h("dt", {}, "Last use"), h("dd", {}, use ? `${queue.last_use}, ` : "", age(queue.last_use_age_ms), " ago"));
}

function settingsShown(queue) {
  const from = queue.settings_from ?? {};
  const rows = Object.entries(queue.settings ?? {}).filter(([, value]) => value !== null && value !== false && value !== "");
  if (rows.length === 0) return h("p", { class: "none" }, "Nothing but what every queue has.");
  return h("dl", { class: "pairs" }, rows.map(([key, value]) => [h("dt", {}, key.replaceAll("_", " ").replace(/ ms$/, "")),
    h("dd", {}, said(key, value), " ", from[key] && h("span", { class: "tag" }, from[key]))]));
}

function said(key, value) {
  if (key.endsWith("_ms") && typeof value === "number") return exactly(value);
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

/** Too much has failed: nothing is delivered until it ends, or somebody ends it. */
class BrakeNotice {
  constructor(vhost, name, done) {
    this.text = h("span");
    this.button = h("button", { type: "button", class: "plain", on: { click: () => this.release() } }, "Release the brake");
    this.element = h("div", { class: "notice late", hidden: true }, h("p", { role: "status" }, this.text), this.button);
    Object.assign(this, { vhost, name, done });
  }

  update(brake) {
    this.element.hidden = !brake?.on;
    if (brake?.on) {
      show(this.text, `On brake for ${duration(brake.on_for_ms)}: nothing is delivered. ${count(brake.failed)} messages have failed within ` +
        `${exactly(brake.window_ms)}, ${count(brake.limit)} may; it ends in ${duration(brake.ends_in_ms)} if no more fail.`);
    }
  }

  async release() {
    const isDone = await ask({
      title: `Have ${this.name} deliver again?`, button: "Release", isGrave: false,
      text: "Consumers get messages at once, and what has failed up to now counts no more.",
      act: () => post(`${at("/api/mayfly/queues", this.vhost, this.name)}/brake/release`, {}),
    });
    if (isDone) tell(`${this.name} delivers again.`);
    this.done();
  }
}

function movingShown(queue) {
  if (!queue.moving_to && !queue.left_behind && !queue.held_behind) return "";
  const to = queue.moving_to ? `moves to shard ${queue.moving_to} (${queue.move})` : "has moved";
  return h("p", { class: "notice" }, `This queue ${to}; ${count(queue.left_behind)} messages have not followed yet, consumers hold ${count(queue.held_behind)} more from there.`);
}
