// Tables: rows by key, changed in place, so that a refresh takes neither focus nor selection.

import { h, show } from "../dom.js";

/**
 * `columns`: {name, label, show(row), number, sort, head, isLasting}; `sort` is the name that rows are put in order by,
 * `head` the column that names the row, `isLasting` a cell that is made once (with buttons in it).
 */
export class Table {
  constructor(caption, columns, keyOf, onSort = null, empty = "Nothing is here.") {
    this.columns = columns;
    this.keyOf = keyOf;
    this.onSort = onSort;
    this.rows = new Map();
    this.heads = columns.map((column) => this.#head(column));
    this.body = h("tbody");
    this.none = h("p", { class: "none", hidden: true }, empty);
    this.element = h("div", { class: "sheet scroll", tabindex: "-1" },
      h("table", {}, h("caption", { class: "spoken" }, caption), h("thead", {}, h("tr", {}, this.heads)), this.body),
      this.none);
  }

  #head(column) {
    const classes = column.number ? "number" : "";
    if (!column.sort || !this.onSort) {
      return h("th", { scope: "col", class: classes }, column.label || h("span", { class: "spoken" }, column.isLasting ? "Actions" : "Notes"));
    }
    const button = h("button", { type: "button", on: { click: () => this.#sortBy(column) } }, column.label);
    return h("th", { scope: "col", class: classes, "aria-sort": "none", data: { sort: column.sort } }, button);
  }

  #sortBy(column) {
    const isSame = this.sort === column.sort;
    this.sorted(column.sort, isSame ? !this.reverse : Boolean(column.number));
    this.onSort(this.sort, this.reverse);
  }

  /** Show by which column rows are in order. */
  sorted(sort, reverse) {
    this.sort = sort;
    this.reverse = reverse;
    for (const head of this.heads) {
      if (head.hasAttribute("aria-sort")) {
        const order = head.dataset.sort !== sort ? "none" : reverse ? "descending" : "ascending";
        head.setAttribute("aria-sort", order);
      }
    }
  }

  /** Show these rows in this order. */
  update(rows) {
    const kept = new Map();
    for (const row of rows) {
      const key = this.keyOf(row);
      const line = this.rows.get(key) ?? this.#line();
      this.columns.forEach((column, place) => {
        const cell = line.children[place];
        if (column.isLasting && cell.firstChild) return;
        show(cell, column.show(row) ?? "");
      });
      kept.set(key, line);
    }
    this.rows = kept;
    const wanted = [...kept.values()];
    for (const line of [...this.body.children]) if (!wanted.includes(line)) line.remove();
    wanted.forEach((line, place) => {
      if (this.body.children[place] !== line) this.body.insertBefore(line, this.body.children[place] ?? null);
    });
    this.none.hidden = rows.length > 0;
  }

  #line() {
    return h("tr", {}, this.columns.map((column) =>
      column.head ? h("th", { scope: "row" }) : h("td", { class: column.number ? "number" : "" })));
  }
}
