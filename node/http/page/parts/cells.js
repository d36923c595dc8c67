// Cells that many tables have.

import { at } from "../api.js";
import { h, spoken } from "../dom.js";
import { count, rate } from "../units.js";
import { figure } from "./facts.js";

/** A count, quiet while it is 0; a question mark where nobody tells it. */
export function counted(value) {
  return value === undefined || value === null ? h("span", { class: "quiet" }, "?", spoken("not known")) : figure(count(value), value);
}

/** A rate, nothing where none is kept. */
export function rated(value) {
  return value === undefined || value === null ? "" : figure(rate(value), value);
}

/** A link to a view of something with a vhost and a name. */
export function link(view, vhost, name, text = name) {
  return h("a", { href: `#${at(`/${view}`, vhost, name)}` }, text || "(no name)");
}

export function marks(...texts) {
  return texts.flat().filter(Boolean).map((text) => h("span", { class: "tag" }, text));
}

/** Arguments of a queue or the like, each as `name value`. */
export function argumentMarks(values) {
  return marks(Object.entries(values ?? {}).map(([name, value]) => `${name} ${typeof value === "object" ? JSON.stringify(value) : value}`));
}

/** Buttons of a row: [label, what it does, whether it takes something away]. */
export function rowActions(...buttons) {
  return h("div", { class: "actions" }, buttons.filter(Boolean).map(([label, click, isGrave]) =>
    h("button", { type: "button", class: `plain slim ${isGrave ? "grave" : ""}`, on: { click } }, label)));
}
