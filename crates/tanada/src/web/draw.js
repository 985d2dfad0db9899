// Drawings: SVG between axes of HTML, as the reports have them, each with its data as a table behind it.
//
//   curves, heat, gantt -> { node, show(data) }: the node stays, what it shows changes
//   bar(parts) -> a bar of parts
//
// Always true: axes have names and units; what a colour says, a dash, a shape or a word says too.

import { h, own, patch, s } from "./dom.js";
import { clock } from "./units.js";

const TABLE_ROWS = 400;
let numbers = 0;

const place = at => Math.round(Math.min(1, Math.max(0, at)) * 10000) / 10;

// The values behind a drawing; put together only while they are open.
const dataBehind = about => {
  const box = h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": about });
  const node = own(h("details", { class: "data" }, h("summary", {}, "Data as a table"), box));
  let make = () => [[], []];
  const draw = () => {
    if (!node.open) return;
    const [columns, rows] = make();
    patch(box, [h("table", {},
      h("thead", {}, h("tr", {}, columns.map((name, n) => h("th", { scope: "col", class: n ? "n" : null }, name)))),
      h("tbody", {}, rows.slice(-TABLE_ROWS).map(row =>
        h("tr", {}, row.map((cell, n) => h("td", { class: n ? "n" : null }, cell))))))]);
  };
  node.addEventListener("toggle", draw);
  return { node, show: rows => { make = rows; draw(); } };
};

const figure = (title, about, drawing, className, level = "h3") => {
  const id = `f${numbers += 1}`;
  const node = own(h("figure", { class: `drawing ${className}`, "aria-labelledby": id }));
  const said = h("p", { class: "about" });
  node.append(h("figcaption", {}, h(level, { id }, title), said), ...drawing);
  said.textContent = about ?? "";
  return { node, about: text => { said.textContent = text; } };
};

const ticksAt = (box, side, ticks) => {
  patch(box, ticks.map(([, label]) => h("span", {}, label)));
  [...box.children].forEach((tick, n) => { tick.style[side] = `${ticks[n][0] * 100}%`; });
};

// A box beside the pointer with what is there; arrow keys move it.
const readout = (plot, name, count, read) => {
  const box = h("div", { class: "readout", role: "status" });
  const cursor = h("div", { class: "cursor" });
  box.hidden = cursor.hidden = true;
  plot.append(cursor, box);
  plot.tabIndex = 0;
  plot.setAttribute("role", "group");
  plot.setAttribute("aria-label", `${name}: arrow keys read values`);
  let here = null;
  const hide = () => { here = null; box.hidden = cursor.hidden = true; };
  const show = n => {
    const found = count() ? read(Math.min(count() - 1, Math.max(0, n))) : null;
    if (!found) return hide();
    here = Math.min(count() - 1, Math.max(0, n));
    box.hidden = cursor.hidden = false;
    cursor.style.left = `${found.at * 100}%`;
    patch(box, [h("b", {}, found.head), h("dl", {}, found.rows.map(([key, what, value]) =>
      [h("dt", {}, key ? s("svg", { class: "key", viewBox: "0 0 22 10", "aria-hidden": "true" }, s("path", { class: `line ${key}`, d: "M0 5H22" })) : null, what), h("dd", {}, value)]))]);
    box.style.left = found.at < 0.5 ? `calc(${found.at * 100}% + 12px)` : "auto";
    box.style.right = found.at < 0.5 ? "auto" : `calc(${(1 - found.at) * 100}% + 12px)`;
  };
  plot.addEventListener("pointermove", event => {
    const edge = plot.getBoundingClientRect();
    const found = read.nearest((event.clientX - edge.left) / edge.width, 1 - (event.clientY - edge.top) / edge.height);
    if (found === null) hide(); else show(found);
  });
  plot.addEventListener("pointerleave", hide);
  plot.addEventListener("blur", hide);
  plot.addEventListener("keydown", event => {
    const last = count() - 1;
    const step = read.step ?? (() => 1);
    const to = {
      ArrowRight: here === null ? last : here + step("x"), ArrowLeft: here === null ? last : here - step("x"),
      ArrowUp: here === null ? last : here + step("y"), ArrowDown: here === null ? last : here - step("y"),
      Home: 0, End: last,
    }[event.key];
    if (event.key === "Escape") hide();
    if (to === undefined) return;
    event.preventDefault();
    show(to);
  });
  return { again: () => { if (here !== null) show(here); } };
};

