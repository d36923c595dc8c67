// What stands around each view: header, alarms, navigation.

import { get } from "./api.js";
import { h, show } from "./dom.js";
import { sections } from "./views.js";

const THEMES = { "": "As the system", light: "Light", dark: "Dark" };

export class Frame {
  constructor(user, leave) {
    this.cluster = h("span", { class: "where" });
    this.alarms = h("ul", { class: "alarms", role: "alert", hidden: true });
    this.told = h("div", { id: "told", role: "status" });
    this.faulty = h("div", { id: "fault", role: "alert" });
    this.main = h("main", { id: "main", tabindex: "-1" });
    this.links = [];
    this.element = h("div", { class: "frame" },
      h("header", { class: "head" }, h("a", { class: "skip", href: "#main", on: { click: (event) => this.#skip(event) } }, "To the content"),
        h("a", { class: "brand", href: "#/" }, h("img", { src: "/page/mayfly.svg", alt: "" }), "MayflyMQ"), this.cluster,
        h("div", { class: "end" }, this.#themes(), h("span", {}, user.name, " ", h("span", { class: "quiet" }, user.tags.join(", "))),
          h("button", { type: "button", class: "plain slim", on: { click: leave } }, "Log out"))),
      this.#navigation(user), this.main);
  }

  #skip(event) {
    event.preventDefault();
    this.main.focus();
  }

  #themes() {
    const select = h("select", { "aria-label": "Colours" }, Object.entries(THEMES).map(([value, label]) =>
      h("option", { value, selected: (localStorage.getItem("mayfly-theme") ?? "") === value }, label)));
    select.addEventListener("change", () => {
      localStorage.setItem("mayfly-theme", select.value);
      document.documentElement.dataset.theme = select.value;
    });
    return select;
  }

  #navigation(user) {
    return h("nav", { class: "nav", "aria-label": "Pages" }, sections(user).map(({ title, views }) =>
      h("section", {}, h("h2", {}, title), h("ul", {}, views.map(({ path, label }) => {
        const link = h("a", { href: `#/${path}`, data: { path } }, label);
        this.links.push(link);
        return h("li", {}, link);
      })))));
  }

  /** Put a view in the main part; `path` is that of its place in the navigation. */
  open(view, path) {
    for (const link of this.links) {
      if (link.dataset.path === path) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    const title = h("div", { class: "title" }, h("h1", {}, view.title), view.about ?? "");
    this.main.replaceChildren(this.told, this.faulty, title, view.element);
    window.scrollTo(0, 0);
  }

  focus() {
    this.main.focus({ preventScroll: true });
  }

  tell(text) {
    show(this.told, text);
  }

  fault(text) {
    show(this.faulty, text && h("p", { class: "notice late" }, text));
  }

  async refresh() {
    const nowMs = performance.now();
    if (nowMs < (this.nextMs ?? 0)) return;
    this.nextMs = nowMs + 5000;
    const ready = await get("/health/ready").catch((error) => ({ reason: error.message, alarms: [] }));
    const texts = [...(ready.reason ? [`This node does not serve clients: ${ready.reason}`] : []),
      ...(ready.alarms ?? []).map((text) => `Publishers are blocked: ${text}`)];
    show(this.alarms, texts.map((text) => h("li", {}, text)));
    this.alarms.hidden = texts.length === 0;
    if (!this.alarms.isConnected) this.main.before(this.alarms);
  }
}
