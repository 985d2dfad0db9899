"use strict";
// What a reader can do on top of what is drawn already: read values off, switch curves and scales, sort, copy.
(() => {
  const make = (tag, className, text) => {
    const element = document.createElement(tag);
    if (className) element.className = className;
    if (text !== undefined) element.textContent = text;
    return element;
  };
  // As the page's own labels: the last step the value reaches, four digits.
  const show = (unit, value) => {
    if (value === null || !Number.isFinite(value)) return "-";
    if (value === 0) return unit.zero;
    let step = unit.steps[0];
    for (const next of unit.steps) if (Math.abs(value) >= next[0]) step = next;
    return Number((value / step[1]).toPrecision(4)) + step[2];
  };
  const share = (domain, value) => {
    let at;
    if (!domain.log) at = (value - domain.low) / (domain.high - domain.low);
    else if (value <= domain.low) at = 0;
    else at = Math.log(value / domain.low) / Math.log(domain.high / domain.low);
    return Math.min(1, Math.max(0, at));
  };
  const value = (domain, at) => domain.log
    ? domain.low * Math.pow(domain.high / domain.low, at)
    : domain.low + (domain.high - domain.low) * at;
  const place = at => Math.round(at * 10000) / 10;
  // The index of the last number that is not above.
  const lastUpTo = (numbers, limit) => {
    let low = 0, high = numbers.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (numbers[middle] <= limit) low = middle + 1; else high = middle;
    }
    return low - 1;
  };

  // A box beside the pointer; `rows` are [colour or null, name, value].
  const readout = plot => {
    const box = make("div", "readout");
    box.hidden = true;
    box.setAttribute("role", "status");
    plot.append(box);
    return {
      hide: () => { box.hidden = true; },
      show: (at, head, rows) => {
        const table = make("table");
        for (const [colour, name, text] of rows) {
          const row = table.insertRow();
          const cell = row.insertCell();
          if (colour) {
            const swatch = make("i");
            swatch.style.background = colour;
            cell.append(swatch);
          }
          cell.append(name);
          const figure = row.insertCell();
          figure.className = "n";
          figure.textContent = text;
        }
        box.replaceChildren(make("b", "", head), table);
        box.hidden = false;
        box.style.left = at < 0.5 ? `calc(${at * 100}% + 12px)` : "auto";
        box.style.right = at < 0.5 ? "auto" : `calc(${(1 - at) * 100}% + 12px)`;
      },
    };
  };
  const follow = (plot, name, moved, left, key) => {
    plot.tabIndex = 0;
    plot.setAttribute("role", "group");
    plot.setAttribute("aria-label", `${name}: arrow keys read values`);
    const at = event => {
      const box = plot.getBoundingClientRect();
      const within = n => Math.min(1, Math.max(0, n));
      moved(within((event.clientX - box.left) / box.width), within(1 - (event.clientY - box.top) / box.height));
    };
    plot.addEventListener("pointermove", at);
    plot.addEventListener("pointerdown", at);
    plot.addEventListener("pointerleave", left);
    plot.addEventListener("blur", left);
    plot.addEventListener("keydown", event => {
      if (event.key === "Escape") left();
      else if (key(event.key)) event.preventDefault();
    });
  };
  const place_ticks = (box, side, ticks) => box.replaceChildren(...ticks.map(([at, label], n) => {
    const tick = make("span", n % 2 ? "odd" : "", label);
    tick.style[side] = `${at * 100}%`;
    return tick;
  }));

  const chart = figure => {
    const data = JSON.parse(figure.querySelector("script").textContent);
    const plot = figure.querySelector(".plot"), svg = plot.querySelector("svg");
    const xs = figure.querySelector(".xs"), ys = figure.querySelector(".ys");
    const lines = [...svg.querySelectorAll(".line:not(.dots)")];
    const dotted = n => svg.querySelector(`.line.dots[data-n="${n}"]`);
    const shown = data.series.map(() => true);
    const domain = axis => axis[axis.shown];

    const draw = () => {
      const x = domain(data.x), y = domain(data.y);
      data.series.forEach((series, n) => {
        let path = "", dots = "", down = false;
        series.x.forEach((px, i) => {
          const py = series.y[i];
          if (py === null) { down = false; return; }
          const at = place(share(x, px)), up = place(1 - share(y, py));
          path += !down ? `M${at} ${up}` : series.steps ? `H${at}V${up}` : `L${at} ${up}`;
          dots += `M${at} ${up}h0`;
          down = true;
        });
        lines[n].setAttribute("d", path);
        dotted(n)?.setAttribute("d", dots);
      });
      svg.querySelector(".grid").setAttribute("d",
        x.ticks.map(([at]) => `M${place(at)} 0V1000`).join("") +
        y.ticks.map(([at]) => `M0 ${place(1 - at)}H1000`).join(""));
      place_ticks(xs, "left", x.ticks);
      place_ticks(ys, "bottom", y.ticks);
      const marks = [...svg.querySelectorAll(".mark")];
      plot.querySelectorAll("[data-mark]").forEach((label, n) => {
        const at = share(x, Number(label.dataset.mark));
        label.style.left = `${at * 100}%`;
        label.classList.toggle("left", at > 0.6);
        marks[n].setAttribute("d", `M${place(at)} 0V1000`);
      });
    };

    const tools = make("div", "tools");
    for (const [letter, axis] of [["x", data.x], ["y", data.y]]) {
      if (!axis.log) continue;
      const group = make("span", "switch");
      group.append(make("span", "", letter));
      const buttons = ["linear", "log"].map(name => {
        const button = make("button", "", name);
        button.type = "button";
        button.setAttribute("aria-label", `${letter} axis ${name === "log" ? "logarithmic" : name}`);
        button.addEventListener("click", () => { axis.shown = name; press(); draw(); hide(); });
        return button;
      });
      const press = () => buttons.forEach(button =>
        button.setAttribute("aria-pressed", String(button.textContent === axis.shown)));
      press();
      group.append(...buttons);
      tools.append(group);
    }
    if (tools.childElementCount) figure.querySelector(".bar").append(tools);

    figure.querySelectorAll(".legend li").forEach((item, n) => {
      const button = make("button");
      button.type = "button";
      button.append(...item.childNodes);
      button.setAttribute("aria-pressed", "true");
      button.addEventListener("click", () => {
        shown[n] = !shown[n];
        button.setAttribute("aria-pressed", String(shown[n]));
        lines[n].classList.toggle("off", !shown[n]);
        dotted(n)?.classList.toggle("off", !shown[n]);
        hide();
      });
      item.append(button);
    });

    const cursor = make("div", "cursor");
    cursor.hidden = true;
    const dots = data.series.map((series, n) => {
      const dot = make("div", "dot");
      dot.hidden = true;
      dot.style.background = getComputedStyle(lines[n]).stroke;
      return dot;
    });
    plot.append(cursor, ...dots);
    const box = readout(plot);
    let here = null;
    const hide = () => {
      here = null;
      cursor.hidden = true;
      dots.forEach(dot => { dot.hidden = true; });
      box.hide();
    };
    // The cursor stands on a measured point: the nearest of any curve that is shown.
    const read = wanted => {
      const x = domain(data.x), y = domain(data.y);
      let best = null;
      data.series.forEach((series, n) => {
        if (!shown[n]) return;
        const at = lastUpTo(series.x, wanted);
        for (const i of [at, at + 1]) {
          if (i < 0 || i >= series.x.length) continue;
          const away = Math.abs(share(x, series.x[i]) - share(x, wanted));
          if (best === null || away < best.away) best = { away, x: series.x[i] };
        }
      });
      if (best === null) { hide(); return; }
      here = best.x;
      const rows = [];
      data.series.forEach((series, n) => {
        dots[n].hidden = true;
        if (!shown[n] || !series.x.length) return;
        const i = lastUpTo(series.x, here);
        let known = i < 0 ? null : series.y[i];
        // Between two points of a line, what the line says there.
        if (known !== null && !series.steps && series.x[i] < here) {
          const next = series.y[i + 1];
          known = next === undefined || next === null ? null
            : known + (next - known) * (here - series.x[i]) / (series.x[i + 1] - series.x[i]);
        }
        rows.push([getComputedStyle(lines[n]).stroke, series.name, show(data.y.unit, known)]);
        if (known === null) return;
        dots[n].hidden = false;
        dots[n].style.left = `${share(x, here) * 100}%`;
        dots[n].style.bottom = `${share(y, known) * 100}%`;
      });
      const at = share(x, here);
      cursor.hidden = false;
      cursor.style.left = `${at * 100}%`;
      box.show(at, show(data.x.unit, here), rows);
    };
    follow(plot, figure.querySelector("h3").textContent,
      at => read(value(domain(data.x), at)), hide,
      key => {
        const all = [...new Set(data.series.flatMap((series, n) => shown[n] ? series.x : []))].sort((a, b) => a - b);
        const at = here === null ? -1 : all.indexOf(here);
        const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: all.length - 1 }[key];
        if (to === undefined || !all.length) return false;
        read(all[Math.min(all.length - 1, Math.max(0, to))]);
        return true;
      });
  };

  const heat = figure => {
    const data = JSON.parse(figure.querySelector("script").textContent);
    const plot = figure.querySelector(".plot");
    const numbers = text => text.split(",").map(Number);
    const cells = numbers(data.cells);
    const shares = data.resident && numbers(data.resident.cells);
    const frame = make("div", "cell");
    frame.hidden = true;
    plot.append(frame);
    const box = readout(plot);
    let here = null;
    const hide = () => { here = null; frame.hidden = true; box.hide(); };
    const ends = (axis, n, of) => [n, n + 1].map(i => show(axis.unit, axis.from + (axis.to - axis.from) * i / of));
    const read = (column, row) => {
      here = [column, row];
      frame.hidden = false;
      frame.style.left = `${100 * column / data.columns}%`;
      frame.style.bottom = `${100 * row / data.rows}%`;
      frame.style.width = `${100 / data.columns}%`;
      frame.style.height = `${100 / data.rows}%`;
      const [x, y] = [ends(data.x, column, data.columns), ends(data.y, row, data.rows)];
      const rows = [
        [null, data.y.name, `${y[0]} .. ${y[1]}`],
        [null, data.counted, show(data.number, cells[column * data.rows + row])],
      ];
      if (shares && column < data.resident.columns && row < data.resident.rows) {
        rows.push([null, data.resident.name, `${shares[column * data.resident.rows + row]} %`]);
      }
      box.show((column + 0.5) / data.columns, `${x[0]} .. ${x[1]}`, rows);
    };
    const within = (n, of) => Math.min(of - 1, Math.max(0, n));
    follow(plot, figure.querySelector("h3").textContent,
      (x, y) => read(within(Math.floor(x * data.columns), data.columns), within(Math.floor(y * data.rows), data.rows)),
      hide,
      key => {
        const step = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[key];
        if (!step) return false;
        const [column, row] = here || [0, 0];
        read(within(column + step[0], data.columns), within(row + step[1], data.rows));
        return true;
      });
  };

  const sortable = table => {
    const heads = [...table.tHead.rows[0].cells];
    const body = table.tBodies[0];
    heads.forEach((head, column) => {
      const button = make("button", "", head.textContent);
      button.type = "button";
      head.replaceChildren(button);
      button.addEventListener("click", () => {
        const was = head.getAttribute("aria-sort");
        // Numbers are asked for the greatest first, words for the first.
        const numeric = head.classList.contains("n");
        const up = was ? was === "descending" : !numeric;
        heads.forEach(other => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", up ? "ascending" : "descending");
        const key = row => {
          const cell = row.cells[column];
          return numeric ? (cell.dataset.v === undefined ? NaN : Number(cell.dataset.v)) : cell.textContent;
        };
        const order = (a, b) => {
          const [x, y] = [key(a), key(b)];
          if (!numeric) return (up ? 1 : -1) * x.localeCompare(y, undefined, { numeric: true });
          // What is not known comes last, whichever way.
          if (Number.isNaN(x) || Number.isNaN(y)) return Number.isNaN(x) - Number.isNaN(y);
          return up ? x - y : y - x;
        };
        body.append(...[...body.rows].sort(order));
      });
    });
  };

  const code = block => {
    const button = make("button", "copy", "copy");
    button.type = "button";
    button.addEventListener("click", event => {
      event.preventDefault();
      const text = block.querySelector("code");
      const said = word => { button.textContent = word; setTimeout(() => { button.textContent = "copy"; }, 1500); };
      // A page from a file may not write to the clipboard: then it selects, and the reader copies.
      const select = () => { getSelection().selectAllChildren(text); said("selected"); };
      if (navigator.clipboard) navigator.clipboard.writeText(text.textContent).then(() => said("copied"), select);
      else select();
    });
    block.querySelector("summary").append(button);
  };

  document.querySelectorAll("figure.chart").forEach(chart);
  document.querySelectorAll("figure.heat").forEach(heat);
  document.querySelectorAll("table.sortable").forEach(sortable);
  document.querySelectorAll("details.code").forEach(code);
})();
