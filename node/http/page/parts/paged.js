// A list of the node, a page of it at a time: searched, put in order and cut into pages there.

import { get } from "../api.js";
import { h, show } from "../dom.js";
import { count } from "../units.js";
import { Table } from "./table.js";

const SIZES = [25, 100, 500];

export class PagedList {
  /** `columns` as of `Table`; `path()` is what to ask; `also` are further tools beside the search. */
  constructor({ caption, columns, keyOf, path, sort, reverse = false, also = [], empty, hasSearch = true }) {
    this.path = path;
    this.query = { page: 1, page_size: 100, sort, sort_reverse: reverse, name: "" };
    this.table = new Table(caption, columns, keyOf, (by, isReverse) => {
      this.#ask({ sort: by, sort_reverse: isReverse, page: 1 });
    }, empty);
    this.table.sorted(sort, reverse);
    this.search = h("input", { type: "search", name: "search", autocomplete: "off", spellcheck: "false" });
    this.search.addEventListener("input", () => {
      clearTimeout(this.typing);
      this.typing = setTimeout(() => this.#ask({ name: this.search.value, page: 1 }), 200);
    });
    this.size = h("select", { on: { change: () => this.#ask({ page_size: Number(this.size.value), page: 1 }) } },
      SIZES.map((size) => h("option", { value: size, selected: size === 100 }, String(size))));
    this.before = this.#step("Previous", -1);
    this.after = this.#step("Next", 1);
    this.said = h("span", { role: "status" });
    this.element = h("section", {},
      h("div", { class: "tools" }, hasSearch && h("label", {}, "Name contains", this.search), also,
        h("label", {}, "Rows", this.size)),
      this.table.element, h("div", { class: "pages" }, this.before, this.after, this.said));
  }

  #step(label, by) {
    return h("button", { type: "button", class: "plain slim", on: { click: () => this.#ask({ page: this.query.page + by }) } },
      label);
  }

  async #ask(change) {
    Object.assign(this.query, change);
    this.element.dispatchEvent(new CustomEvent("wanted", { bubbles: true }));
  }

  /** From the first page on: what is asked for has changed. */
  restart() {
    this.#ask({ page: 1 });
  }

  async refresh() {
    const asked = JSON.stringify([this.path(), this.query]);
    let answer;
    try {
      answer = await get(this.path(), this.query);
    } catch (error) {
      if (this.query.page === 1 || error.status !== 400) throw error;
      this.query.page = 1; // rows have gone meanwhile, and the page with them
      answer = await get(this.path(), this.query);
    }
    if (asked !== JSON.stringify([this.path(), this.query]) && this.query.page !== answer.page) return;
    this.table.update(answer.items);
    this.before.disabled = answer.page <= 1;
    this.after.disabled = answer.page >= answer.page_count;
    const of = answer.filtered_count === answer.total_count ? "" : ` of ${count(answer.total_count)}`;
    show(this.said, `${count(answer.filtered_count)}${of}, page ${answer.page} of ${Math.max(1, answer.page_count)}`);
  }
}
