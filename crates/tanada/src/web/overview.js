// Is all well, and how busy is it? Verdict, rates, latency, hits, long work; volumes and stores in a line each.

import { act, cancel } from "./actions.js";
import { find, get } from "./api.js";
import { history } from "./draw.js";
import { h, s } from "./dom.js";
import { ratesBetween } from "./rates.js";
import { code, facts, kindOf, mark, note, section, state, table, trouble } from "./parts.js";
import { bytes, count, latency, none, percent, perSecond, rate, share, span, ticks, whole } from "./units.js";

const SECONDS = 300;

// Three digits, without zeroes that say nothing.
const scaledBy = (value, unit) => Number.isFinite(value) ? String(Number((value / unit).toPrecision(3))) : none;

const perSecondAxis = { name: "requests per second (1/s)", show: count, ticks: top => ticks(top, 4), least: 4 };
const rateAxis = { name: "throughput (MB/s)", show: value => scaledBy(value, 1e6), ticks: top => ticks(top, 4), least: 1e6 };
const latencyAxis = { name: "latency, 99th percentile (ms)", show: value => scaledBy(value, 1e6), ticks: top => ticks(top, 4), least: 1e5 };
const shareAxis = { name: "reads from the fast device (% of bytes)", show: value => Number.isFinite(value) ? `${Math.round(value)} %` : none, ticks: () => [0, 25, 50, 75, 100] };

