// Questions before something is done that can't be undone, and what came of it.

import { h, show } from "../dom.js";

/** Ask; `act` does it, and what it raises is shown in the dialog. Resolves to whether it was done. */
export function ask({ title, text, button, isGrave = true, fields = [], act }) {
  return new Promise((resolve) => {
    const fault = h("p", { class: "late", role: "alert" });
    const confirm = h("button", { type: "submit", class: `plain ${isGrave ? "grave" : "main"}` }, button);
    const cancel = h("button", { type: "button", class: "plain" }, "Cancel");
    const form = h("form", { method: "dialog" }, h("p", {}, text), fields, fault,
      h("div", { class: "actions" }, cancel, confirm));
    const dialog = h("dialog", { "aria-label": title }, h("h2", {}, title), form);
    let isDone = false;
    cancel.addEventListener("click", () => dialog.close());
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(isDone);
    });
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      confirm.disabled = true;
      try {
        await act(form);
        isDone = true;
        dialog.close();
      } catch (error) {
        show(fault, error.message);
        confirm.disabled = false;
      }
    });
    document.body.append(dialog);
    dialog.showModal();
    (isGrave && !fields.length ? cancel : form.querySelector("input, select, textarea") ?? confirm).focus();
  });
}

/** Say below the header what was done, or why not. */
export function tell(text, isFault = false) {
  const place = document.getElementById("told");
  if (place) show(place, text && h("p", { class: `notice ${isFault ? "late" : "good"}` }, text));
}
