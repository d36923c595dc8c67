// Virtual hosts and their limits.

import { at, get, put, remove } from "../api.js";
import { h } from "../dom.js";
import { counted, marks, rowActions } from "../parts/cells.js";
import { ask, tell } from "../parts/dialog.js";
import { foldedForm } from "../parts/form.js";
import { PagedList } from "../parts/paged.js";

const LIMITS = ["max-connections", "max-queues"];

export function vhostsView({ user, refresh: again }) {
  const isAdministrator = user.tags.includes("administrator");
  const limits = new Map();
  const list = new PagedList({
    caption: "Virtual hosts", keyOf: (row) => row.name, sort: "name", path: () => "/api/vhosts",
    columns: [
      { label: "Virtual host", sort: "name", head: true, show: (row) => row.name },
      { label: "Description", show: (row) => row.description },
      { label: "Ready", sort: "messages_ready", number: true, show: (row) => row.messages_ready !== undefined && counted(row.messages_ready) },
      { label: "Unacked", sort: "messages_unacknowledged", number: true, show: (row) => row.messages_unacknowledged !== undefined && counted(row.messages_unacknowledged) },
      { label: "Limits", show: (row) => marks(Object.entries(limits.get(row.name) ?? {}).map(([name, value]) => `${name} ${value}`)) },
      ...(isAdministrator ? [{ label: "", isLasting: true, show: (row) => rowActions(["Delete", () => drop(row.name), true]) }] : []),
    ],
  });
  const add = foldedForm({
    title: "Add a virtual host", button: "Add", done: again,
    fields: [{ name: "name", label: "Name", isNeeded: true }, { name: "description", label: "Description" }],
    send: async ({ name, description }) => {
      await put(at("/api/vhosts", name), { description });
      return `${name} is there.`;
    },
  });
  const limit = foldedForm({
    title: "Limit a virtual host", button: "Set", done: again,
    fields: [{ name: "vhost", label: "Virtual host", isNeeded: true }, { name: "limit", label: "Limit", kind: "choice", options: LIMITS },
      { name: "value", label: "At most; empty: no limit", kind: "number" }],
    send: async ({ vhost, limit: which, value }) => {
      const path = at("/api/vhost-limits", vhost, which);
      if (value === null) await remove(path);
      else await put(path, { value });
      return value === null ? `${vhost} has no such limit any more.` : `${vhost} has at most ${value}.`;
    },
  });
  async function drop(name) {
    const typed = h("input", { name: "typed", required: true, autocomplete: "off" });
    const isDone = await ask({
      title: `Delete the virtual host ${name}?`, text: "All its queues, with their messages, exchanges, bindings, permissions and policies are gone then.",
      button: "Delete", fields: [h("label", {}, `Its name, to be sure: ${name}`, typed)],
      act: () => {
        if (typed.value !== name) throw new Error("That is another name.");
        return remove(at("/api/vhosts", name));
      },
    });
    if (isDone) tell(`${name} is deleted.`);
    again();
  }
  async function refresh() {
    const rows = isAdministrator ? await get("/api/vhost-limits") : [];
    limits.clear();
    for (const row of rows) limits.set(row.vhost, row.value);
    await list.refresh();
  }
  return { title: "Virtual hosts", element: h("div", {}, list.element, isAdministrator && [add, limit]), refresh };
}
