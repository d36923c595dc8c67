// All queues, with their times.

import { at, put } from "../api.js";
import { age, countdown, leaseBar } from "../clock.js";
import { h } from "../dom.js";
import { counted, link, marks } from "../parts/cells.js";
import { VhostChoice } from "../parts/choices.js";
import { figure } from "../parts/facts.js";
import { foldedForm, jsonIn } from "../parts/form.js";
import { PagedList } from "../parts/paged.js";
import { count, rate } from "../units.js";

const KINDS = [["quorum", "quorum"], ["classic", "classic"]];
let chosen = ""; // the vhost, for as long as the page is open

export function queuesView({ refresh: again }) {
  const vhosts = new VhostChoice({ first: "All", value: chosen });
  const list = new PagedList({
    caption: "Queues", columns: columns(), keyOf: (row) => row.id, sort: "name", also: [h("label", {}, "Virtual host", vhosts.element)],
    path: () => (vhosts.value === "" ? "/api/mayfly/queues" : at("/api/mayfly/queues", vhosts.value)),
    empty: "There are no such queues.",
  });
  vhosts.element.addEventListener("change", () => {
    chosen = vhosts.value;
    list.restart();
  });
  const into = new VhostChoice();
  return {
    title: "Queues", element: h("div", {}, list.element, declareForm(into, again)),
    refresh: () => Promise.all([vhosts.refresh(), into.refresh(), list.refresh()]),
  };
}

function declareForm(into, done) {
  return foldedForm({
    title: "Declare a queue", button: "Declare", done,
    fields: [
      h("label", {}, "Virtual host", into.element), { name: "name", label: "Name", isNeeded: true },
      { name: "kind", label: "Type", kind: "choice", options: KINDS },
      { name: "ttl", label: "TTL of messages, ms", kind: "number", hint: "none" }, { name: "expires", label: "Lease, ms", kind: "number", hint: "none" },
      { name: "exchange", label: "Dead-letter exchange", hint: "none" },
      { name: "arguments", label: "Further arguments", kind: "block", isWide: true, hint: '{"x-max-length": 1000}' },
    ],
    send: async ({ vhost, name, kind, ttl, expires, exchange, arguments: text }) => {
      const given = { "x-queue-type": kind, ...jsonIn(text, "Further arguments") };
      if (ttl !== null) given["x-message-ttl"] = ttl;
      if (expires !== null) given["x-expires"] = expires;
      if (exchange !== "") given["x-dead-letter-exchange"] = exchange;
      await put(at("/api/queues", vhost, name), { durable: true, arguments: given });
      return `${name} is declared.`;
    },
  });
}

function columns() {
  return [
    { label: "Queue", sort: "name", head: true, show: queueLink },
    { label: "Ready", sort: "ready", number: true, show: ready },
    { label: "Scheduled", sort: "scheduled", number: true, show: (row) => counted(row.scheduled) },
    { label: "Unacked", sort: "unacknowledged", number: true, show: (row) => counted(row.unacknowledged) },
    { label: "Oldest", sort: "oldest_ready_age_ms", number: true, show: (row) => age(row.oldest_ready_age_ms) },
    { label: "Next deadline", sort: "next_deadline_in_ms", number: true, show: (row) => countdown(row.next_deadline_in_ms) },
    { label: "Lease", sort: "lease.remaining_ms", show: (row) => leaseBar(row.lease) },
    { label: "In", sort: "rates.enqueued", number: true, show: (row) => perSecond(row.rates?.enqueued) },
    { label: "Out", sort: "rates.delivered", number: true, show: (row) => perSecond(row.rates?.delivered) },
    { label: "Expired", sort: "rates.expired", number: true, show: (row) => perSecond(row.rates?.expired) },
    { label: "Consumers", sort: "consumers", number: true, show: (row) => counted(row.consumers) },
    { label: "Virtual host", sort: "vhost", show: (row) => row.vhost },
  ];
}

function queueLink(row) {
  const is = [row.durable === false && "transient", row.exclusive && "exclusive", row.policy, row.moving_to && "moves"];
  return [link("queues", row.vhost, row.name), " ", marks(is),
    row.braked && h("span", { class: "tag late", title: "it delivers nothing, because too much has failed" }, "on brake"),
    row.unknown && h("span", { class: "tag late", title: row.unknown }, "not known")];
}

/** Ready messages, those whose deadline has passed apart: they are gone as soon as the shard comes to it. */
function ready(row) {
  if (row.ready === undefined) return h("span", { class: "quiet" }, "?");
  const dead = row.ready - row.ready_live;
  if (!row.exact || dead <= 0) return counted(row.ready);
  return [h("span", { class: "late", title: "their deadline has passed" }, `${count(dead)} expired`), " / ", count(row.ready)];
}

const perSecond = (value) => value !== undefined && figure(rate(value), value);
