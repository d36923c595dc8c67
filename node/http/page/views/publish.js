// A message from a form.

import { at, post } from "../api.js";
import { foldedForm, jsonIn } from "../parts/form.js";

/** Publishes to an exchange; `key` is the routing key, null: it is asked for. */
export function publishForm(vhost, exchange, key, done) {
  return foldedForm({
    title: "Publish a message", button: "Publish", done, isKept: true,
    fields: [
      ...(key === null ? [{ name: "routing_key", label: "Routing key" }] : []),
      { name: "expiration", label: "TTL in milliseconds", kind: "number", hint: "none" },
      { name: "persistent", label: "persistent", kind: "check", value: true },
      { name: "headers", label: "Headers", kind: "block", isWide: true, hint: '{"tenant": "a"}' },
      { name: "payload", label: "Body", kind: "block", isWide: true },
    ],
    send: async ({ routing_key, expiration, persistent, headers, payload }) => {
      const properties = { delivery_mode: persistent ? 2 : 1, headers: jsonIn(headers, "Headers") };
      if (expiration !== null) properties.expiration = String(expiration);
      const answer = await post(`${at("/api/exchanges", vhost, exchange)}/publish`, {
        properties, payload, routing_key: key ?? routing_key, payload_encoding: "string",
      });
      if (!answer.routed) throw new Error("No queue takes it: it was returned.");
      return "The message is in a queue.";
    },
  });
}
