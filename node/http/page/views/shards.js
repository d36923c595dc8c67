// Shards by nodes: which node has which, who leads, how far each replica is; and what is in each shard.

import { get } from "../api.js";
import { h, spoken } from "../dom.js";
import { figure } from "../parts/facts.js";
import { Table } from "../parts/table.js";
import { count, duration } from "../units.js";

export function shardsView() {
  const names = new Map();
  const name = (id) => names.get(id) ?? `node${id}`;
  const nodes = new Table("Nodes and their replicas", [
    { label: "Node", head: true, show: (row) => [row.name, " ", !row.up && late("down")] },
    { label: "Leads", number: true, show: (row) => figure(count(row.leads), row.leads) },
    { label: "Replicas", number: true, show: (row) => figure(count(row.replicas), row.replicas) },
    { label: "Furthest behind", number: true, show: (row) => (row.isKnown ? figure(entries(row.behind), row.behind) : notKnown()) },
    { label: "There", show: (row) => (row.behind ? shard(row.furthest) : "") },
  ], (row) => row.id);
  const matrix = h("div");
  let byNode = null;
  let columns = "";
  const contents = new Table("What is in each shard", [
    { label: "Shard", head: true, show: (row) => shard(row.group) },
    { label: "Leader", show: (row) => leader(row) },
    { label: "Queues", number: true, show: (row) => row.queues !== undefined && figure(count(row.queues), row.queues) },
    { label: "Ready", number: true, show: (row) => row.ready !== undefined && figure(count(row.ready), row.ready) },
    { label: "Dead letters", number: true, show: (row) => row.outbox !== undefined && figure(count(row.outbox), row.outbox) },
    { label: "Expiry lag", number: true, show: (row) => row.expiry_lag_ms !== undefined && figure(duration(row.expiry_lag_ms), row.expiry_lag_ms) },
  ], (row) => row.group);

  function leader(row) {
    if (row.unknown) return h("span", { class: "tag late", title: row.unknown }, "not known");
    if (!row.leader) return late("none");
    const isElsewhere = row.preferred_leader && row.preferred_leader !== row.leader;
    return [row.leader_name, " ", isElsewhere && h("span", { class: "tag" }, `soon ${name(row.preferred_leader)}`)];
  }

  /** A column for each node; made anew when others are members. */
  function matrixOf(members) {
    const wanted = JSON.stringify(members.map((node) => [node.id, node.name]));
    if (wanted === columns) return;
    columns = wanted;
    byNode = new Table("Replicas by shard and node", [
      { label: "Shard", head: true, show: (row) => shard(row.group) },
      { label: "Term", number: true, show: (row) => count(row.term) },
      { label: "Committed", number: true, show: (row) => count(row.committed) },
      ...members.map((node) => ({ label: node.name, show: (row) => replica(row, node.id) })),
    ], (row) => row.group);
    // Wider than the screen where there are many nodes: it is scrolled by keys, too.
    for (const [attribute, value] of [["tabindex", "0"], ["role", "region"], ["aria-label", "Replicas by shard and node"]]) {
      byNode.element.setAttribute(attribute, value);
    }
    matrix.replaceChildren(byNode.element);
  }

  async function refresh() {
    const [status, answer] = await Promise.all([get("/status"), get("/shards/replicas")]);
    for (const node of status.nodes) names.set(node.id, node.name);
    const rows = [...answer.shards].sort((one, other) => one.group - other.group);
    nodes.update(status.nodes.map((node) => ({ ...node, ...summary(rows, node.id) })));
    matrixOf(status.nodes);
    byNode.update(rows);
    contents.update([...status.groups].sort((one, other) => one.group - other.group));
  }
  const element = h("div", {}, nodes.element, h("h2", {}, "Replicas"), matrix, h("h2", {}, "In the shards"), contents.element);
  return { title: "Shards", element, refresh };
}

/** Of a node: how many it leads and has, and which of its replicas is furthest behind. */
function summary(rows, id) {
  const found = { leads: 0, replicas: 0, behind: 0, furthest: 0, isKnown: true };
  for (const row of rows) {
    const its = row.replicas.find((each) => each.node === id);
    if (!its) continue;
    found.replicas += 1;
    if (its.unknown) found.isKnown = false;
    if (its.leads) found.leads += 1;
    if (its.behind > found.behind) Object.assign(found, { behind: its.behind, furthest: row.group });
  }
  return found;
}

/** What a node has of a shard: who it is there, and what it lacks. */
function replica(row, id) {
  const its = row.replicas.find((each) => each.node === id);
  if (!its) return spoken("no replica");
  if (its.unknown) return h("span", { class: "tag late", title: its.unknown }, "not known");
  const role = its.leads ? "leader" : its.role === "voter" ? "follower" : its.role;
  return [
    h("span", { class: its.leads ? "tag good" : "tag" }, role), " ",
    its.term !== row.term && late(`term ${count(its.term)}`), " ",
    its.behind > 0 && h("span", {}, `${count(its.behind)} behind`),
  ];
}

const shard = (group) => (group === 0 ? "catalog" : String(group));
const entries = (number) => (number === 1 ? "1 entry" : `${count(number)} entries`);
const late = (text) => h("span", { class: "tag late" }, text);
const notKnown = () => h("span", { class: "quiet" }, "?", spoken("not known"));
