// The form for name and password, and one for a token where this node takes them.

import { get, logIn, logInByToken, logOut } from "./api.js";
import { h, show } from "./dom.js";

export function loginForm(done, text) {
  const name = h("input", { name: "name", autocomplete: "username", required: true, autocapitalize: "none", spellcheck: "false" });
  const password = h("input", { name: "password", type: "password", autocomplete: "current-password" });
  const fields = [h("label", {}, "User", name), h("label", {}, "Password", password)];
  const form = entry({}, fields, "Log in", text, () => logIn(name.value, password.value), reasonFor, done);
  const page = h("main", { class: "login" },
    h("div", { class: "brand" }, h("img", { src: "/page/mayfly.svg", alt: "" }), "MayflyMQ"), form);
  get("/api/auth").then((ways) => offerToken(ways, page, form, done), () => {});
  return page;
}

/** What this node says of tokens: that there is a form for them too, or for nothing else. */
function offerToken(ways, page, form, done) {
  if (!ways.oauth_enabled) return;
  const token = h("input", { name: "token", type: "password", autocomplete: "off", required: true, spellcheck: "false" });
  const byToken = entry({ class: "by-token" }, [h("label", {}, "Token of the provider", token)], "Log in by token", "",
    () => logInByToken(token.value.trim()), reasonForToken, done);
  if (ways.oauth_disable_basic_auth) form.replaceWith(byToken);
  else page.append(byToken);
}

/** A form: `enter` keeps what is in its fields as the login, which is tried then. */
function entry(properties, fields, label, text, enter, reason, done) {
  const said = h("p", { class: text ? "notice late" : "", role: "alert" }, text);
  const button = h("button", { type: "submit", class: "plain main" }, label);
  const form = h("form", properties, fields, said, button);
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
      fields.at(-1).querySelector("input").select();
    }
  });
  return form;
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
  if (error.message === "Login failed") {
    return "The token does not count here: it has ended, or is for another cluster. This node's log says why.";
  }
  if (error.status === 401) return "None of the token's scopes is for this page, such as tag:management.";
  return error.message;
}
