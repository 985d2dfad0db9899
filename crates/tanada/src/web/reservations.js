// What is promised when, store by store, and was it kept?

import { find, get, hybrids, part } from "./api.js";
import { curves, gantt } from "./draw.js";
import { h } from "./dom.js";
import { absent, code, facts, note, section, state, table, trouble } from "./parts.js";
import { count, minute, moment, none, percent, rate, ticks, whole } from "./units.js";

const HOURS = { "6 hours": 6, "1 day": 24, "7 days": 168 };
const axis = { name: "of the device's time (%)", show: value => Number.isFinite(value) ? `${Math.round(value)} %` : none, ticks: top => ticks(Math.max(100, top), 4), least: 100 };

const xTicks = (from, to) => {
  const hours = (to - from) / 3600;
  const step = (hours <= 6 ? 1 : hours <= 24 ? 4 : 24) * 3600;
  // Whole hours of the reader's clock.
  const shift = new Date(from * 1000).getTimezoneOffset() * 60;
  const all = [];
  for (let at = Math.ceil((from - shift) / step) * step + shift; at <= to; at += step) all.push(at);
  return all;
};
const label = (at, hours) => hours > 24 ? moment(at).slice(5, 10) : minute(at);

const ofStore = (name, page) => {
  const bars = gantt("Reservations", "One bar each, from its begin to its end; the dotted line is now.", "time");
  const load = curves("Promised and headroom", "What the reservations take, and what must stay free beside them so that they are kept.",
    { x: { name: "time", show: at => label(at, page.hours), long: moment }, y: axis });
  load.node.classList.add("beneath-gantt");
  return { name, bars, load };
};

const drawCalendar = (drawing, calendar, hours) => {
  const from = calendar.now_unix_seconds, to = from + hours * 3600;
  const ticks = xTicks(from, to);
  const within = calendar.reservations.filter(it => it.until_unix_seconds > from && it.from_unix_seconds < to);
  drawing.bars.show({
    from, to, now: from, ticks: ticks.map(at => [at, label(at, hours)]),
    rows: within.map(it => ({
      name: `${it.id}${it.holder ? ` ${it.holder}` : ""}`, from: it.from_unix_seconds, to: it.until_unix_seconds, look: it.direction === "read" ? "p0" : "p1 hatched",
      label: `${it.direction} ${rate(it.rate_bytes_per_second)}${it.state === "held" ? ", held" : ""}`,
    })),
    head: ["Reservation", "Holder", "Direction", "Rate", "From", "Until", "Window kept", "State"],
    cells: within.map(it => [it.id, it.holder || none, it.direction, rate(it.rate_bytes_per_second), moment(it.from_unix_seconds), moment(it.until_unix_seconds), percent(it.probability_percent), it.state]),
  });
  const x = [], promised = [], headroom = [];
  for (const stretch of calendar.stretches) {
    for (const at of [Math.max(stretch.from, from), Math.min(stretch.until, to)]) {
      x.push(at);
      promised.push(stretch.promised_percent);
      headroom.push(stretch.promised_percent + stretch.headroom_percent);
    }
  }
  drawing.load.show({ x, from, to, xTicks: ticks, series: [{ name: "promised", y: promised }, { name: "with headroom", y: headroom }] });
  return within.length > 0;
};

export const reservations = app => {
  const page = { title: reservations.title, every: 10, live: false };
  const drawings = new Map();
  page.hours = 24;
  let all = [], calendars = new Map(), queued = [];
  page.load = async signal => {
    const [stores, volumes] = await Promise.all([get("/v1/stores", signal), hybrids(signal)]);
    all = stores;
    queued = volumes.filter(it => it.queue);
    const found = await Promise.all(all.map(it => find(`/v1/stores/${part(it.name)}/calendar?for_seconds=${page.hours * 3600}`, signal)));
    calendars = new Map(all.map((it, n) => [it.name, found[n]]));
  };
  const sessions = store => table(`Sessions at ${store.name}`, ["Session", "Holder", "Of", "State", "#Promised", "#Windows kept", "#Without demand", "#Missed: device", "#Missed: scheduler"],
    store.sessions.filter(it => it.reservation !== null && it.reservation !== undefined).map(it => [`${store.name}/${it.reservation}`, it.holder || none, it.direction ?? "both", state(String(it.phase), it.closed ? "idle" : "good"),
      rate(it.promised), whole(it.windows.kept), whole(it.windows.no_demand), whole(it.windows.capacity), whole(it.windows.scheduler)]), "No client uses a reservation here.");
  const sums = node => node.ended.reduce((sum, it) => sum + it.windows.capacity + it.windows.scheduler, 0);
  const store = it => {
    const node = it.node, calendar = calendars.get(it.name);
    if (!drawings.has(it.name)) drawings.set(it.name, ofStore(it.name, page));
    const drawing = drawings.get(it.name);
    const some = calendar ? drawCalendar(drawing, calendar, page.hours) : false;
    return section(it.name,
      facts([["Promised now", percent(node.calendar.now.promised_percent), `${rate(node.calendar.now.reads)} read, ${rate(node.calendar.now.writes)} written`],
        ["Headroom now", percent(node.calendar.now.headroom_percent), "must stay free for it"], ["Background", percent(node.calendar.floors_percent), "promised to scrub and resync"],
        ["Reservations", count(node.calendar.committed), node.calendar.held ? `and ${count(node.calendar.held)} held` : "committed"],
        ["Given up", node.shed, node.shed === "nothing" ? "the device does all" : "the device cannot do all"],
        ["Windows missed", count(sums(node) + it.sessions.reduce((sum, one) => sum + one.windows.capacity + one.windows.scheduler, 0)), "of sessions lately"]]),
      node.best_effort_only ? note(node.best_effort_only) : null,
      node.calendar.overcommitted.length ? h("p", { class: "note warning" }, h("b", {}, "More is promised than the device can do since it became slower,"), ` first from ${moment(node.calendar.overcommitted[0].from)} on.`) : null,
      some ? [drawing.bars.node, drawing.load.node] : note("Nothing is reserved here in that time. ", code(`tanada reservation create --store ${it.name} --read 50MB/s --for 2h --scope results/`), " reserves."),
      h("h3", {}, "Windows kept"), sessions(it));
  };
  page.show = () => {
    const title = h("h1", {}, "Reservations");
    if (page.error) return [title, trouble(page.error)];
    if (!page.loaded) return [title, note("Asking the daemon.")];
    if (!all.length && !queued.length) return [title, absent("This daemon has no store, and no hybrid with a queue, at which throughput could be reserved.", code("tanada serve --store"), " tries one; a ", code("[[store]]"), " in the configuration makes one.")];
    return [title,
      all.length ? h("p", { class: "choice" }, h("label", { for: "hours" }, "Show the next "), h("select", { id: "hours", onchange: event => { page.hours = Number(event.target.value); app.again(); } },
        Object.entries(HOURS).map(([name, value]) => h("option", { value, selected: value === page.hours }, name)))) : null,
      app.access.role ? null : note("Names of holders are shown with a token."),
      all.map(store),
      queued.length ? section("Queues of hybrids", table("Queues of hybrids", ["Volume", "#Promised now", "#Headroom", "#Reservations", "Given up"], queued.map(it => [it.name, percent(it.queue.calendar.now.promised_percent), percent(it.queue.calendar.now.headroom_percent), count(it.queue.calendar.committed), it.queue.shed]))) : null];
  };
  return page;
};
reservations.title = "Reservations";
