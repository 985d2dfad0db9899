// The dashboard: one document, pages by what stands behind `#`.
//
//   samples (one a second) -> head, and the page that is open
//   page: { load(signal): what it asks /v1 for, now and each few seconds while it is visible; show(): what it draws }

import { follow, get, Refusal, token } from "./api.js";
import { h, patch } from "./dom.js";
import { signIn } from "./actions.js";
import { absent, mark, note, trouble } from "./parts.js";
import { span } from "./units.js";
import { overview } from "./overview.js";
import { volumes } from "./volumes.js";
import { replication } from "./replication.js";
import { reservations } from "./reservations.js";
import { stores } from "./stores.js";
import { energy } from "./energy.js";
import { advice } from "./advice.js";

const PAGES = { "": overview, volumes, replication, reservations, stores, energy, advice };
// As many samples as the drawings reach back.
const SAMPLES_MAX = 330;

const at = id => document.getElementById(id);
const main = at("main");

// What all pages share.
let isHeard = () => {};
const app = {
  samples: [],
  // Until the first sample, or two seconds without one.
  first: new Promise(done => { isHeard = done; setTimeout(done, 2000); }),
  access: {},
  get sample() { return this.samples[this.samples.length - 1]; },
  // May the one whose token it is do what an operator may?
  get operates() { return ["operator", "admin"].includes(this.access.role); },
  again: () => refresh(),
};

let page = null, asked = null, timer = null;

const route = () => {
  const parts = location.hash.replace(/^#\/?/, "").split("/").map(part => {
    try { return decodeURIComponent(part); } catch { return part; }
  });
  return { name: PAGES[parts[0]] ? parts[0] : "", rest: parts.slice(1) };
};

const draw = () => {
  // Until the first answer to what the page asks for, more is to come.
  main.setAttribute("aria-busy", String(!page.loaded));
  try {
    patch(main, page.show());
  } catch (error) {
    console.error(error);
    patch(main, [trouble(new Refusal(0, { error: "this page could not be drawn", what_to_do: "reload it; if that does not help, report it as a bug" }))]);
  }
};

const refresh = async () => {
  clearTimeout(timer);
  asked?.abort();
  if (document.hidden || !page) return;
  const mine = asked = new AbortController();
  const open = page;
  try {
    await page.load?.(mine.signal);
    open.error = null;
  } catch (error) {
    if (mine.signal.aborted) return;
    open.error = error instanceof Refusal ? error
      : new Refusal(0, { error: "the daemon does not answer", what_to_do: "what is shown is what was known before" });
  }
  if (open !== page) return;
  open.loaded = true;
  draw();
  if (page.every) timer = setTimeout(refresh, page.every * 1000);
};

const go = (isFirst = false) => {
  const { name, rest } = route();
  if (page?.name === name && page.follow) {
    page.follow(rest);
  } else {
    page = Object.assign(PAGES[name](app, rest), { name });
    document.title = name ? `${page.title} – Tanada` : "Tanada";
    patch(at("pages"), Object.entries(PAGES).map(([path, it]) => h("li", {},
      h("a", { href: `#/${path}`, "aria-current": path === name ? "page" : null }, it.title))));
    if (!isFirst) {
      scrollTo(0, 0);
      main.focus({ preventScroll: true });
    }
  }
  draw();
  refresh();
};

const VERDICT = { HEALTH_OK: "good", HEALTH_WARN: "warn", HEALTH_ERR: "bad" };
const head = () => {
  const status = app.sample?.health?.status;
  at("verdict").className = `pill ${VERDICT[status] ?? ""}`;
  patch(at("verdict"), status ? [mark(VERDICT[status] ?? "warn"), status] : []);
};

let liveWord = "";
const live = (word, kind) => {
  if (word === liveWord) return;
  liveWord = word;
  at("live").className = `live ${kind}`;
  document.body.classList.toggle("is-stale", kind !== "good");
  patch(at("live"), [mark(kind), word]);
};

const heard = (what, data, why) => {
  if (what === "sample") {
    if (app.sample && app.sample.started_unix_seconds !== data.started_unix_seconds) app.samples = [];
    app.samples.push(data);
    isHeard();
    if (app.samples.length > SAMPLES_MAX) app.samples.shift();
    live("live", "good");
    head();
    if (page.live !== false) draw();
  } else if (what === "lost") {
    if (token.get()) {
      token.set(null);
      app.access = {};
      who();
    }
  } else if (what === "refused") {
    learn();
  } else if (what === "stale") {
    live(`stale: last figures ${span(data)} ago`, "warn");
  } else if (what === "waiting") {
    live(`stale: ${why}; next try in ${data} s`, "bad");
  }
};

const who = () => {
  const { role, account } = app.access;
  patch(at("who"), [role && token.get()
    ? [h("span", { class: "role" }, account ? `${account}, ${role}` : role),
      h("button", { type: "button", class: "plain", onclick: () => { token.set(null); learn(); } }, "Forget token")]
    : h("button", { type: "button", onclick: () => signIn(learn) }, "Use token")]);
};

// Who the daemon says the token's owner is.
const learn = async () => {
  try {
    app.access = await get("/v1/access");
  } catch (error) {
    app.access = {};
    // One that is over, or of a daemon that was here before.
    if (error.status === 401 && token.get()) token.set(null);
  }
  who();
  samples.again();
  refresh();
};

at("skip").onclick = event => {
  event.preventDefault();
  main.focus();
};
addEventListener("hashchange", () => go());
document.addEventListener("visibilitychange", () => document.hidden ? (clearTimeout(timer), asked?.abort()) : refresh());

app.absent = absent;
app.note = note;
who();
go(true);
const samples = follow(heard);
learn();
