// Policies and operator policies.

import { at, get, post, put, remove } from "../api.js";
import { h, show } from "../dom.js";
import { argumentMarks, rowActions } from "../parts/cells.js";
import { VhostChoice } from "../parts/choices.js";
import { ask, tell } from "../parts/dialog.js";
import { foldedForm, jsonIn, valuesOf } from "../parts/form.js";
import { Table } from "../parts/table.js";
import { count, duration } from "../units.js";

const APPLIES = ["queues", "exchanges", "all", "classic_queues", "quorum_queues"];

export function policiesView({ user, refresh: again }) {
  const parts = [new Policies("policies", "Policies", again)];
  if (user.tags.includes("administrator")) parts.push(new Policies("operator-policies", "Operator policies", again));
  return {
    title: "Policies", element: h("div", {}, parts.map(({ element }) => element)),
    refresh: () => Promise.all(parts.map((part) => part.refresh())),
  };
}

class Policies {
  constructor(kind, title, again) {
    this.kind = kind;
    this.again = again;
    this.into = new VhostChoice();
    this.table = new Table(title, [
      { label: "Policy", head: true, show: (row) => row.name },
      { label: "Virtual host", show: (row) => row.vhost },
      { label: "Pattern", show: (row) => h("code", {}, row.pattern) },
      { label: "Applies to", show: (row) => row["apply-to"] },
      { label: "Priority", number: true, show: (row) => row.priority },
      { label: "Definition", show: (row) => [argumentMarks(row.definition), row.fault && h("span", { class: "tag late" }, row.fault)] },
      { label: "", isLasting: true, show: (row) => rowActions(["Change", () => this.fill(row.vhost, row.name)], ["Delete", () => this.drop(row), true]) },
    ], (row) => `${row.vhost}\n${row.name}`, null, "There are none.");
    this.form = foldedForm({
      title: kind === "policies" ? "Set a policy" : "Set an operator policy", button: "Set", done: again,
      fields: [
        h("label", {}, "Virtual host", this.into.element), { name: "name", label: "Name", isNeeded: true },
        { name: "pattern", label: "Pattern of names", isNeeded: true, hint: "^tmp\\." },
        { name: "apply-to", label: "Applies to", kind: "choice", options: kind === "policies" ? APPLIES : APPLIES.filter((it) => it !== "exchanges") },
        { name: "priority", label: "Priority", kind: "number", value: 0 },
        { name: "definition", label: "Definition", kind: "block", isWide: true, isNeeded: true, hint: '{"message-ttl": 60000, "expires": 1800000}' },
      ],
      send: async (values) => {
        await put(at(`/api/${kind}`, values.vhost, values.name), wish(values));
        show(this.tried, "");
        return `${values.name} is set.`;
      },
    });
    this.tried = h("div", { class: "wide tried", role: "status" });
    this.form.querySelector(".actions").append(h("button", { type: "button", class: "plain", on: { click: () => this.tryIt() } }, "Try"));
    this.form.querySelector("form").append(this.tried);
    this.element = h("section", {}, h("h2", {}, title), this.table.element, this.form);
  }

  async refresh() {
    const [rows] = await Promise.all([get(`/api/${this.kind}`), this.into.refresh()]);
    this.rows = rows;
    this.table.update(rows);
  }

  fill(vhost, name) {
    const row = this.rows.find((each) => each.vhost === vhost && each.name === name);
    if (!row) return;
    this.form.open = true;
    for (const each of this.form.querySelectorAll("[name]")) {
      each.value = each.name === "definition" ? JSON.stringify(row.definition, null, 2) : row[each.name];
    }
    this.form.querySelector("[name=pattern]").focus();
  }

  /** Show what the policy in the form would change at once; nothing is set. */
  async tryIt() {
    const form = this.form.querySelector("form");
    if (!form.reportValidity()) return;
    try {
      const values = valuesOf(form);
      const found = await post(`${at(`/api/${this.kind}`, values.vhost, values.name)}/try`, wish(values));
      const table = triedTable();
      table.update(found.queues);
      show(this.tried, [h("p", {}, triedText(found)), table.element]);
    } catch (error) {
      show(this.tried, h("p", { class: "late" }, error.message));
    }
  }

  async drop(row) {
    const isDone = await ask({
      title: `Delete the policy ${row.name}?`, text: `What matches ${row.pattern} has the next policy's settings then, or its own alone.`,
      button: "Delete", act: () => remove(at(`/api/${this.kind}`, row.vhost, row.name)),
    });
    if (isDone) tell(`${row.name} is deleted.`);
    this.again();
  }
}

function wish({ vhost, name, definition, ...values }) {
  return { ...values, priority: values.priority ?? 0, definition: jsonIn(definition, "Definition") };
}

function triedTable() {
  return new Table("What it would change", [
    { label: "Queue", head: true, show: (row) => row.name },
    { label: "Settings", show: (row) => Object.entries(row.changes).map(([name, [was, will]]) =>
      h("div", {}, `${name} ${JSON.stringify(was)} \u2192 ${JSON.stringify(will)}`)) },
    { label: "Expire", number: true, show: (row) => (row.unknown ? "?" : count(row.expire)) },
    { label: "Stay behind", number: true, show: (row) => (row.unknown ? "?" : count(row.behind)) },
    { label: "Drop", number: true, show: (row) => (row.unknown ? "?" : count(row.drop)) },
    { label: "Lease", show: (row) => row.lease && `${leaseEnd(row.lease.ends_in_ms)} \u2192 ${leaseEnd(row.lease.would_end_in_ms)}` },
  ], (row) => row.name, null, "No queue would have other settings.");
}

const leaseEnd = (ms) => (ms === null ? "no end" : duration(ms));

function triedText({ totals, left_out, unknown_shards }) {
  const more = left_out ? ` ${count(left_out)} more queues are not shown.` : "";
  const unknown = unknown_shards.length ? ` Nothing is known of shards ${unknown_shards.join(", ")}.` : "";
  return `Nothing is set. ${count(totals.queues)} queues would have other settings; at once ${count(totals.expire)} messages would expire, ` +
    `${count(totals.behind)} stay behind live ones, ${count(totals.drop)} be dropped, and ${count(totals.leases_begin_anew)} leases begin anew.${more}${unknown}`;
}
