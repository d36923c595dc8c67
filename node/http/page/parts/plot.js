// Plots of the last minutes, as lines. What they show is also said in figures beside them.

import { h, s, show } from "../dom.js";
import { duration } from "../units.js";

const WIDTH = 600;
const HEIGHT = 120;

export class Plot {
  /** `lines`: {name, label, colour}; `say` makes a text of a value. */
  constructor(title, lines, say, spanMs = 300_000) {
    this.lines = lines;
    this.say = say;
    this.spanMs = spanMs;
    this.samples = [];
    this.paths = lines.map(({ colour }) => s("path", { class: `line-${colour}` }));
    this.figures = lines.map(() => h("b"));
    this.most = h("span");
    this.svg = s("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" },
      [0, 0.5, 1].map((part) => s("line", { x1: 0, x2: WIDTH, y1: part * HEIGHT, y2: part * HEIGHT })), this.paths);
    this.element = h("figure", { class: "sheet plot", "aria-label": title },
      h("figcaption", {}, h("b", {}, title), lines.map(({ label, colour }, place) =>
        h("span", { class: "key" }, h("i", { class: `key-${colour}` }), `${label} `, this.figures[place]))),
      this.svg,
      h("div", { class: "axis", "aria-hidden": "true" }, h("span", {}, `${duration(spanMs)} ago`), this.most, h("span", {}, "now")));
  }

  /** One more sample: values by name, those that are not known left out. */
  add(values, nowMs = performance.now()) {
    this.samples.push({ nowMs, values });
    while (this.samples.length && this.samples[0].nowMs < nowMs - this.spanMs) this.samples.shift();
    this.#draw(nowMs);
  }

  #draw(nowMs) {
    const all = this.samples.flatMap(({ values }) => this.lines.map(({ name }) => values[name] ?? 0));
    const most = roundUp(Math.max(...all, 0));
    this.lines.forEach(({ name }, place) => {
      let path = "";
      for (const sample of this.samples) {
        const value = sample.values[name];
        if (value === undefined || value === null) continue;
        const x = WIDTH - ((nowMs - sample.nowMs) / this.spanMs) * WIDTH;
        path += `${path ? "L" : "M"}${x.toFixed(1)} ${(HEIGHT - (value / most) * HEIGHT).toFixed(1)}`;
      }
      this.paths[place].setAttribute("d", path);
      const last = this.samples.at(-1)?.values[name];
      show(this.figures[place], last === undefined || last === null ? "-" : this.say(last));
    });
    show(this.most, `top line: ${this.say(most)}`);
  }
}

/** 1, 2 or 5 times a power of ten. */
function roundUp(value) {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= value);
}
