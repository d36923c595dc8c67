// What a stream has besides its queue: its offsets, where its consumers have got to, and how far copies are.

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
    this.copies = new Table("Copies", [
      { label: "Stream", head: true, show: (row) => row.name },
      { label: "What it is", show: (row) => row.is },
      { label: "Copied to", number: true, show: (row) => known(row.copied_to) },
      { label: "Behind", number: true, show: (row) => row.lag === null ? UNKNOWN : figure(count(row.lag), row.lag) },
      { label: "State", show: (row) => row.reason ? `${row.state}: ${row.reason}` : row.state },
    ], (row) => JSON.stringify([row.is, row.name]), null, "It copies none, and none copies it.");
    this.element = h("div", { hidden: true }, h("h2", {}, "Stream"), this.facts.element, this.table.element, this.more,
      this.copies.element);
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
      this.copies.update(copiesOf(stream));
      const left = stream.consumer_count - stream.consumers.length;
      show(this.more, left > 0 && `Those that are furthest behind; ${count(left)} more are not shown.`);
    } catch (error) {
      // Who may see the queue may not always read it.
      this.table.update([]);
      this.copies.update([]);
      show(this.more, error.message);
    }
  }
}

/** What the stream copies, in this cluster or another one, and what copies it. */
function copiesOf(stream) {
  const { upstream } = stream;
  return [
    ...(stream.origins ?? []).map((row) => ({ ...row, is: "copied from", state: "" })),
    ...(upstream ? [{ ...upstream, name: upstream.stream, is: `copied from, in cluster ${upstream.cluster}` }] : []),
    ...(stream.copies ?? []).map((row) => ({ ...row, is: "a copy", state: "" })),
  ];
}

const known = (offset) => offset === null ? UNKNOWN : count(offset);
