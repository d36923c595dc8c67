// Messages from the head of a queue.

import { at, post } from "../api.js";
import { h, show } from "../dom.js";
import { exactly, octets } from "../units.js";
import { field, valuesOf } from "../parts/form.js";

const SHOWN_BYTES = 50_000;
const MODES = [
  ["ack_requeue_true", "put them back"], ["ack_requeue_false", "take them out"],
  ["reject_requeue_false", "reject them: dead letters"],
];

export function getForm(vhost, queue, done) {
  const got = h("div", { role: "status" });
  const button = h("button", { type: "submit", class: "plain main" }, "Get");
  const form = h("form", { class: "fields" }, field({ name: "count", label: "How many", kind: "number", value: 1, isNeeded: true }),
    field({ name: "ackmode", label: "And then", kind: "choice", options: MODES, value: "ack_requeue_true" }),
    h("p", { class: "wide quiet" }, "What is put back counts as delivered once more, and getting a message uses the queue: its lease starts anew."),
    h("div", { class: "actions wide" }, button));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    button.disabled = true;
    try {
      const { count, ackmode } = valuesOf(form);
      const path = `${at("/api/queues", vhost, queue)}/get`;
      shown(got, await post(path, { count, ackmode, encoding: "auto", truncate: SHOWN_BYTES }));
    } catch (error) {
      got.replaceChildren(h("p", { class: "late fields" }, error.message));
    } finally {
      button.disabled = false;
      done();
    }
  });
  return h("details", { class: "sheet" }, h("summary", {}, "Get messages"), form, got);
}

function shown(place, messages) {
  if (messages.length === 0) return show(place, h("p", { class: "none" }, "The queue has nothing to give."));
  show(place, messages.map((message, number) => h("section", {},
    h("h3", { class: "message" }, `${number + 1} of ${messages.length}`),
    h("dl", { class: "pairs" }, facts(message).map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])),
    h("pre", { tabindex: "0" }, message.payload || "(empty)"))));
}

function facts(message) {
  const { headers, expiration, ...others } = message.properties ?? {};
  const rows = [
    ["Exchange", message.exchange || "(default)"], ["Routing key", message.routing_key], ["Redelivered", message.redelivered ? "yes" : "no"],
    ["Body", `${octets(message.payload_bytes)}${message.payload_encoding === "base64" ? ", in base64" : ""}${message.payload_bytes > SHOWN_BYTES ? ", cut" : ""}`],
    ["Left in the queue", String(message.message_count)],
  ];
  if (expiration !== undefined) rows.push(["TTL", exactly(Number(expiration))]);
  for (const [name, value] of Object.entries(others)) rows.push([name.replaceAll("_", " "), String(value)]);
  for (const [name, value] of Object.entries(headers ?? {})) {
    rows.push([name, h("code", {}, typeof value === "object" ? JSON.stringify(value, null, 1) : String(value))]);
  }
  return rows;
}
