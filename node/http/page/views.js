// Which views there are, for whom, and at which address.

import { channelsView, consumersView } from "./views/channels.js";
import { connectionView, connectionsView } from "./views/connections.js";
import { deadLettersView } from "./views/dead_letters.js";
import { definitionsView } from "./views/definitions.js";
import { exchangeView, exchangesView } from "./views/exchanges.js";
import { forecastView } from "./views/forecast.js";
import { nodesView } from "./views/nodes.js";
import { overviewView } from "./views/overview.js";
import { policiesView } from "./views/policies.js";
import { queueView } from "./views/queue.js";
import { queuesView } from "./views/queues.js";
import { shardsView } from "./views/shards.js";
import { userView, usersView } from "./views/users.js";
import { vhostsView } from "./views/vhosts.js";
import { h } from "./dom.js";

const MONITORS = ["administrator", "monitoring"];
const ADMINISTRATORS = ["administrator"];
const ALL = [...MONITORS, "policymaker", "management"];

const SECTIONS = [
  ["Messages", [
    { path: "", label: "Overview", tags: ALL, open: overviewView },
    { path: "queues", label: "Queues", tags: ALL, open: queuesView, one: queueView },
    { path: "exchanges", label: "Exchanges", tags: ALL, open: exchangesView, one: exchangeView },
    { path: "forecast", label: "Forecast", tags: ALL, open: forecastView },
    { path: "deadletters", label: "Dead letters", tags: MONITORS, open: deadLettersView },
  ]],
  ["Clients", [
    { path: "connections", label: "Connections", tags: ALL, open: connectionsView, one: connectionView },
    { path: "channels", label: "Channels", tags: ALL, open: channelsView },
    { path: "consumers", label: "Consumers", tags: ALL, open: consumersView },
  ]],
  ["Administration", [
    { path: "users", label: "Users", tags: ADMINISTRATORS, open: usersView, one: userView },
    { path: "vhosts", label: "Virtual hosts", tags: ALL, open: vhostsView },
    { path: "policies", label: "Policies", tags: ["administrator", "policymaker"], open: policiesView },
    { path: "definitions", label: "Definitions", tags: ADMINISTRATORS, open: definitionsView },
  ]],
  ["Cluster", [
    { path: "shards", label: "Shards", tags: MONITORS, open: shardsView },
    { path: "nodes", label: "Nodes and clocks", tags: MONITORS, open: nodesView },
  ]],
];

const mayOpen = (view, user) => view.tags.some((tag) => user.tags.includes(tag));

/** The navigation of a user. */
export function sections(user) {
  return SECTIONS.map(([title, views]) => ({ title, views: views.filter((view) => mayOpen(view, user)) }))
    .filter(({ views }) => views.length > 0);
}

/** The view at `#/queues/%2F/name`, with the names in it. */
export function viewAt(hash, user) {
  const [path = "", ...names] = hash.replace(/^#\/?/, "").split("/").map(decoded);
  const view = SECTIONS.flatMap(([, views]) => views).find((each) => each.path === path);
  if (!view || (names.length > 0 && !view.one)) return { view: { open: () => nothing("There is no such page.") }, names, path };
  if (!mayOpen(view, user)) {
    const text = `This takes a user with one of the tags ${view.tags.join(", ")}.`;
    return { view: { open: () => nothing(text) }, names, path };
  }
  return { view: names.length > 0 ? { open: view.one } : view, names, path };
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

function nothing(text) {
  return { title: "Nothing here", element: h("p", {}, text), refresh: async () => {} };
}
