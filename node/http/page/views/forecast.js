// What time will do to queues: what expires, becomes due or is retried, and which leases end.

import { get } from "../api.js";
import { h, show } from "../dom.js";
import { Table } from "../parts/table.js";
import { count, duration } from "../units.js";

const EVENTS = [["expire", "Expire"], ["due", "Become due"], ["retried", "Are retried"]];
const NAMES = { 60000: "Minute", 3600000: "Hour", 86400000: "Day" };

export function forecastView() {
  const note = h("p", { role: "status" });
  const totals = new Table("All queues", [
    { label: "In the next", head: true, show: (row) => (NAMES[row.within_ms] ?? duration(row.within_ms)).toLowerCase() },
    ...EVENTS.map(([name, label]) => ({ label, number: true, show: (row) => count(row[name]) })),
    { label: "Leases end", number: true, show: (row) => count(row.leases) },
  ], (row) => String(row.within_ms));
  const queues = new Table("By queue", [
    { label: "Queue", head: true, show: (row) => h("a", { href: `#/queues/${encodeURIComponent(row.vhost)}/${encodeURIComponent(row.name)}` }, row.name) },
    { label: "Virtual host", show: (row) => row.vhost },
    ...EVENTS.map(([name, label]) => ({ label: `${label}: minute, hour, day`, number: true,
      show: (row) => row.windows.map((window) => count(window[name])).join(", ") })),
    { label: "Lease ends in", number: true, show: (row) => duration(row.lease_ends_in_ms) },
  ], (row) => `${row.vhost}\n${row.name}`, null, "Nothing happens by itself within a day.");

  async function refresh() {
    const answer = await get("/api/mayfly/forecast");
    totals.update(answer.totals);
    queues.update(answer.queues);
    const more = answer.left_out ? `${count(answer.left_out)} more queues are in the sums alone. ` : "";
    const unknown = answer.unknown_shards.length ? `Nothing is known of shards ${answer.unknown_shards.join(", ")}.` : "";
    show(note, more + unknown);
  }
  const element = h("div", {}, h("p", {}, "What will happen if no client does anything."), totals.element,
    h("h2", {}, "By queue"), queues.element, note);
  return { title: "Forecast", element, refresh };
}
