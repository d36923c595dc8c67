// Figures with names, and names with values.

import { h, show } from "../dom.js";

/** Large figures. `update({name: content})` changes them. */
export class Facts {
  constructor(labels, textual = []) {
    this.places = Object.fromEntries(Object.keys(labels).map((name) =>
      [name, h("dd", { class: textual.includes(name) ? "text" : "" }, "-")]));
    this.element = h("dl", { class: "sheet facts" }, Object.entries(labels).map(([name, label]) =>
      h("div", {}, h("dt", {}, label), this.places[name])));
  }

  update(values) {
    for (const [name, content] of Object.entries(values)) {
      if (this.places[name]) show(this.places[name], content === "" || content === undefined || content === null ? "-" : content);
    }
  }
}

/** A count that is quiet while there is nothing. */
export function figure(text, value) {
  return value ? text : h("span", { class: "zero" }, text);
}

/** JSON as people read it. */
export function json(value) {
  return h("pre", { tabindex: "0" }, JSON.stringify(value, null, 2));
}
