// Open connections of all nodes, and one of them.

import { at, get, remove } from "../api.js";
import { age } from "../clock.js";
import { h, show } from "../dom.js";
import { counted, marks, rowActions } from "../parts/cells.js";
import { ask, tell } from "../parts/dialog.js";
import { PagedList } from "../parts/paged.js";
import { Table } from "../parts/table.js";
import { octets } from "../units.js";

export function connectionsView({ refresh: again }) {
  const list = new PagedList({
    caption: "Connections", keyOf: (row) => row.name, sort: "name", path: () => "/api/connections",
    empty: "No client is connected.",
    columns: [
      { label: "Connection", sort: "name", head: true, show: nameOf },
      { label: "User", sort: "user", show: (row) => row.user },
      { label: "Virtual host", sort: "vhost", show: (row) => row.vhost },
      { label: "Node", sort: "node", show: (row) => row.node },
      { label: "State", sort: "state", show: (row) => h("span", { class: row.state === "running" ? "tag good" : "tag late" }, row.state) },
      { label: "TLS", sort: "ssl", show: (row) => (row.ssl ? "yes" : "no") },
      { label: "Channels", sort: "channels", number: true, show: (row) => counted(row.channels) },
      { label: "Received", sort: "recv_oct", number: true, show: (row) => octets(row.recv_oct) },
      { label: "Sent", sort: "send_oct", number: true, show: (row) => octets(row.send_oct) },
      { label: "Client", show: (row) => client(row) },
      { label: "", isLasting: true, show: (row) => rowActions(["Close", () => close(row.name, again), true]) },
    ],
  });
  return { title: "Connections", element: list.element, refresh: () => list.refresh() };
}

export function connectionView({ names: [name], refresh: again }) {
  const path = at("/api/connections", name);
  const facts = h("div", { class: "sheet" });
  const channels = new Table("Its channels", [
    { label: "Channel", head: true, number: true, show: (row) => row.number },
    { label: "Unacked", number: true, show: (row) => counted(row.messages_unacknowledged) },
    { label: "Unconfirmed", number: true, show: (row) => counted(row.messages_unconfirmed) },
    { label: "Prefetch", number: true, show: (row) => counted(row.prefetch_count) },
    { label: "Consumers", number: true, show: (row) => counted(row.consumer_count) },
    { label: "", show: (row) => marks(row.confirm && "confirms", row.transactional && "transactions", row.state !== "running" && row.state) },
  ], (row) => row.name, null, "No channel is open.");
  async function refresh() {
    const [row, its] = await Promise.all([get(path), get(`${path}/channels`)]);
    const said = {
      Name: row.user_provided_name ?? row.client_properties?.connection_name, User: row.user, "Virtual host": row.vhost, Node: row.node,
      State: row.state, Open: age(Date.now() - row.connected_at), TLS: row.ssl ? "yes" : "no", Login: row.auth_mechanism,
      Client: client(row), Heartbeat: `${row.timeout} s`, "Largest frame": octets(row.frame_max),
      Received: octets(row.recv_oct), Sent: octets(row.send_oct),
    };
    show(facts, h("dl", { class: "pairs" }, Object.entries(said).filter(([, value]) => value).map(([label, value]) =>
      [h("dt", {}, label), h("dd", {}, value)])));
    channels.update(its);
  }
  const element = h("div", {}, facts, h("h2", {}, "Channels"), channels.element, h("h2", {}, "Actions"),
    rowActions(["Close", async () => (await close(name, () => {})) && (location.hash = "#/connections"), true]));
  return { title: name, element, refresh };
}

function nameOf(row) {
  const given = row.user_provided_name ?? row.client_properties?.connection_name;
  return h("a", { href: `#/connections/${encodeURIComponent(row.name)}` }, given ? `${given} (${row.name})` : row.name);
}

function client(row) {
  const { product, version, platform } = row.client_properties ?? {};
  return [product, version, platform && `(${platform})`].filter(Boolean).join(" ");
}

async function close(name, again) {
  const isDone = await ask({
    title: "Close the connection?", button: "Close",
    text: `${name}: its client is told; what it has not acknowledged goes back to the queues.`,
    act: () => remove(at("/api/connections", name)),
  });
  if (isDone) tell("The connection is closed.");
  again();
  return isDone;
}
