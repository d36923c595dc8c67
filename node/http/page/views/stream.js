// What a stream has besides its queue: its offsets, and where its consumers have got to.

import { at, get } from "../api.js";
import { h, show } from "../dom.js";
import { Facts, figure } from "../parts/facts.js";
import { Table } from "../parts/table.js";
import { count } from "../units.js";

const UNKNOWN = "unknown";

/** A section that is there for streams. */
export class StreamSection {
  constructor(vhost, name) {
    this.path = `${at("/api/mayfly/queues", vhost, name)}/stream`;
    this.facts = new Facts({
      first_offset: "First offset", next_offset: "Next offset", consumer_count: "Consumers", expiring: "Expire by themselves",
    });
    this.more = h("p", { class: "none", role: "status" });
    this.table = new Table("Where consumers are", [
      { label: "Consumer", head: true, show: (row) => row.consumer_tag ?? UNKNOWN },
      { label: "Channel", show: (row) => row.channel ?? UNKNOWN },
      { label: "Node", show: (row) => row.node ?? UNKNOWN },
      { label: "Next offset", number: true, show: (row) => count(row.next_offset) },
      { label: "Behind", number: true, show: (row) => figure(count(row.lag), row.lag) },
      { label: "Unacknowledged", number: true, show: (row) => figure(count(row.unacknowledged), row.unacknowledged) },
    ], (row) => JSON.stringify(row.channel ? [row.channel, row.consumer_tag] : row.place), null, "Nobody reads it.");
    this.element = h("div", { hidden: true }, h("h2", {}, "Stream"), this.facts.element, this.table.element, this.more);
  }

  async refresh(queue) {
    const isStream = queue.arguments?.["x-queue-type"] === "stream";
    this.element.hidden = !isStream;
    if (!isStream) return;
    try {
      const stream = await get(this.path);
      this.facts.update(Object.fromEntries(["first_offset", "next_offset", "consumer_count", "expiring"].map((name) =>
        [name, stream[name] === null ? "?" : count(stream[name])])));
      this.table.update(stream.consumers.map((row, place) => ({ ...row, place })));
      const left = stream.consumer_count - stream.consumers.length;
      show(this.more, left > 0 && `Those that are furthest behind; ${count(left)} more are not shown.`);
    } catch (error) {
      // Who may see the queue may not always read it.
      this.table.update([]);
      show(this.more, error.message);
    }
  }
}
