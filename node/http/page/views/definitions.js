// Definitions: all that is declared, out and in.

import { get, post } from "../api.js";
import { h, show } from "../dom.js";
import { ask, tell } from "../parts/dialog.js";
import { Facts } from "../parts/facts.js";
import { count } from "../units.js";

const PARTS = {
  vhosts: "Virtual hosts", users: "Users", permissions: "Permissions", topic_permissions: "Topic permissions", policies: "Policies",
  parameters: "Parameters", exchanges: "Exchanges", queues: "Queues", bindings: "Bindings",
};

export function definitionsView() {
  const facts = new Facts(PARTS);
  const file = h("input", { type: "file", name: "file", accept: "application/json,.json" });
  const said = h("div", { role: "status" });
  const element = h("div", {}, h("p", {}, "What clients and operators have declared, in RabbitMQ's JSON: no messages. Passwords are in it as hashes."),
    facts.element, h("h2", {}, "Export"), h("div", { class: "actions" },
      h("button", { type: "button", class: "plain", on: { click: save } }, "Save as a file")),
    h("h2", {}, "Import"), h("div", { class: "tools" }, h("label", {}, "A file of RabbitMQ or MayflyMQ", file),
      h("button", { type: "button", class: "plain", on: { click: load } }, "Import")), said);
  let isCounted = false;

  async function refresh() {
    if (isCounted) return;
    counted(await get("/api/definitions"));
    isCounted = true;
  }

  function counted(definitions) {
    facts.update(Object.fromEntries(Object.keys(PARTS).map((part) => [part, count((definitions[part] ?? []).length)])));
  }

  async function save() {
    try {
      const definitions = await get("/api/definitions");
      counted(definitions);
      const address = URL.createObjectURL(new Blob([JSON.stringify(definitions, null, 2)], { type: "application/json" }));
      h("a", { href: address, download: "definitions.json" }).click();
      setTimeout(() => URL.revokeObjectURL(address), 60_000);
    } catch (error) {
      tell(error.message, true);
    }
  }

  async function load() {
    const [chosen] = file.files;
    if (!chosen) return tell("Choose a file first.", true);
    let answer = null;
    const text = await chosen.text();
    const isDone = await ask({
      title: "Import the file?", text: `${chosen.name}: what is in it is declared; what is there already stays, users and policies of the same name are replaced.`,
      button: "Import", isGrave: false, act: async () => { answer = await post("/api/definitions", text); },
    });
    if (!isDone) return undefined;
    tell("The file is imported.");
    isCounted = false;
    element.dispatchEvent(new CustomEvent("wanted"));
    return show(said, answer && Object.keys(answer).length > 0 && h("pre", { tabindex: "0" }, JSON.stringify(answer, null, 2)));
  }
  return { title: "Definitions", element, refresh };
}
