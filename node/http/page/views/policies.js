// Policies and operator policies.

import { at, get, put, remove } from "../api.js";
import { h } from "../dom.js";
import { argumentMarks, rowActions } from "../parts/cells.js";
import { VhostChoice } from "../parts/choices.js";
import { ask, tell } from "../parts/dialog.js";
import { foldedForm, jsonIn } from "../parts/form.js";
import { Table } from "../parts/table.js";

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
      send: async ({ vhost, name, definition, ...values }) => {
        await put(at(`/api/${kind}`, vhost, name), { ...values, priority: values.priority ?? 0, definition: jsonIn(definition, "Definition") });
        return `${name} is set.`;
      },
    });
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

  async drop(row) {
    const isDone = await ask({
      title: `Delete the policy ${row.name}?`, text: `What matches ${row.pattern} has the next policy's settings then, or its own alone.`,
      button: "Delete", act: () => remove(at(`/api/${this.kind}`, row.vhost, row.name)),
    });
    if (isDone) tell(`${row.name} is deleted.`);
    this.again();
  }
}
