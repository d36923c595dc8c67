// Elements, made without markup: what comes from the broker is only ever text.

/** An element. `properties` are attributes, but for `on` (listeners by event), `class` and `data`. */
export function h(tag, properties = {}, ...children) {
  return fill(document.createElement(tag), properties, children);
}

/** The same of SVG. */
export function s(tag, properties = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), properties, children);
}

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "on") for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    else if (name === "data") Object.assign(element.dataset, value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/**
 * Put `content` in place of what is in `element`, if it says something else: what is selected or has focus stays. What
 * runs by itself (see `clock.js`) takes over from its successor by `take`.
 */
export function show(element, ...content) {
  const fresh = document.createElement(element.tagName);
  fresh.append(...content.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  const [old, next] = [element.firstElementChild, fresh.firstElementChild];
  if (fresh.childNodes.length === 1 && element.childNodes.length === 1 && old?.take && next?.take) {
    if (old.className.split(" ")[0] === next.className.split(" ")[0]) return old.take(next);
  }
  if (!element.firstChild || element.innerHTML !== fresh.innerHTML) element.replaceChildren(...fresh.childNodes);
}

/** Text for screen readers alone. */
export function spoken(text) {
  return h("span", { class: "spoken" }, text);
}
