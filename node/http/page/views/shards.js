// Shards by nodes: who leads, who votes, how far each is.

import { get } from "../api.js";
import { h, show } from "../dom.js";
import { figure } from "../parts/facts.js";
import { Table } from "../parts/table.js";
import { count, duration } from "../units.js";

export function shardsView() {
  const names = new Map();
  const name = (id) => names.get(id) ?? `node${id}`;
  const table = new Table("Shards", [
    { label: "Shard", head: true, show: (row) => (row.group === 0 ? "catalog" : String(row.group)) },
    { label: "Leader", show: (row) => leader(row) },
    { label: "Voters", show: (row) => (row.voters ?? []).map((id) => h("span", { class: id === row.leader ? "tag good" : "tag" }, name(id))) },
    { label: "Term", number: true, show: (row) => count(row.term) },
    { label: "Committed", number: true, show: (row) => row.commit },
    { label: "Behind", number: true, show: (row) => row.commit !== undefined && figure(count(row.commit - row.applied), row.commit - row.applied) },
    { label: "Queues", number: true, show: (row) => row.queues !== undefined && figure(count(row.queues), row.queues) },
    { label: "Ready", number: true, show: (row) => row.ready !== undefined && figure(count(row.ready), row.ready) },
    { label: "Dead letters", number: true, show: (row) => row.outbox !== undefined && figure(count(row.outbox), row.outbox) },
    { label: "Expiry lag", number: true, show: (row) => row.expiry_lag_ms !== undefined && figure(duration(row.expiry_lag_ms), row.expiry_lag_ms) },
  ], (row) => row.group);
  const byNode = h("div", { class: "tools" });

  function leader(row) {
    if (row.unknown) return h("span", { class: "tag late", title: row.unknown }, "not known");
    if (!row.leader) return h("span", { class: "tag late" }, "none");
    const isElsewhere = row.preferred_leader && row.preferred_leader !== row.leader;
    return [row.leader_name, " ", isElsewhere && h("span", { class: "tag" }, `soon ${name(row.preferred_leader)}`)];
  }

  async function refresh() {
    const status = await get("/status");
    for (const node of status.nodes) names.set(node.id, node.name);
    show(byNode, status.nodes.map((node) => h("span", {}, `${node.name} leads `,
      h("b", {}, String(status.groups.filter((group) => group.leader === node.id).length)), " of ",
      String(status.groups.length), " ", !node.up && h("span", { class: "tag late" }, "down"))));
    table.update([...status.groups].sort((one, other) => one.group - other.group));
  }
  return { title: "Shards", element: h("div", {}, byNode, table.element), refresh };
}
