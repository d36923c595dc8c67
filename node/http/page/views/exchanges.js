// Exchanges, and one of them with its bindings.

import { at, get, post, put, remove } from "../api.js";
import { h, show } from "../dom.js";
import { argumentMarks, link, marks, rated, rowActions } from "../parts/cells.js";
import { VhostChoice } from "../parts/choices.js";
import { ask, tell } from "../parts/dialog.js";
import { foldedForm, jsonIn } from "../parts/form.js";
import { PagedList } from "../parts/paged.js";
import { Table } from "../parts/table.js";
import { publishForm } from "./publish.js";
import { Scheduled } from "./scheduled.js";

const KINDS = ["direct", "fanout", "topic", "headers"];
/** What the exchange without a name is called in addresses. */
const nameIn = (name) => name || "amq.default";

export function exchangesView({ refresh: again }) {
  const vhosts = new VhostChoice({ first: "All", value: "" });
  const into = new VhostChoice();
  const list = new PagedList({
    caption: "Exchanges", keyOf: (row) => `${row.vhost}\n${row.name}`, sort: "name",
    path: () => (vhosts.value === "" ? "/api/exchanges" : at("/api/exchanges", vhosts.value)),
    also: [h("label", {}, "Virtual host", vhosts.element)],
    columns: [
      { label: "Exchange", sort: "name", head: true, show: (row) => link("exchanges", row.vhost, nameIn(row.name), row.name || "(default)") },
      { label: "Type", sort: "type", show: (row) => row.type },
      { label: "Virtual host", sort: "vhost", show: (row) => row.vhost },
      { label: "", show: (row) => marks(row.durable ? "" : "transient", row.auto_delete && "auto-delete", row.internal && "internal", row.policy) },
      { label: "In", sort: "message_stats.publish_in_details.rate", number: true, show: (row) => rated(row.message_stats?.publish_in_details?.rate) },
      { label: "Out", sort: "message_stats.publish_out_details.rate", number: true, show: (row) => rated(row.message_stats?.publish_out_details?.rate) },
      { label: "Arguments", show: (row) => argumentMarks(row.arguments) },
    ],
  });
  vhosts.element.addEventListener("change", () => list.restart());
  const form = foldedForm({
    title: "Declare an exchange", button: "Declare", done: again,
    fields: [
      h("label", {}, "Virtual host", into.element), { name: "name", label: "Name", isNeeded: true },
      { name: "type", label: "Type", kind: "choice", options: KINDS }, { name: "durable", label: "durable", kind: "check", value: true },
      { name: "auto_delete", label: "auto-delete", kind: "check" }, { name: "internal", label: "internal", kind: "check" },
      { name: "arguments", label: "Arguments", kind: "block", isWide: true, hint: '{"alternate-exchange": "unrouted"}' },
    ],
    send: async ({ vhost, name, arguments: text, ...values }) => {
      await put(at("/api/exchanges", vhost, name), { ...values, arguments: jsonIn(text, "Arguments") });
      return `${name} is declared.`;
    },
  });
  return {
    title: "Exchanges", element: h("div", {}, list.element, form),
    refresh: () => Promise.all([vhosts.refresh(), into.refresh(), list.refresh()]),
  };
}

export function exchangeView({ names: [vhost, name], refresh: again }) {
  const path = at("/api/exchanges", vhost, name);
  const real = name === "amq.default" ? "" : name;
  const about = h("p");
  const from = bindingsTable("Bindings from here", "destination", again);
  const to = bindingsTable("Bindings to here", "source", again);
  const scheduled = new Scheduled("exchanges", vhost, name, again);
  const bind = foldedForm({
    title: "Bind a queue or an exchange", button: "Bind", done: again,
    fields: [
      { name: "kind", label: "To", kind: "choice", options: [["q", "queue"], ["e", "exchange"]] },
      { name: "destination", label: "Name", isNeeded: true }, { name: "routing_key", label: "Routing key" },
      { name: "arguments", label: "Arguments", kind: "block", isWide: true },
    ],
    send: async ({ kind, destination, routing_key, arguments: text }) => {
      await post(at("/api/bindings", vhost, "e", name, kind, destination), { routing_key, arguments: jsonIn(text, "Arguments") });
      return `${destination} is bound.`;
    },
  });
  async function drop() {
    const isDone = await ask({
      title: `Delete ${name}?`, text: "Its bindings are gone with it.", button: "Delete", act: () => remove(path),
    });
    if (isDone) location.hash = "#/exchanges";
  }
  async function refresh() {
    const [exchange, ofSource, ofDestination] = await Promise.all([
      get(path), get(`${path}/bindings/source`), get(`${path}/bindings/destination`),
    ]);
    show(about, [exchange.type, exchange.durable ? "durable" : "transient", exchange.auto_delete && "auto-delete",
      exchange.internal && "internal", `in ${vhost}`].filter(Boolean).join(", "), " ", argumentMarks(exchange.arguments));
    from.update(ofSource);
    to.update(ofDestination);
    await scheduled.refresh(exchange.messages_delayed);
  }
  const isOwn = real === "" || real.startsWith("amq.");
  const element = h("div", {}, scheduled.element, h("h2", {}, "Bindings from here"), from.element, real !== "" && bind,
    h("h2", {}, "Bindings to here"), to.element, h("h2", {}, "Messages"), publishForm(vhost, name, null, again),
    !isOwn && [h("h2", {}, "Actions"), h("div", { class: "actions" }, h("button", { type: "button", class: "plain grave", on: { click: drop } }, "Delete"))]);
  return { title: real || "(default exchange)", about, element, refresh };
}

/** Bindings; `end` is what the other end is, source or destination. */
export function bindingsTable(caption, end, again) {
  return new Table(caption, [
    { label: end === "source" ? "From exchange" : "To", head: true, show: (row) => otherEnd(row, end) },
    { label: "Routing key", show: (row) => h("code", {}, row.routing_key) },
    { label: "Arguments", show: (row) => argumentMarks(row.arguments) },
    { label: "", isLasting: true, show: (row) => row.source !== "" && rowActions(["Unbind", () => unbind(row, again), true]) },
  ], (row) => JSON.stringify([row.source, row.destination_type, row.destination, row.properties_key]), null, "There are none.");
}

function otherEnd(row, end) {
  if (end === "source") return link("exchanges", row.vhost, nameIn(row.source), row.source || "(default)");
  const isQueue = row.destination_type === "queue";
  return [link(isQueue ? "queues" : "exchanges", row.vhost, row.destination), " ", marks(row.destination_type)];
}

async function unbind(row, again) {
  const isDone = await ask({
    title: "Unbind?", button: "Unbind",
    text: `${row.destination} gets no more messages from ${row.source} with the key "${row.routing_key}".`,
    act: () => remove(at("/api/bindings", row.vhost, "e", row.source, row.destination_type === "queue" ? "q" : "e", row.destination, row.properties_key)),
  });
  if (isDone) tell(`${row.destination} is unbound.`);
  again();
}
