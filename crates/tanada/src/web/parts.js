// What pages are put together from: facts, tables, states, notes.

import { h, s } from "./dom.js";

// Which of three a state is; a shape says it beside the colour.
const WORDS = {
  good: ["healthy", "ok", "active", "up", "in sync", "done", "running", "committed", "kept"],
  bad: ["failed", "cache-lost", "closed", "offline", "read-only", "full", "error", "down", "dead", "aborted"],
};
export const kindOf = word => Object.keys(WORDS).find(kind => WORDS[kind].includes(word)) ?? "warn";

const SHAPES = {
  good: "M6 1a5 5 0 1 0 0 10A5 5 0 1 0 6 1ZM3.2 6.2 5.2 8.2 9 4",
  warn: "M6 1 11.5 11H.5ZM6 4.5V7.5M6 9V9.4",
  bad: "M3.9 1H8.1L11 3.9V8.1L8.1 11H3.9L1 8.1V3.9ZM4 4 8 8M8 4 4 8",
  idle: "M6 1a5 5 0 1 0 0 10A5 5 0 1 0 6 1Z",
};

export const mark = kind => s("svg", { class: `sign ${kind}`, viewBox: "0 0 12 12", "aria-hidden": "true" }, s("path", { d: SHAPES[kind] }));
export const state = (word, kind = kindOf(word)) => h("span", { class: `state ${kind}` }, mark(kind), word);

export const facts = all => h("dl", { class: "facts" }, all.filter(Boolean).map(([name, value, about]) =>
  h("div", {}, h("dt", {}, name), h("dd", {}, value), about ? h("dd", { class: "under" }, about) : null)));

// Columns are names; "#" before one: numbers, to the right. Cells are text or elements.
export const table = (about, columns, rows, empty) => rows.length === 0 ? h("p", { class: "note" }, empty ?? "None.") :
  h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": about },
    h("table", {},
      h("thead", {}, h("tr", {}, columns.map(name => h("th", { scope: "col", class: name.startsWith("#") ? "n" : null }, name.replace(/^#/, ""))))),
      h("tbody", {}, rows.map(row => h("tr", {}, row.map((cell, n) =>
        n === 0 ? h("th", { scope: "row" }, cell) : h("td", { class: columns[n].startsWith("#") ? "n" : null }, cell)))))));

// Names and what they are, several beside each other; a third thing is what can be done.
export const pairs = all => h("dl", { class: "pairs" }, all.filter(Boolean).map(([name, value, more]) =>
  h("div", {}, h("dt", {}, name), h("dd", {}, value, more ? [" ", more] : null))));

export const section = (title, ...children) => h("section", { class: "card" }, h("h2", {}, title), ...children);
export const note = (...text) => h("p", { class: "note" }, ...text);
export const code = text => h("code", {}, text);

// The page's data are not there: why, and how to get them.
export const absent = (what, ...how) => h("div", { class: "card absent" }, h("p", {}, what, " ", ...how));
export const trouble = error => h("div", { class: "card absent bad", role: "alert" }, mark("bad"),
  h("p", {}, h("b", {}, error.message), error.todo ? ` ${error.todo}` : null));