const legend = series => h("ul", { class: "legend" }, series.map((it, n) =>
  h("li", {}, s("svg", { class: "key", viewBox: "0 0 22 10", "aria-hidden": "true" },
    s("path", { class: `line ${it.look ?? `c${n} dash${n % 4}`}`, d: "M0 5H22" })), it.name)));

// Curves over a common x. `axes`: { x: { name, show }, y: { name, show, ticks, top } }.
// show({ x: [..], from, to, series: [{ name, y: [..] }], xTicks, marks })
export const curves = (title, about, axes, level) => {
  const ys = h("div", { class: "ys" }), xs = h("div", { class: "xs" });
  const plot = h("div", { class: "plot" });
  const svg = s("svg", { viewBox: "0 0 1000 1000", preserveAspectRatio: "none", "aria-hidden": "true" });
  plot.append(svg);
  const keys = h("div", { class: "keys" }), table = dataBehind(`${title}, data`);
  const frame = h("div", { class: "frame" }, ys, plot, h("div", {}), xs);
  const drawing = figure(title, about, [h("p", { class: "axis-name" }, axes.y.name), frame,
    h("p", { class: "axis-name under" }, axes.x.name), keys, table.node], "chart", level);
  let data = { x: [], from: 0, to: 1, series: [], marks: [] };
  const across = x => (x - data.from) / (data.to - data.from || 1);
  const look = n => data.series[n].look ?? `c${n} dash${n % 4}`;
  const read = n => ({
    at: across(data.x[n]),
    head: (axes.x.long ?? axes.x.show)(data.x[n]),
    rows: data.series.map((it, i) => [look(i), it.name, axes.y.show(it.y[n])]),
  });
  read.nearest = at => {
    let best = null;
    data.x.forEach((x, n) => { if (best === null || Math.abs(across(x) - at) < Math.abs(across(data.x[best]) - at)) best = n; });
    return best;
  };
  const box = readout(plot, title, () => data.x.length, read);
  const show = fresh => {
    data = { marks: [], ...fresh };
    const values = data.series.flatMap(it => it.y.filter(Number.isFinite));
    const ticks = axes.y.ticks(Math.max(axes.y.least ?? 0, ...values));
    const top = ticks[ticks.length - 1];
    const paths = data.series.map((it, n) => {
      let path = "", down = false;
      it.y.forEach((y, i) => {
        if (!Number.isFinite(y)) { down = false; return; }
        const [x, up] = [place(across(data.x[i])), place(1 - y / top)];
        path += down ? `L${x} ${up}` : `M${x} ${up}h0`;
        down = true;
      });
      return s("path", { class: `line ${look(n)}`, d: path || "M0 0" });
    });
    const grid = ticks.map(y => `M0 ${place(1 - y / top)}H1000`).join("");
    patch(svg, [s("path", { class: "rule", d: grid }),
      data.marks.map(mark => s("path", { class: "mark", d: `M${place(across(mark.x))} 0V1000` })), paths]);
    ticksAt(ys, "bottom", ticks.map(y => [y / top, axes.y.show(y)]));
    ticksAt(xs, "left", data.xTicks.map(x => [across(x), axes.x.show(x)]));
    patch(keys, [data.series.length > 1 || data.marks.length ? [legend(data.series),
      data.marks.map(mark => h("p", { class: "mark-name" }, "┊ ", mark.name))] : null]);
    table.show(() => [[axes.x.name, ...data.series.map(it => it.name)],
      data.x.map((x, n) => [(axes.x.long ?? axes.x.show)(x), ...data.series.map(it => axes.y.show(it.y[n]))])]);
    box.again();
  };
  return { node: drawing.node, show, about: drawing.about };
};

