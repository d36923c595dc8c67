// Users, and one of them with permissions.

import { at, get, put, remove } from "../api.js";
import { h, show } from "../dom.js";
import { link, marks, rowActions } from "../parts/cells.js";
import { VhostChoice } from "../parts/choices.js";
import { ask, tell } from "../parts/dialog.js";
import { foldedForm } from "../parts/form.js";
import { PagedList } from "../parts/paged.js";
import { Table } from "../parts/table.js";

const TAGS = "administrator, monitoring, policymaker, management";

export function usersView({ refresh: again }) {
  const list = new PagedList({
    caption: "Users", keyOf: (row) => row.name, sort: "name", path: () => "/api/users",
    columns: [
      { label: "User", sort: "name", head: true, show: (row) => h("a", { href: `#/users/${encodeURIComponent(row.name)}` }, row.name) },
      { label: "Tags", show: (row) => marks(tagsOf(row)) },
      { label: "Password", show: (row) => (row.password_hash ? "yes" : "none") },
      { label: "Limits", show: (row) => marks(Object.entries(row.limits ?? {}).map(([name, value]) => `${name} ${value}`)) },
    ],
  });
  const form = foldedForm({
    title: "Add a user", button: "Add", done: again,
    fields: [{ name: "name", label: "Name", isNeeded: true }, { name: "password", label: "Password", secret: true, isNeeded: true },
      { name: "tags", label: "Tags", hint: TAGS, isWide: true }],
    send: async ({ name, password, tags }) => {
      await put(at("/api/users", name), { password, tags });
      return `${name} is there. Give permissions in a virtual host before it is of use.`;
    },
  });
  return { title: "Users", element: h("div", {}, list.element, form), refresh: () => list.refresh() };
}

export function userView({ names: [name], refresh: again }) {
  const path = at("/api/users", name);
  const about = h("p");
  const into = new VhostChoice();
  const permissions = new Table("Permissions", [
    { label: "Virtual host", head: true, show: (row) => row.vhost },
    ...["configure", "write", "read"].map((key) => ({ label: key, show: (row) => h("code", {}, row[key] || "(nothing)") })),
    { label: "", isLasting: true, show: (row) => rowActions(["Take away", () => takeAway(row), true]) },
  ], (row) => row.vhost, null, "None: this user may come to no virtual host.");
  const topics = new Table("Topic permissions", [
    { label: "Virtual host", head: true, show: (row) => row.vhost }, { label: "Exchange", show: (row) => link("exchanges", row.vhost, row.exchange || "amq.default", row.exchange || "(default)") },
    { label: "write", show: (row) => h("code", {}, row.write) }, { label: "read", show: (row) => h("code", {}, row.read) },
  ], (row) => `${row.vhost}\n${row.exchange}`, null, "None: every routing key is fine.");
  const grant = foldedForm({
    title: "Give permissions", button: "Give", done: again,
    fields: [h("label", {}, "Virtual host", into.element),
      ...["configure", "write", "read"].map((key) => ({ name: key, label: `${key}: names that match`, value: ".*" }))],
    send: async ({ vhost, ...given }) => {
      await put(at("/api/permissions", vhost, name), given);
      return `${name} has these permissions in ${vhost}.`;
    },
  });
  const change = foldedForm({
    title: "Change password and tags", button: "Change", done: again,
    fields: [h("input", { autocomplete: "username", value: name, hidden: true }), { name: "password", label: "New password", secret: true, isNeeded: true }, { name: "tags", label: "Tags", hint: TAGS, isWide: true }],
    send: async (values) => {
      await put(path, values);
      return `${name} is changed.`;
    },
  });
  let tags = null;

  async function takeAway(row) {
    const isDone = await ask({
      title: "Take the permissions away?", text: `${name} can then no longer come to ${row.vhost}.`, button: "Take away",
      act: () => remove(at("/api/permissions", row.vhost, name)),
    });
    if (isDone) tell("They are taken away.");
    again();
  }
  async function drop() {
    const isDone = await ask({
      title: `Delete ${name}?`, text: "Its connections are closed.", button: "Delete", act: () => remove(path),
    });
    if (isDone) location.hash = "#/users";
  }
  async function refresh() {
    const [user, its, topical] = await Promise.all([get(path), get(`${path}/permissions`), get(`${path}/topic-permissions`), into.refresh()]);
    show(about, marks(tagsOf(user)).length ? marks(tagsOf(user)) : "no tags");
    permissions.update(its);
    topics.update(topical);
    if (tags === null) change.querySelector("[name=tags]").value = tags = tagsOf(user).join(", ");
  }
  const element = h("div", {}, h("h2", {}, "Permissions"), permissions.element, grant, h("h2", {}, "Topic permissions"), topics.element,
    change, h("h2", {}, "Actions"), rowActions(["Delete", drop, true]));
  return { title: name, about, element, refresh };
}

function tagsOf(user) {
  return (Array.isArray(user.tags) ? user.tags : user.tags.split(",")).filter(Boolean);
}
