// The form for name and password.

import { get, logIn, logOut } from "./api.js";
import { h, show } from "./dom.js";

export function loginForm(done, text) {
  const name = h("input", { name: "name", autocomplete: "username", required: true, autocapitalize: "none", spellcheck: "false" });
  const password = h("input", { name: "password", type: "password", autocomplete: "current-password" });
  const said = h("p", { class: text ? "notice late" : "", role: "alert" }, text);
  const button = h("button", { type: "submit", class: "plain main" }, "Log in");
  const form = h("form", {}, h("label", {}, "User", name), h("label", {}, "Password", password), said, button);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    button.disabled = true;
    logIn(name.value, password.value);
    try {
      await get("/api/whoami");
      done();
    } catch (error) {
      logOut();
      said.className = "notice late";
      show(said, reasonFor(error));
      button.disabled = false;
      password.select();
    }
  });
  return h("main", { class: "login" },
    h("div", { class: "brand" }, h("img", { src: "/page/mayfly.svg", alt: "" }), "MayflyMQ"), form);
}

function reasonFor(error) {
  if (error.status === 404) return "This node is starting: it knows no users yet. Try again in a moment.";
  if (error.message === "Login failed") {
    return "The name or password is wrong. The user guest may come from this machine only.";
  }
  if (error.status === 401) return "The user has none of the tags administrator, monitoring, policymaker, management.";
  return error.message;
}
