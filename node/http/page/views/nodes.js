// Nodes, their clocks and alarms.

import { get } from "../api.js";
import { h, show } from "../dom.js";
import { Table } from "../parts/table.js";
import { duration, octets } from "../units.js";

export function nodesView() {
  const table = new Table("Nodes", [
    { label: "Node", head: true, show: (row) => [row.name, " ", row.isSelf && h("span", { class: "tag" }, "this node")] },
    { label: "State", show: state },
    { label: "Clock", number: true, show: (row) => (row.isSelf ? "" : offset(row.clock_offset_ms)) },
    { label: "Alarms", show: (row) => [row.mem_alarm && h("span", { class: "tag late" }, "memory"), row.disk_free_alarm && h("span", { class: "tag late" }, "disk")] },
    { label: "Memory", number: true, show: (row) => row.mem_used && `${octets(row.mem_used)} of ${octets(row.mem_limit)}` },
    { label: "Disk free", number: true, show: (row) => row.disk_free && octets(row.disk_free) },
    { label: "Failure domain", show: (row) => row.failure_domain },
    { label: "Addresses", show: (row) => Object.entries(row.addresses ?? {}).map(([kind, address]) => h("span", { class: "tag" }, `${kind} ${address}`)) },
  ], (row) => row.id);
  const clocks = h("div", { class: "sheet" });

  async function refresh() {
    const [status, nodes] = await Promise.all([get("/status"), get("/api/nodes")]);
    const more = new Map(nodes.map((row) => [row.name, row]));
    table.update(status.nodes.map((node) => ({ ...more.get(node.name), ...node, isSelf: node.id === status.id })));
    show(clocks, h("dl", { class: "pairs" },
      h("dt", {}, "This node's clock beyond the bound"),
      h("dd", { class: status.clock_excess_ms ? "late" : "" }, status.clock_excess_ms ? duration(status.clock_excess_ms) : "no"),
      h("dt", {}, "Campaigns held back by the clock"), h("dd", {}, String(status.clock_refusals)),
      h("dt", {}, "Publishers"), h("dd", { class: status.blocked ? "late" : "" }, status.blocked ? "blocked" : "served"),
      (status.warnings ?? []).map((text) => [h("dt", {}, "Warning"), h("dd", { class: "late" }, text)])));
  }
  return { title: "Nodes and clocks", element: h("div", {}, table.element, h("h2", {}, "Clocks and alarms"), clocks), refresh };
}

function state(row) {
  const marks = [row.up ? h("span", { class: "tag good" }, "up") : h("span", { class: "tag late" }, "down")];
  if (row.away) marks.push(h("span", { class: "tag late" }, "away"));
  if (row.replicas_to_move) marks.push(h("span", { class: "tag" }, `${row.replicas_to_move} replicas to move`));
  return marks;
}

function offset(ms) {
  if (!ms) return "in step";
  return `${duration(Math.abs(ms))} ${ms > 0 ? "ahead" : "behind"}`;
}
