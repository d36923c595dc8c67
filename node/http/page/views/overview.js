// The cluster at a glance: how much there is, and how it goes.

import { get } from "../api.js";
import { h, show } from "../dom.js";
import { Facts } from "../parts/facts.js";
import { Plot } from "../parts/plot.js";
import { Table } from "../parts/table.js";
import { count, duration, rate } from "../units.js";

const RATES = [
  ["enqueued", "in", "ready"], ["delivered", "out", "held"], ["acknowledged", "acked", "good"], ["expired", "expired", "time"],
  ["dead_lettered", "dead-lettered", "late"],
];
const kept = new Map(); // plots go on where they were when the view is opened again

export function overviewView({ user }) {
  const isMonitor = user.tags.some((tag) => ["administrator", "monitoring"].includes(tag));
  const facts = new Facts({
    messages_ready: "Ready", messages_unacknowledged: "Unacknowledged", outbox: "Dead letters on their way",
    parked: "Parked", lag: "Expiry lag", queues: "Queues", consumers: "Consumers", connections: "Connections",
    channels: "Channels", exchanges: "Exchanges",
  });
  const messages = plot("messages", "Messages", [
    { name: "messages_ready", label: "ready", colour: "ready" },
    { name: "messages_unacknowledged", label: "unacknowledged", colour: "held" },
    { name: "outbox", label: "dead letters", colour: "late" },
  ], count);
  const rates = plot("rates", isMonitor ? "Messages per second, durable queues" : "Messages per second", RATES.map(([name, label, colour]) => ({ name, label, colour })), rate);
  const lag = plot("lag", "Expiry lag", [{ name: "lag", label: "most overdue", colour: "time" }], duration);
  const listeners = new Table("Where nodes listen", [
    { label: "Node", show: (row) => row.node, head: true },
    { label: "Protocol", show: (row) => row.protocol },
    { label: "Address", show: (row) => row.ip_address },
    { label: "Port", number: true, show: (row) => row.port },
  ], (row) => `${row.node} ${row.protocol} ${row.port}`);
  const about = h("p");
  const unknown = h("div");
  const element = h("div", {}, unknown, facts.element, h("h2", {}, "The last five minutes"),
    h("div", { class: "plots" }, rates.element, messages.element, isMonitor && lag.element),
    isMonitor && [h("h2", {}, "Listeners"), listeners.element]);

  async function refresh() {
    const [overview, status] = await Promise.all([get("/api/overview"), isMonitor ? get("/status") : null]);
    const groups = status?.groups ?? [];
    const time = status && {
      outbox: status.queues.outbox,
      parked: groups.reduce((sum, group) => sum + (group.parked ?? 0), 0),
      lag: Math.max(0, ...groups.map((group) => group.expiry_lag_ms ?? 0)),
    };
    const totals = { ...overview.object_totals, ...overview.queue_totals };
    facts.update({ ...mapped(totals, count), ...(time && { outbox: count(time.outbox), parked: count(time.parked), lag: duration(time.lag) }) });
    messages.add({ ...totals, ...time });
    lag.add({ ...time });
    rates.add(status ? speeds(groups) : ratesIn(overview.message_stats ?? {}));
    listeners.update(overview.listeners ?? []);
    show(about, `${overview.cluster_name}, ${overview.product_name} ${overview.product_version}`);
    const missing = overview.unknown_shards ?? [];
    show(unknown, missing.length > 0 && h("p", { class: "notice late" },
      `Not in these figures, because no node tells of them: shard ${missing.join(", ")}`));
  }
  return { title: "Overview", about, element, refresh };
}

/** For who sees some virtual hosts alone: what the node reckons of them. */
function ratesIn(stats) {
  return { enqueued: stats.publish_details?.rate, delivered: stats.deliver_get_details?.rate, acknowledged: stats.ack_details?.rate };
}

let last = null; // counts of all shards, and when

/** What shards have counted, per second since the last answer; a shard that was not told then counts from now on. */
function speeds(groups) {
  const now = { nowMs: performance.now(), counts: new Map(groups.filter((row) => row.counts).map((row) => [row.group, row.counts])) };
  const values = {};
  if (last && now.nowMs - last.nowMs < 30_000) {
    for (const [name] of RATES) {
      let sum = 0;
      for (const [group, counts] of now.counts) sum += Math.max(0, counts[name] - (last.counts.get(group) ?? counts)[name]);
      values[name] = (sum * 1000) / Math.max(1, now.nowMs - last.nowMs);
    }
  }
  last = now;
  return values;
}

function plot(name, ...of) {
  if (!kept.has(name)) kept.set(name, new Plot(...of));
  return kept.get(name);
}

function mapped(values, say) {
  return Object.fromEntries(Object.entries(values).map(([name, value]) => [name, say(value)]));
}
