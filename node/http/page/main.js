// The page: who is logged in, which view is open, and its refresh.

import { get, hasLogin, logOut } from "./api.js";
import { startClock } from "./clock.js";
import { Frame } from "./frame.js";
import { loginForm } from "./login.js";
import { viewAt } from "./views.js";

const EVERY_MS = 2000;
const MOST_PATIENCE_MS = 30_000;

let user = null;
let frame = null;
let open = null; // the view
let number = 0; // of the view: answers for one that has been left are dropped
let timer = 0;
let failures = 0;

async function start() {
  document.documentElement.dataset.theme = localStorage.getItem("mayfly-theme") ?? "";
  if (!hasLogin()) return askLogin();
  try {
    user = await get("/api/whoami");
  } catch (error) {
    if (error.status !== 401) return askLogin(error.message);
    logOut();
    return askLogin();
  }
  frame = new Frame(user, leave);
  document.body.replaceChildren(frame.element);
  openView();
}

function askLogin(text = "") {
  clearTimeout(timer);
  number += 1;
  frame = open = null;
  document.title = "Log in - MayflyMQ";
  document.body.replaceChildren(loginForm(start, text));
  document.querySelector("input").focus();
}

function leave() {
  logOut();
  location.hash = "";
  askLogin();
}

async function openView(isNew = true) {
  if (frame === null) return;
  clearTimeout(timer);
  number += 1;
  const mine = number;
  const { view, names, path } = viewAt(location.hash, user);
  frame.tell("");
  open = view.open({ user, names, refresh: () => refresh(mine) });
  open.element.addEventListener("wanted", () => refresh(mine));
  document.title = `${open.title} - MayflyMQ`;
  frame.open(open, path);
  if (isNew) frame.focus();
  await refresh(mine);
}

/** Ask the node anew, now and every two seconds; where it fails, more and more seldom. */
async function refresh(mine) {
  if (mine !== number || frame === null) return;
  clearTimeout(timer);
  const view = open;
  try {
    await Promise.all([view.refresh(), frame.refresh()]);
    if (mine !== number) return;
    failures = 0;
    frame.fault("");
    view.element.dataset.shown = "";
  } catch (error) {
    if (mine !== number) return;
    failures += 1;
    if (error.status === 401 && !(await stillIn())) return askLogin("Log in again: the login is no longer right.");
    frame.fault(error.message);
    if (error.status === undefined) console.error(error);
  }
  clearTimeout(timer);
  const wait = Math.min(MOST_PATIENCE_MS, EVERY_MS * 2 ** Math.min(failures, 4));
  timer = setTimeout(() => (document.hidden ? undefined : refresh(mine)), wait);
}

async function stillIn() {
  try {
    await get("/api/whoami");
    return true;
  } catch (error) {
    if (error.status !== 401) return true;
    logOut();
    return false;
  }
}

window.addEventListener("hashchange", () => openView());
document.addEventListener("visibilitychange", () => document.hidden || refresh(number));
startClock();
start();
