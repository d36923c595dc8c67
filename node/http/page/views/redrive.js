// A queue's messages on their way back: what would go, how far it has come, and what may be done about it.

import { at, get, post, put, remove } from "../api.js";
import { h, show } from "../dom.js";
import { ask, tell } from "../parts/dialog.js";
import { field, valuesOf } from "../parts/form.js";
import { Table } from "../parts/table.js";
import { count, duration, octets } from "../units.js";

const REASONS = [["", "of whatever"], "expired", "rejected", "delivery_limit", "maxlen", "queue_expired"];
const TARGETS = [["", "where each died"], ["target_queue", "a queue"], ["target_exchange", "an exchange"]];
const ACTIVE = ["running", "paused"];
const SHOWN = 10;

export function redriveSection(vhost, queue, done) {
  const path = `${at("/api/mayfly/queues", vhost, queue)}/redrive`;
  const progress = h("div", { role: "status" });
  const found = h("div", { role: "status" });
  const first = new Table("The first of them", [
    { label: "To", head: true, show: (row) => row.targets.join(", ") },
    { label: "Died in", show: (row) => row.from_queue ?? "" },
    { label: "Of", show: (row) => row.reason && h("span", { class: "tag" }, row.reason) },
    { label: "Exchange", show: (row) => row.exchange || "(default)" },
    { label: "Routing key", show: (row) => row.routing_key },
    { label: "Here for", number: true, show: (row) => duration(row.age_ms) },
    { label: "Body", number: true, show: (row) => octets(row.payload_bytes) },
  ], (row) => row.number, null, "Nothing would move.");
  const fault = h("p", { class: "late wide", role: "alert" });
  const look = h("button", { type: "submit", class: "plain main" }, "Preview");
  const start = h("button", { type: "button", class: "plain", on: { click: () => attempt(start, begin) } }, "Start");
  const form = h("form", { class: "fields" },
    field({ name: "to", label: "Back to", kind: "choice", options: TARGETS }),
    field({ name: "target", label: "Name of that", hint: "of the queue or exchange" }),
    field({ name: "target_routing_key", label: "With routing key", hint: "as it was" }),
    field({ name: "rate", label: "Messages a second", kind: "number", hint: "as fast as it goes" }),
    field({ name: "reason", label: "What died", kind: "choice", options: REASONS }),
    field({ name: "from_queue", label: "In queue", hint: "any" }),
    field({ name: "routing_key", label: "Published with key", hint: "any" }),
    field({ name: "header", label: "With header", hint: "name=value" }),
    field({ name: "min_age_s", label: "Here for at least, s", kind: "number" }),
    field({ name: "max_age_s", label: "At most, s", kind: "number" }),
    fault, h("div", { class: "actions wide" }, look, start));
  const element = h("div", { hidden: true }, h("h2", {}, "Redrive"), progress,
    h("details", { class: "sheet" }, h("summary", {}, "Send messages back to where they died"), form, found));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    attempt(look, preview);
  });

  async function attempt(button, act) {
    button.disabled = true;
    show(fault, "");
    try {
      await act();
    } catch (error) {
      show(fault, error.message);
    } finally {
      button.disabled = false;
    }
  }

  async function preview() {
    const ahead = await post(`${path}/preview`, { ...wishOf(valuesOf(form)), count: SHOWN });
    first.update(ahead.messages.map((row, number) => ({ ...row, number })));
    const least = ahead.complete ? "" : "of what could be looked at in time ";
    found.replaceChildren(h("p", { class: "fields" }, `${least}${count(ahead.moves)} would move, ${count(ahead.stays)} would stay`,
      ahead.no_route ? `, ${count(ahead.no_route)} of them for want of a queue to go to` : "",
      ahead.targets.length ? `: ${ahead.targets.map((row) => `${count(row.messages)} to ${row.queue}`).join(", ")}.` : "."), first.element);
  }

  async function begin() {
    const wish = wishOf(valuesOf(form));
    const isDone = await ask({
      title: `Redrive ${queue}?`, button: "Start", isGrave: false, act: () => post(path, wish),
      text: `What is ready in it now and matches goes ${wish.target_queue ?? wish.target_exchange ?? "back to where it died"}.`,
    });
    if (isDone) tell(`${queue} is being redriven.`);
    found.replaceChildren();
    done();
  }

  async function change(act, said) {
    try {
      await act();
      tell(said);
    } catch (error) {
      tell(error.message, true);
    }
    done();
  }

  async function changeRate(now) {
    const isDone = await ask({
      title: "Change the rate", text: "From now on; what has moved stays where it is.", button: "Change", isGrave: false,
      fields: [field({ name: "rate", label: "Messages a second", kind: "number", value: now || "", hint: "as fast as it goes" })],
      act: (asked) => put(path, { rate: valuesOf(asked).rate ?? 0 }),
    });
    if (isDone) tell("The redrive has another rate.");
    done();
  }

  /** `of`: the queue, as the node has it. One in a node's memory, a stream, and what the user may not read have none. */
  async function refresh(of) {
    const isDurable = of.shard !== undefined && of.arguments?.["x-queue-type"] !== "stream";
    const redrive = isDurable ? await get(path).catch(() => null) : null;
    element.hidden = redrive === null;
    if (redrive !== null) show(progress, redrive.state === "none" ? "" : shown(redrive));
  }

  function shown(redrive) {
    const isActive = ACTIVE.includes(redrive.state);
    const looked = redrive.moved + redrive.stayed;
    return h("div", { class: "sheet" },
      h("p", {}, h("span", { class: "tag" }, redrive.state), ` ${count(redrive.moved)} moved, ${count(redrive.stayed)} stayed`,
        ` of ${count(redrive.waiting_at_start)}, ${redrive.rate ? `${count(redrive.rate)} a second` : "as fast as it goes"}, ${duration(redrive.took_ms)}`),
      h("progress", { max: Math.max(1, redrive.waiting_at_start), value: Math.min(looked, redrive.waiting_at_start), "aria-label": "Looked at" }),
      isActive && h("div", { class: "actions" },
        redrive.state === "running"
          ? button("Pause", () => change(() => put(path, { state: "paused" }), "The redrive is paused."))
          : button("Resume", () => change(() => put(path, { state: "running" }), "The redrive goes on.")),
        button("Change the rate", () => changeRate(redrive.rate)),
        button("Cancel", () => change(() => remove(path), "The redrive is cancelled."))));
  }
  return { element, refresh };
}

function button(label, click) {
  return h("button", { type: "button", class: "plain slim", on: { click } }, label);
}

function wishOf(values) {
  const wish = { rate: values.rate ?? 0 };
  if (values.to) wish[values.to] = values.target;
  for (const name of ["target_routing_key", "reason", "from_queue", "routing_key"]) if (values[name]) wish[name] = values[name];
  if (values.header) {
    const place = values.header.indexOf("=");
    if (place < 1) throw new Error("a header is given as name=value");
    wish.headers = { [values.header.slice(0, place)]: values.header.slice(place + 1) };
  }
  if (values.min_age_s !== null) wish.min_age_ms = Math.round(values.min_age_s * 1000);
  if (values.max_age_s !== null) wish.max_age_ms = Math.round(values.max_age_s * 1000);
  return wish;
}
