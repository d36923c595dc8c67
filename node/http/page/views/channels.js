// Open channels, and consumers.

import { at, remove } from "../api.js";
import { h } from "../dom.js";
import { argumentMarks, counted, link, marks, rated, rowActions } from "../parts/cells.js";
import { ask, tell } from "../parts/dialog.js";
import { PagedList } from "../parts/paged.js";

export function channelsView({ refresh: again }) {
  const list = new PagedList({
    caption: "Channels", keyOf: (row) => row.name, sort: "name", path: () => "/api/channels", empty: "No channel is open.",
    columns: [
      { label: "Channel", sort: "name", head: true, show: (row) => h("a", { href: `#/connections/${encodeURIComponent(row.connection_details.name)}` }, row.name) },
      { label: "User", sort: "user", show: (row) => row.user },
      { label: "Virtual host", sort: "vhost", show: (row) => row.vhost },
      { label: "Node", sort: "node", show: (row) => row.node },
      { label: "", show: (row) => marks(row.confirm && "confirms", row.transactional && "transactions", row.state !== "running" && row.state) },
      { label: "Unacked", sort: "messages_unacknowledged", number: true, show: (row) => counted(row.messages_unacknowledged) },
      { label: "Unconfirmed", sort: "messages_unconfirmed", number: true, show: (row) => counted(row.messages_unconfirmed) },
      { label: "Prefetch", sort: "prefetch_count", number: true, show: (row) => counted(row.prefetch_count) },
      { label: "Consumers", sort: "consumer_count", number: true, show: (row) => counted(row.consumer_count) },
      { label: "Published", sort: "message_stats.publish_details.rate", number: true, show: (row) => rated(row.message_stats?.publish_details?.rate) },
      { label: "Delivered", sort: "message_stats.deliver_get_details.rate", number: true, show: (row) => rated(row.message_stats?.deliver_get_details?.rate) },
      { label: "", isLasting: true, show: (row) => rowActions(["Close", () => close(row, again), true]) },
    ],
  });
  return { title: "Channels", element: list.element, refresh: () => list.refresh() };
}

export function consumersView({ refresh: again }) {
  const list = new PagedList({
    caption: "Consumers", keyOf: (row) => `${row.channel_details.name}\n${row.consumer_tag}`, sort: "queue.name",
    path: () => "/api/consumers", empty: "Nobody consumes.", hasSearch: false,
    columns: [
      { label: "Queue", sort: "queue.name", head: true, show: (row) => link("queues", row.queue.vhost, row.queue.name) },
      { label: "Tag", sort: "consumer_tag", show: (row) => row.consumer_tag },
      { label: "Channel", sort: "channel_details.name", show: (row) => row.channel_details.name },
      { label: "Node", sort: "channel_details.node", show: (row) => row.channel_details.node },
      { label: "", show: (row) => marks(row.ack_required ? "" : "no acknowledgements", row.exclusive && "exclusive", row.activity_status === "up" ? "" : row.activity_status) },
      { label: "Prefetch", sort: "prefetch_count", number: true, show: (row) => counted(row.prefetch_count) },
      { label: "Arguments", show: (row) => argumentMarks(row.arguments) },
      { label: "", isLasting: true, show: (row) => rowActions(["Cancel", () => cancel(row, again), true]) },
    ],
  });
  return { title: "Consumers", element: list.element, refresh: () => list.refresh() };
}

async function close({ name }, again) {
  const isDone = await ask({
    title: "Close the channel?", button: "Close",
    text: `${name}: its client is told; what it has not acknowledged goes back to the queues. Its connection stays.`,
    act: () => remove(at("/api/mayfly/channels", name)),
  });
  if (isDone) tell("The channel is closed.");
  again();
}

async function cancel({ consumer_tag: tag, channel_details: channel, queue }, again) {
  const isDone = await ask({
    title: "Cancel the consumer?", button: "Cancel it",
    text: `${tag} of ${channel.name}: its client is told and gets no more from ${queue.name}; what it holds it keeps until it settles that.`,
    act: () => remove(at(at("/api/mayfly/channels", channel.name, "consumers"), tag)),
  });
  if (isDone) tell("The consumer is cancelled.");
  again();
}
