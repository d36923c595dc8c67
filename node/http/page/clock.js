// Countdowns and leases that run between two answers of the node. All ends are on this machine's own steady clock,
// reckoned from how long the node said it still is: clocks of browsers may be set to anything.

import { h } from "./dom.js";
import { duration } from "./units.js";

const SOON_MS = 10_000;

/** "in 12 s", and "late 3 s" when it has passed. */
export function countdown(leftMs) {
  if (leftMs === null || leftMs === undefined) return "";
  const element = h("span", { class: "due" });
  element.endsMs = performance.now() + leftMs;
  element.take = (next) => {
    element.endsMs = next.endsMs;
    tellDue(element);
  };
  tellDue(element);
  return element;
}

/** An age that grows. */
export function age(ms) {
  if (ms === null || ms === undefined) return "";
  const element = h("span", { class: "age" });
  element.beganMs = performance.now() - ms;
  element.take = (next) => {
    element.beganMs = next.beganMs;
    tellAge(element);
  };
  tellAge(element);
  return element;
}

/** The lease of a queue: `{period_ms, remaining_ms, suspended, kept}`. */
export function leaseBar(lease, isLarge = false) {
  if (!lease) return "";
  const fill = h("i");
  const text = h("span");
  const element = h("span", { class: "lease" }, h("span", { class: "bar", "aria-hidden": "true" }, fill), text);
  Object.assign(element, { lease, fill, text, isLarge, endsMs: performance.now() + (lease.remaining_ms ?? 0) });
  element.take = ({ lease: told, endsMs }) => {
    Object.assign(element, { lease: told, endsMs });
    tellLease(element);
  };
  tellLease(element);
  return element;
}

function tellDue(element) {
  const leftMs = element.endsMs - performance.now();
  element.textContent = leftMs >= 0 ? `in ${duration(leftMs)}` : `late ${duration(-leftMs)}`;
  element.classList.toggle("late", leftMs < -1000);
}

function tellAge(element) {
  element.textContent = duration(performance.now() - element.beganMs);
}

function tellLease({ lease, fill, text, isLarge, endsMs, classList }) {
  const leftMs = Math.max(0, endsMs - performance.now());
  const state = lease.suspended ? "suspended" : leftMs > 0 ? "running" : "ended";
  for (const each of ["suspended", "running", "ended"]) classList.toggle(each, each === state);
  classList.toggle("soon", state === "running" && leftMs < Math.min(SOON_MS, lease.period_ms / 5));
  classList.toggle("large", isLarge);
  const part = state === "running" ? (100 * leftMs) / lease.period_ms : state === "suspended" ? 100 : 0;
  fill.style.width = `${Math.min(100, part)}%`;
  text.textContent = state === "suspended" ? "suspended" : state === "ended" ? "ended" : duration(leftMs);
}

/** Once a second, for as long as the page is open. */
export function startClock() {
  setInterval(() => {
    if (document.hidden) return;
    document.querySelectorAll(".due").forEach(tellDue);
    document.querySelectorAll(".age").forEach(tellAge);
    document.querySelectorAll(".lease").forEach(tellLease);
  }, 1000);
}