// The last minutes of samples as curves: `pick` takes a sample to the values of the series.
export const history = (title, axes, names, pick, seconds, level) => {
  const chart = curves(title, null, { x: { name: "time of day", show: clock }, y: axes }, level);
  return {
    node: chart.node,
    show: samples => {
      const to = samples.length ? samples[samples.length - 1].at_unix_seconds : 0;
      // A page that was just opened has more than a corner of its drawing to show.
      const from = Math.max(to - seconds, Math.min(samples[0]?.at_unix_seconds ?? to, to - 60));
      const x = [], ys = names.map(() => []);
      let before = null;
      for (const sample of samples) {
        if (sample.at_unix_seconds < from) continue;
        // Where nothing was heard nothing is drawn.
        if (before !== null && sample.at_unix_seconds - before > 5) {
          x.push(before + 1);
          ys.forEach(y => y.push(NaN));
        }
        before = sample.at_unix_seconds;
        x.push(before);
        pick(sample).forEach((value, n) => ys[n].push(value ?? NaN));
      }
      const step = [10, 15, 30, 60, 120].find(it => it * 6 >= to - from) ?? 300, xTicks = [];
      for (let at = Math.ceil(from / step) * step; at <= to; at += step) xTicks.push(at);
      chart.show({ x, from, to, xTicks, series: names.map((name, n) => ({ name, y: ys[n] })) });
    },
  };
};

// Region by time. show({ columns, rows, value(x, y), inside(x, y), xTicks, yTicks, xOf(n), yOf(n), cells })
export const heat = (title, about, names) => {
  const ys = h("div", { class: "ys" }), xs = h("div", { class: "xs" });
  const plot = h("div", { class: "plot" });
  const canvas = h("canvas", { "aria-hidden": "true" });
  const svg = s("svg", { preserveAspectRatio: "none", "aria-hidden": "true" });
  plot.append(canvas, svg);
  const table = dataBehind(`${title}, data`), most = h("span", {});
  const keys = h("p", { class: "legend" }, "none", h("span", { class: "ramp", "aria-hidden": "true" }), most,
    h("span", { class: "box", "aria-hidden": "true" }), names.inside);
  const drawing = figure(title, about, [h("p", { class: "axis-name" }, names.y),
    h("div", { class: "frame" }, ys, plot, h("div", {}), xs), h("p", { class: "axis-name under" }, names.x), keys, table.node], "heat");
  let data = { columns: 0, rows: 0 };
  const read = n => {
    const [x, y] = [Math.floor(n / data.rows), n % data.rows];
    return {
      at: (x + 0.5) / data.columns,
      head: data.xOf(x),
      rows: [[null, names.y, data.yOf(y)], [null, names.value, names.show(data.value(x, y))],
        [null, names.inside, data.inside(x, y) ? "yes" : "no"]],
    };
  };
  read.nearest = (x, y) => data.columns
    ? Math.min(data.columns - 1, Math.floor(x * data.columns)) * data.rows + Math.min(data.rows - 1, Math.max(0, Math.floor(y * data.rows))) : null;
  read.step = way => way === "x" ? data.rows : 1;
  const box = readout(plot, title, () => data.columns * data.rows, read);
  // Colours of the style sheet, as they are now: light or dark.
  const ramp = () => {
    const style = getComputedStyle(document.documentElement);
    return [0, 1, 2, 3, 4, 5].map(n => style.getPropertyValue(`--h${n}`).trim())
      .map(hex => [1, 3, 5].map(at => parseInt(hex.slice(at, at + 2), 16)));
  };
  const paint = () => {
    if (!data.columns) return;
    canvas.width = data.columns;
    canvas.height = data.rows;
    const pen = canvas.getContext("2d"), colours = ramp();
    const picture = pen.createImageData(data.columns, data.rows);
    let top = 0;
    for (let x = 0; x < data.columns; x += 1) for (let y = 0; y < data.rows; y += 1) top = Math.max(top, data.value(x, y));
    for (let x = 0; x < data.columns; x += 1) {
      for (let y = 0; y < data.rows; y += 1) {
        const value = data.value(x, y);
        const at = value ? (top > 1 ? 0.08 + 0.92 * Math.log1p(value) / Math.log1p(top) : 1) * 5 : 0;
        const [low, part] = [Math.min(4, Math.floor(at)), at - Math.min(4, Math.floor(at))];
        const to = ((data.rows - 1 - y) * data.columns + x) * 4;
        for (const n of [0, 1, 2]) picture.data[to + n] = colours[low][n] + (colours[low + 1][n] - colours[low][n]) * part;
        picture.data[to + 3] = 255;
      }
    }
    pen.putImageData(picture, 0, 0);
    most.textContent = `${names.show(top)} ${names.value}`;
  };
  const outline = () => {
    let path = "";
    const { columns, rows, inside } = data;
    for (let x = 0; x < columns; x += 1) {
      for (let y = 0; y < rows; y += 1) {
        if (!inside(x, y)) continue;
        const up = rows - 1 - y;
        if (x === 0 || !inside(x - 1, y)) path += `M${x} ${up}v1`;
        if (x === columns - 1 || !inside(x + 1, y)) path += `M${x + 1} ${up}v1`;
        if (y === 0 || !inside(x, y - 1)) path += `M${x} ${up + 1}h1`;
        if (y === rows - 1 || !inside(x, y + 1)) path += `M${x} ${up}h1`;
      }
    }
    svg.setAttribute("viewBox", `0 0 ${columns} ${rows}`);
    patch(svg, [s("path", { class: "outline-under", d: path || "M0 0" }), s("path", { class: "outline", d: path || "M0 0" })]);
  };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paint);
  const show = fresh => {
    data = fresh;
    paint();
    outline();
    ticksAt(ys, "bottom", data.yTicks);
    ticksAt(xs, "left", data.xTicks);
    table.show(() => [[names.x, names.y, names.value, names.inside], data.cells()]);
    box.again();
  };
  return { node: drawing.node, show, about: drawing.about };
};

