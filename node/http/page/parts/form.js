// Forms: fields of a kind, and what came of sending them.

import { h, show } from "../dom.js";
import { tell } from "./dialog.js";

/** A field: {name, label, kind, value, options, isNeeded, isWide, hint}; `kind` is text, number, check, choice, text block. */
export function field({ name, label, kind = "text", value = "", options = [], isNeeded = false, isWide = false, hint = "", secret = false }) {
  if (kind === "check") {
    return h("label", { class: "row" }, h("input", { type: "checkbox", name, checked: Boolean(value) }), label);
  }
  return h("label", { class: isWide ? "wide" : "" }, label, control({ name, kind, value, options, isNeeded, hint, secret }));
}

function control({ name, kind, value, options, isNeeded, hint, secret }) {
  if (kind === "choice") {
    return h("select", { name }, options.map((option) => {
      const [key, text] = Array.isArray(option) ? option : [option, option];
      return h("option", { value: key, selected: key === value }, text);
    }));
  }
  if (kind === "block") {
    const block = h("textarea", { name, rows: 4, spellcheck: "false", placeholder: hint, required: isNeeded });
    block.value = value;
    return block;
  }
  const type = secret ? "password" : kind;
  const autocomplete = secret ? "new-password" : "off";
  return h("input", { name, type, value, required: isNeeded, placeholder: hint, autocomplete, spellcheck: "false" });
}

/** What a form says, by field: texts, numbers, booleans; numbers that are left out are null. */
export function valuesOf(form) {
  const values = {};
  for (const each of form.elements) {
    if (!each.name) continue;
    if (each.type === "checkbox") values[each.name] = each.checked;
    else if (each.type === "number") values[each.name] = each.value === "" ? null : Number(each.value);
    else values[each.name] = each.value;
  }
  return values;
}

/** JSON that a person wrote; nothing is an empty object. */
export function jsonIn(text, what) {
  if (text.trim() === "") return {};
  try {
    const value = JSON.parse(text);
    if (value !== null && typeof value === "object" && !Array.isArray(value)) return value;
  } catch {
    // told below
  }
  throw new Error(`${what} is no JSON object, such as {"x-message-ttl": 60000}`);
}

/** A form to be opened. `send(values)` does it and returns what to say; it may raise, which is shown in the form. */
export function foldedForm({ title, fields, button, send, done, isOpen = false, isKept = false }) {
  const fault = h("p", { class: "late wide", role: "alert" });
  const submit = h("button", { type: "submit", class: "plain main" }, button);
  const form = h("form", { class: "fields" }, fields.map((each) => (each instanceof Element ? each : field(each))), fault,
    h("div", { class: "actions wide" }, submit));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    submit.disabled = true;
    show(fault, "");
    try {
      tell(await send(valuesOf(form)));
      if (!isKept) form.reset();
      done?.();
    } catch (error) {
      show(fault, error.message);
    } finally {
      submit.disabled = false;
    }
  });
  return h("details", { class: "sheet", open: isOpen }, h("summary", {}, title), form);
}