// A small bar in a cell: how much of the whole; the figure stands beside it.
export const part = (value, whole) => s("svg", { class: "tiny", viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" },
  s("rect", { class: "rest", width: 100, height: 10 }),
  s("rect", { class: "part p0", width: whole > 0 ? Math.min(100, value / whole * 100).toFixed(1) : 0, height: 10 }));

const WORDS = {
  HEALTH_OK: ["good", "All is well."],
  HEALTH_WARN: ["warn", "It works, and something wants attention."],
  HEALTH_ERR: ["bad", "Something does not work."],
};

const check = it => {
  const kind = it.severity === "error" ? "bad" : "warn";
  return h("li", { class: `check ${kind}` }, mark(kind),
    h("div", {}, h("p", {}, h("b", {}, it.code), it.about ? [" ", it.about] : null, it.muted ? h("span", { class: "muted" }, " muted") : null),
      h("p", {}, it.message), it.what_to_do ? h("p", { class: "todo" }, it.what_to_do) : null));
};

const verdict = sample => {
  const health = sample.health;
  const [kind, words] = WORDS[health?.status] ?? ["warn", "The daemon does not say how it is."];
  const checks = health?.checks ?? [];
  return h("section", { class: `verdict ${kind}`, "aria-label": "Verdict" },
    h("h2", {}, mark(kind), health?.status ?? "Health", h("span", { class: "words" }, words)),
    checks.length ? h("ul", { class: "checks" }, checks.map(check)) : null);
};

const lines = (sample, disks, rates) => {
  const hybrids = worstFirst(sample.volumes).slice(0, ROWS_MAX).map(it => [
    h("a", { href: `#/volumes/hybrid/${encodeURIComponent(it.name)}` }, it.name), it.part_of ? `hybrid of ${it.part_of}` : "hybrid", state(it.health), bytes(it.size_bytes),
    count(it.rates?.reads_per_second), rate(it.rates?.read_bytes_per_second), count(it.rates?.writes_per_second), rate(it.rates?.write_bytes_per_second),
    latency(it.rates?.latency_ns_p99), share(it.hit_share), bytes(it.dirty_bytes)]);
  const virtual = worstFirst(disks).slice(0, ROWS_MAX).map(it => [
    h("a", { href: `#/volumes/virtual/${encodeURIComponent(it.name)}` }, it.name), "virtual", state(it.health), bytes(it.size_bytes),
    count(rates.get(it.name)?.reads_per_second), rate(rates.get(it.name)?.read_bytes_per_second), count(rates.get(it.name)?.writes_per_second), rate(rates.get(it.name)?.write_bytes_per_second),
    latency(rates.get(it.name)?.latency_ns_p99), none, none]);
  return [...hybrids, ...virtual];
};

// Those that want attention first; a page of them is enough here.
const ROWS_MAX = 60;
const worstFirst = all => [...all].sort((a, b) => (kindOf(a.health) === "good") - (kindOf(b.health) === "good"));

// How far long work is, in its own unit.
const far = job => job.unit === "bytes" ? `${bytes(job.done)} of ${bytes(job.total)}` : job.unit === "percent" ? percent(job.done) : `${count(job.done)} of ${count(job.total)} ${job.unit}`;
const jobsNow = (app, jobs) => jobs.length ? section("Jobs", table("Jobs", ["Job", "What", "Done", "", "Time left", "Says", ""], jobs.map(it => [
  whole(it.id), `${it.kind} of ${it.name}`, part(it.done, it.total), it.total ? far(it) : "begun", it.left_seconds === undefined ? none : span(it.left_seconds),
  it.words, it.cancellable ? act(app, "Cancel", cancel(it)) : null]))) : null;

const sumOf = (sample, key) => sample.stores.reduce((sum, it) => sum + (it[key] ?? NaN), 0);

export const overview = app => {
  const ofClients = [
    history("Throughput", rateAxis, ["read", "write"], it => [it.total?.read_bytes_per_second, it.total?.write_bytes_per_second], SECONDS),
    history("Requests", perSecondAxis, ["reads", "writes"], it => [it.total?.reads_per_second, it.total?.writes_per_second], SECONDS),
    history("Latency", latencyAxis, ["p99 of reads and writes"], it => [it.total?.latency_ns_p99], SECONDS),
  ];
  const hits = history("Hits", shareAxis, ["hits"], it => [it.hit_share === null || it.hit_share === undefined ? null : it.hit_share * 100], SECONDS);
  const ofStores = history("Throughput of stores", rateAxis, ["read", "write"], it => [sumOf(it, "read_bytes_per_second"), sumOf(it, "write_bytes_per_second")], SECONDS);
  const page = { title: overview.title, every: 5 };
  let disks = [], jobs = [], rates = new Map();
  page.load = async signal => {
    const before = new Map(disks.map(it => [it.name, it.figures]));
    await app.first;
    disks = app.sample?.cluster ? (await find("/v1/cluster/volumes", signal)) ?? [] : [];
    jobs = (await get("/v1/jobs", signal)).filter(it => it.state === "running");
    rates = new Map(disks.map(it => [it.name, ratesBetween(before.get(it.name), it.figures)]));
  };
  page.show = () => {
    const sample = app.sample;
    const title = h("h1", {}, "Overview");
    if (!sample) return [title, page.error ? trouble(page.error) : note("Waiting for the first second of figures.")];
    // Volumes of the cluster are opened and closed as their clients come and go: what is drawn stays. Stores alone have no clients' volumes.
    const hasClients = sample.cluster || sample.volumes.some(it => !it.part_of) || !sample.stores.length;
    const shown = [...(hasClients ? ofClients : []), ...(sample.volumes.length ? [hits] : []), ...(sample.stores.length ? [ofStores] : [])];
    shown.forEach(it => it.show(app.samples));
    const total = sample.total ?? {};
    return [title, page.error ? trouble(page.error) : null, verdict(sample),
      facts([
        ...(hasClients ? [
          ["Read", rate(total.read_bytes_per_second), perSecond(total.reads_per_second)],
          ["Write", rate(total.write_bytes_per_second), perSecond(total.writes_per_second)],
          ["Latency p99", latency(total.latency_ns_p99), `p50 ${latency(total.latency_ns_p50)}`],
          ["Hits", share(sample.hit_share), sample.volumes.length ? "of bytes read from hybrids" : "no hybrid is here"],
          ["In flight", (total.queue_mean ?? 0).toFixed(1), "requests, mean"],
        ] : [["Read from stores", rate(sumOf(sample, "read_bytes_per_second"))], ["Written to stores", rate(sumOf(sample, "write_bytes_per_second"))]]),
        ["Clients", count(sample.clients), "NBD"],
        ["Up", span(sample.uptime_seconds), `version ${sample.version}`],
      ]),
      sample.silent?.length ? h("div", { class: "card absent bad", role: "alert" }, mark("bad"), h("p", {}, h("b", {}, "No answer from the threads of "), sample.silent.join(", "), ". Their figures are missing here; the daemon's log says more.")) : null,
      jobsNow(app, jobs),
      h("div", { class: "grid" }, shown.map(it => it.node)),
      section("Volumes", table("Volumes", ["Volume", "Kind", "Health", "#Size", "#Reads/s", "#Read", "#Writes/s", "#Written", "#p99", "#Hits", "#Dirty"],
        lines(sample, disks, rates), ["There is no volume. A ", code("[[hybrid]]"), " in the configuration makes one, and in a cluster ", code("tanada volume create NAME --size 10GiB"), "."]),
        Math.max(sample.volumes.length, disks.length) > ROWS_MAX ? note("Those that want attention come first. ", h("a", { href: "#/volumes" }, "All of them")) : null),
      sample.stores.length ? section("Stores", table("Stores", ["Store", "#Free", "Used", "#Read", "#Written", "#Promised", "#At the device", "#Bad pages"],
        sample.stores.map(it => [h("a", { href: "#/stores" }, it.name), bytes(it.free_bytes),
          [part(it.total_bytes - it.free_bytes, it.total_bytes), " ", percent(it.total_bytes ? (1 - it.free_bytes / it.total_bytes) * 100 : NaN)],
          rate(it.read_bytes_per_second), rate(it.write_bytes_per_second), percent(it.promised_percent), count(it.in_flight), count(it.bad_pages)]))) : null,
    ];
  };
  return page;
};
overview.title = "Overview";
