// Dead letters that wait: those on their way, by lane, and those without a route, which an operator releases or drops.

import { get, post } from "../api.js";
import { age } from "../clock.js";
import { h } from "../dom.js";
import { ask, tell } from "../parts/dialog.js";
import { Table } from "../parts/table.js";
import { count } from "../units.js";

export function deadLettersView({ user, refresh: again }) {
  const isAdministrator = user.tags.includes("administrator");
  const parked = new Table("Parked dead letters", [
    { label: "Queue", head: true, show: (row) => row.queue },
    { label: "Virtual host", show: (row) => row.vhost },
    { label: "Reason", show: (row) => h("span", { class: "tag" }, row.reason) },
    { label: "Exchange", show: (row) => row.exchange || "(default)" },
    { label: "Routing key", show: (row) => row.routing_key ?? h("span", { class: "quiet" }, "each its own") },
    { label: "Messages", number: true, show: (row) => count(row.messages) },
    { label: "Oldest", number: true, show: (row) => age(row.oldest_ms ?? row.oldest_age_ms) },
    ...(isAdministrator ? [{ label: "", isLasting: true, show: (row) => h("div", { class: "actions" },
      button("Release", "", () => settle(row, true)), button("Drop", "grave", () => settle(row, false))) }] : []),
  ], (row) => JSON.stringify([row.vhost, row.queue, row.reason, row.exchange, row.routing_key]), null,
  "Every dead letter has found a queue.");
  const lanes = new Table("Lanes", [
    { label: "To queue", head: true, show: (row) => row.queue || "(gone)" },
    { label: "Virtual host", show: (row) => row.vhost },
    { label: "From shard", number: true, show: (row) => row.shard },
    { label: "To shard", number: true, show: (row) => row.target_shard },
    { label: "Messages", number: true, show: (row) => count(row.messages) },
    { label: "Oldest", number: true, show: (row) => age(row.oldest_age_ms) },
    { label: "Waits for", show: (row) => row.waits_for && h("span", { class: "tag late" }, row.waits_for) },
  ], (row) => `${row.shard} ${row.target_shard} ${row.vhost} ${row.queue}`, null, "Nothing is on its way.");

  async function settle(row, isRelease) {
    const which = { vhost: row.vhost, queue: row.queue, reason: row.reason };
    const what = `all ${row.reason} dead letters of ${row.queue}, with whatever routing key`;
    let answer = null;
    const isDone = await ask({
      title: isRelease ? "Release dead letters?" : "Drop dead letters?",
      text: isRelease ? `This has ${what}, routed again now.` : `This drops ${what}. They are gone then.`,
      button: isRelease ? "Release" : "Drop", isGrave: !isRelease,
      act: async () => { answer = await post(`/deadletters/${isRelease ? "release" : "drop"}`, which); },
    });
    if (isDone) tell(settled(isRelease, answer));
    again();
  }

  async function refresh() {
    const answer = await get("/deadletters");
    parked.update(answer.parked ?? []);
    lanes.update(answer.lanes ?? []);
  }
  const element = h("div", {}, h("h2", {}, "Parked: without a route"), parked.element, h("h2", {}, "Lanes: on their way"), lanes.element);
  return { title: "Dead letters", element, refresh };
}

function button(label, kind, click) {
  return h("button", { type: "button", class: `plain slim ${kind}`, on: { click } }, label);
}

function settled(isRelease, answer) {
  const left = answer?.left ? `, ${count(answer.left)} are still there` : "";
  return `${isRelease ? "Released" : "Dropped"}${left}.`;
}
