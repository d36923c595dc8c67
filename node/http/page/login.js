// The form for name and password, or for a token where this node takes them.

import { get, logIn, logInByToken, logOut } from "./api.js";
import { h, show } from "./dom.js";

export function loginForm(done, text) {
  const name = h("input", { name: "name", autocomplete: "username", required: true, autocapitalize: "none", spellcheck: "false" });
  const password = h("input", { name: "password", type: "password", autocomplete: "current-password" });
  const said = h("p", { class: text ? "notice late" : "", role: "alert" }, text);
  const button = h("button", { type: "submit", class: "plain main" }, "Log in");
  const form = h("form", {}, h("label", {}, "User", name), h("label", {}, "Password", password), said, button);
  submits(form, button, said, () => logIn(name.value, password.value), password, reasonFor);
  const page = h("main", { class: "login" },
    h("div", { class: "brand" }, h("img", { src: "/page/mayfly.svg", alt: "" }), "MayflyMQ"), form);
  offerToken(page, form);
  return page;

  function submits(form, button, said, enter, last, reason) {
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      button.disabled = true;
      enter();
      try {
        await get("/api/whoami");
        done();
      } catch (error) {
        logOut();
        said.className = "notice late";
        show(said, reason(error));
        button.disabled = false;
        last.select();
      }
    });
  }

  async function offerToken(page, passwords) {
    const ways = await get("/api/auth").catch(() => ({}));
    if (!ways.oauth_enabled) return;
    const token = h("input", { name: "token", type: "password", autocomplete: "off", required: true, spellcheck: "false" });
    const said = h("p", { role: "alert" });
    const button = h("button", { type: "submit", class: "plain" }, "Log in by token");
    const form = h("form", { class: "by-token" }, h("label", {}, "Token of the provider", token), said, button);
    submits(form, button, said, () => logInByToken(token.value.trim()), token, reasonForToken);
    if (ways.oauth_disable_basic_auth) passwords.replaceWith(form);
    else page.append(form);
  }
}

function reasonFor(error) {
  if (error.status === 404) return "This node is starting: it knows no users yet. Try again in a moment.";
  if (error.message === "Login failed") {
    return "The name or password is wrong. The user guest may come from this machine only.";
  }
  if (error.status === 401) return "The user has none of the tags administrator, monitoring, policymaker, management.";
  return error.message;
}

function reasonForToken(error) {
  if (error.message === "Login failed") return "The token does not count here: it has expired, or is not for this cluster. The node's log says more.";
  if (error.status === 401) return "The token has none of the scopes tag:administrator, tag:monitoring, tag:policymaker, tag:management.";
  return error.message;
}
