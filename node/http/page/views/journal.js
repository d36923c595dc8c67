// What a journal has noted: of all queues, on the page of the stream that is the journal, or of one, on the queue's.

import { at, get } from "../api.js";
import { h, show } from "../dom.js";
import { Table } from "../parts/table.js";
import { count, duration, octets } from "../units.js";

const SHOWN = 20;

/** A section that is there where a stream has records, or a queue a journal. */
export class Journal {
  constructor(vhost, name) {
    this.vhost = vhost;
    this.name = name;
    this.note = h("p", { class: "none" });
    this.table = new Table("What time has removed", [
      { label: "Went", head: true, show: (row) => moment(row.went_ms) },
      { label: "Queue", show: (row) => row.queue },
      { label: "What", show: what },
      { label: "After it was due", number: true, show: (row) => row.due_ms === null ? "" : duration(row.went_ms - row.due_ms) },
      { label: "Reason", show: (row) => h("span", { class: "tag" }, row.reason) },
      { label: "To", show: to },
      { label: "Trace", show: (row) => row.traceparent && h("code", {}, row.traceparent) },
    ], (row) => String(row.offset), null, "Nothing yet.");
    this.element = h("div", { hidden: true }, h("h2", {}, "Journal"), this.table.element, this.note);
  }

  async refresh(queue) {
    const journal = queue.arguments?.["x-queue-type"] === "stream" ? this.name : queue.settings?.journal;
    if (!journal) {
      this.element.hidden = true;
      return;
    }
    const isJournal = journal === this.name;
    try {
      const query = isJournal ? { limit: SHOWN } : { limit: SHOWN, queue: this.name };
      const answer = await get(`${at("/api/mayfly/queues", this.vhost, journal)}/stream/journal`, query);
      this.element.hidden = isJournal && answer.records.length === 0;
      this.table.update(answer.records);
      const of = isJournal ? "" : `Noted in ${journal}. `;
      show(this.note, answer.before === null ? of : `${of}The newest. More: mayfly journal ${journal}`);
    } catch (error) {
      // Who may see the queue may not always read its journal.
      this.element.hidden = isJournal;
      this.table.update([]);
      show(this.note, error.message);
    }
  }
}

function moment(ms) {
  const date = new Date(typeof ms === "number" ? ms : NaN); // whoever may write to the stream can say anything
  if (Number.isNaN(date.getTime())) return "";
  return date.toISOString().replace("T", " ").slice(0, 23);
}

function what(row) {
  if (row.what === "queue") return `the queue, with ${count(row.messages)} messages`;
  return row.message_id ?? octets(row.body_bytes);
}

function to(row) {
  if (row.dead_letter_exchange === null) return row.to;
  return `${row.dead_letter_exchange || "(default)"} ${row.dead_letter_routing_key ?? ""}`;
}
