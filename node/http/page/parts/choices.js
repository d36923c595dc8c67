// Names to choose from, as the node has them now.

import { get } from "../api.js";
import { h } from "../dom.js";

/** A choice of a vhost; `first` is what stands above them ("" is its value), none if it is null. */
export class VhostChoice {
  constructor({ name = "vhost", first = null, value = "/" } = {}) {
    this.element = h("select", { name });
    this.first = first;
    this.value = value;
    this.known = null;
    this.element.addEventListener("change", () => (this.value = this.element.value));
  }

  async refresh() {
    const names = (await get("/api/vhosts", { columns: "name" })).map((row) => row.name).sort();
    if (JSON.stringify(names) === this.known) return;
    this.known = JSON.stringify(names);
    if (!names.includes(this.value)) this.value = this.first === null ? names[0] ?? "" : "";
    this.element.replaceChildren(...(this.first === null ? [] : [h("option", { value: "" }, this.first)]),
      ...names.map((name) => h("option", { value: name, selected: name === this.value }, name)));
  }
}
