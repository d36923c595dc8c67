// What waits for its time in a queue or for a delayed exchange: the first of it, with a way to cancel it.

import { at, get, remove } from "../api.js";
import { countdown } from "../clock.js";
import { h, show } from "../dom.js";
import { rowActions } from "../parts/cells.js";
import { ask, tell } from "../parts/dialog.js";
import { figure } from "../parts/facts.js";
import { Table } from "../parts/table.js";
import { count, octets } from "../units.js";

const SHOWN = 20;

/** A section that is there while something waits; `kind` is `queues` or `exchanges`. */
export class Scheduled {
  constructor(kind, vhost, name, again) {
    this.path = `${at(`/api/mayfly/${kind}`, vhost, name)}/scheduled`;
    this.again = again;
    this.more = h("p", { class: "none" });
    this.table = new Table("Messages that wait for their time", [
      { label: "Message id", head: true, show: (row) => row.message_id || h("span", { class: "quiet" }, "none") },
      { label: "Due", show: (row) => countdown(row.due_in_ms) },
      { label: "Exchange", show: (row) => row.exchange || "(default)" },
      { label: "Routing key", show: (row) => h("code", {}, row.routing_key) },
      { label: "Body", number: true, show: (row) => figure(octets(row.body_bytes), row.body_bytes) },
      { label: "Retries", number: true, show: (row) => figure(count(row.retries), row.retries) },
      // What comes back from a consumer was delivered: it is no more the publisher's to cancel.
      { label: "", isLasting: true, show: (row) => row.message_id && !row.retries && rowActions(["Cancel", () => this.#cancel(row), true]) },
    ], (row) => JSON.stringify([row.due_ms, row.message_id, row.exchange, row.routing_key, row.place]));
    this.element = h("div", { hidden: true }, h("h2", {}, "Waits for its time"), this.table.element, this.more);
  }

  /** `waiting`: how many do, undefined where nobody knows. */
  async refresh(waiting) {
    this.element.hidden = !waiting;
    if (!waiting) {
      this.table.update([]);
      return;
    }
    try {
      const answer = await get(this.path, { count: SHOWN });
      this.table.update(answer.messages.map((row, place) => ({ ...row, place })));
      show(this.more, answer.next && `The first ${count(SHOWN)} of ${count(waiting)}. More: mayfly schedule list`);
    } catch (error) {
      // Who may see the queue may not always see what is in it.
      this.table.update([]);
      show(this.more, error.message);
    }
  }

  async #cancel(row) {
    const isDone = await ask({
      title: `Cancel ${row.message_id}?`, button: "Cancel it",
      text: "All that waits here under this message id is never delivered then.",
      act: () => remove(`${this.path}/${encodeURIComponent(row.message_id)}`),
    });
    if (isDone) tell(`${row.message_id} is cancelled.`);
    this.again();
  }
}