// Bars on a line of time, one row each. show({ from, to, now, ticks: [[x, label]], rows: [{ name, from, to, look, label }], head, cells })
export const gantt = (title, about, name) => {
  const rows = h("div", { class: "gantt" }), xs = h("div", { class: "xs" }), table = dataBehind(`${title}, data`);
  const drawing = figure(title, about, [rows, h("div", { class: "gantt-axis" }, h("div", {}), xs), h("p", { class: "axis-name under" }, name), table.node], "gantts");
  const show = data => {
    const across = x => Math.min(1, Math.max(0, (x - data.from) / (data.to - data.from || 1)));
    patch(rows, data.rows.map(row => h("div", { class: "gantt-row" },
      h("span", { class: "gantt-name" }, row.name, h("span", { class: "gantt-label" }, row.label)),
      s("svg", { viewBox: "0 0 1000 20", preserveAspectRatio: "none", "aria-hidden": "true" },
        data.ticks.map(([x]) => s("path", { class: "rule", d: `M${place(across(x))} 0V20` })),
        s("rect", { class: `part ${row.look}`, x: place(across(row.from)), y: 3, height: 14, width: Math.max(2, place(across(row.to)) - place(across(row.from))) }),
        s("path", { class: "mark", d: `M${place(across(data.now))} 0V20` })))));
    ticksAt(xs, "left", data.ticks.map(([x, label]) => [across(x), label]));
    table.show(() => [data.head, data.cells]);
  };
  return { node: drawing.node, show };
};

// A bar of parts, with what each is beside it: parts are [{ name, value, text }], of `whole`.
export const bar = (about, whole, parts) => {
  let from = 0;
  const shapes = parts.map((part, n) => {
    const width = whole > 0 ? Math.max(0, part.value / whole * 1000) : 0;
    const shape = s("rect", { class: `part p${n}`, x: from.toFixed(1), y: 0, height: 10, width: Math.min(1000 - Math.min(from, 1000), width).toFixed(1) });
    from += width;
    return shape;
  });
  return h("div", { class: "bar" },
    s("svg", { viewBox: "0 0 1000 10", preserveAspectRatio: "none", role: "img", "aria-label": `${about}: ${parts.map(part => `${part.name} ${part.text}`).join(", ")}` },
      s("rect", { class: "rest", x: 0, y: 0, width: 1000, height: 10 }), shapes),
    h("ul", { class: "legend" }, parts.map((part, n) => h("li", {},
      s("svg", { class: "key", viewBox: "0 0 22 10", "aria-hidden": "true" }, s("rect", { class: `part p${n}`, width: 22, height: 10 })),
      `${part.name} `, h("b", {}, part.text)))));
};
