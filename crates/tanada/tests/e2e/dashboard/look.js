// What the tests ask a page of the dashboard for. Nothing of it is there on an empty page: then it throws, or is false.

const words = element => element.innerText.trim();
const named = (all, selector, name) => [...all].find(it => words(it.querySelector(selector)) === name);

// The card with this title; the first one without.
window.card = title => title === undefined ? document : named(document.querySelectorAll("main section.card"), "h2", title);
// What a fact says: the figure, and what stands below it.
window.fact = (name, title) => words(named(card(title).querySelectorAll(".facts div"), "dt", name)).split("\n").slice(1).join(" ");
// The same of a list of names and values.
window.pair = (name, title) => words(named(card(title).querySelectorAll(".pairs div"), "dt", name).querySelector("dd"));

const region = name => document.querySelector(`main [role=region][aria-label="${name}"]`);
// Rows of a table, each by its columns.
window.rows = name => {
  const heads = [...region(name).querySelectorAll("thead th")].map(words);
  return [...region(name).querySelectorAll("tbody tr")].map(row =>
    Object.fromEntries([...row.children].map((cell, n) => [heads[n] || n, words(cell)])));
};
// The row whose first cell says so.
window.row = (name, first) => rows(name).find(it => Object.values(it)[0] === first);
// How its element looks: good, warn, bad or idle.
window.sign = (name, first) => {
  const found = [...region(name).querySelectorAll("tbody tr")].find(it => words(it.children[0]) === first);
  return ["good", "warn", "bad", "idle"].find(it => found.querySelector(`.state.${it}`));
};

// Are there so many curves in a drawing, each of several points, and a scale beside them?
window.isDrawn = (title, curves, within) => {
  const figure = named(card(within).querySelectorAll("figure.drawing"), "figcaption h2, figcaption h3", title);
  const lines = [...figure.querySelectorAll(".plot .line")];
  return lines.length === curves && lines.every(it => it.getAttribute("d").includes("L")) && figure.querySelectorAll(".ys span").length > 1;
};
// The parts of a bar: what each is, in words, and how wide it is.
window.bar = about => {
  const found = [...document.querySelectorAll("main .bar svg[role=img]")].find(it => it.getAttribute("aria-label").startsWith(`${about}: `));
  return { says: found.getAttribute("aria-label"), widths: [...found.querySelectorAll(".part")].map(it => Number(it.getAttribute("width"))) };
};
// Colours of the heat map.
window.colours = () => {
  const canvas = document.querySelector(".heat canvas");
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  return new Set(Array.from({ length: data.length / 4 }, (_, n) => data.slice(4 * n, 4 * n + 3).join())).size;
};
// Is it more than nothing?
window.some = text => parseFloat(text) > 0;
