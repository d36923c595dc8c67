// Requests to this node. The login goes with each one by a header that no page of others can make a browser send, and
// nothing is left with the browser that it would send by itself: so there is no request to forge.

const KEPT = "mayfly-login"; // in this tab, until it is closed
let authorization = sessionStorage.getItem(KEPT);

/** What the node answered, where it is not what was hoped for. */
export class Refused extends Error {
  constructor(status, reason) {
    super(reason);
    this.status = status;
  }
}

export function hasLogin() {
  return authorization !== null;
}

export function logIn(user, password) {
  const octets = new TextEncoder().encode(`${user}:${password}`);
  authorization = `Basic ${btoa(String.fromCodePoint(...octets))}`;
  sessionStorage.setItem(KEPT, authorization);
}

/** By a token of a provider, which says who it is. */
export function logInByToken(token) {
  authorization = `Bearer ${token}`;
  sessionStorage.setItem(KEPT, authorization);
}

export function logOut() {
  authorization = null;
  sessionStorage.removeItem(KEPT);
}

export const get = (path, query, signal) => ask("GET", withQuery(path, query), undefined, signal);
export const put = (path, body) => ask("PUT", path, body ?? {});
export const post = (path, body) => ask("POST", path, body ?? {});
export const remove = (path, query) => ask("DELETE", withQuery(path, query));

/** A path of names: `at("/api/queues", "/", "a b")` is `/api/queues/%2F/a%20b`. */
export function at(path, ...names) {
  return [path, ...names.map((name) => encodeURIComponent(name))].join("/");
}

function withQuery(path, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== "" && value !== undefined && value !== null);
  return given.length ? `${path}?${new URLSearchParams(given)}` : path;
}

async function ask(method, path, body, signal) {
  const headers = { Accept: "application/json" };
  if (authorization !== null) headers.Authorization = authorization;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(path, {
      method,
      headers,
      body: body === undefined ? undefined : typeof body === "string" ? body : JSON.stringify(body),
      credentials: "omit",
      cache: "no-store",
      redirect: "error",
      signal,
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(0, "This node does not answer");
  }
  const text = await response.text();
  const content = parsed(text);
  if (response.ok) return content;
  throw new Refused(response.status, reasonIn(content) || `${response.status} ${response.statusText}`);
}

function parsed(text) {
  if (text === "") return null;
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

function reasonIn(content) {
  if (content === null || typeof content !== "object") return "";
  return typeof content.reason === "string" ? content.reason.trim() : String(content.error ?? "");
}
