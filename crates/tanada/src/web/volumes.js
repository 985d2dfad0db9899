// The volumes, hybrids and virtual disks, and one of them in full.

import { act, disconnect, setting, SETTINGS, snapshot } from "./actions.js";
import { find, get, hybrids, part } from "./api.js";
import { bar, heat } from "./draw.js";
import { h } from "./dom.js";
import { code, facts, note, pairs, section, state, table, trouble } from "./parts.js";
import { bytes, clock, count, exact, latency, many, minute, moment, none, percent, rate, share, span } from "./units.js";

const SECONDS = 3600;
// The API answers so many at most, the oldest first.
const LIMIT = 1000;
const COLUMNS = 180, ROWS = 128;

const latest = (of, op) => {
  const found = of?.operations?.filter(it => it.op === op) ?? [];
  return found.reduce((sum, it) => sum + it.requests, 0);
};

const settingsOf = volume => {
  const it = volume.settings, caps = volume.caps ?? {};
  return {
    write: it.write, admission: it.admission, dirty_low: it.dirty_low, dirty_high: it.dirty_high, energy: it.energy,
    age_limit: it.age_limit_seconds === null || it.age_limit_seconds === undefined ? null : `${it.age_limit_seconds}s`,
    sequential_bypass: it.sequential_bypass_bytes ? exact(it.sequential_bypass_bytes) : "off",
    flash_writes_per_day: it.flash_writes_per_day_bytes ? exact(it.flash_writes_per_day_bytes) : "off",
    max_read: caps.max_read ? `${caps.max_read / 1e6}MB/s` : "off", max_write: caps.max_write ? `${caps.max_write / 1e6}MB/s` : "off",
    max_read_iops: caps.max_read_iops ?? "off", max_write_iops: caps.max_write_iops ?? "off",
  };
};
const FIXED = it => [["mode", it.mode], ["policy", it.policy], ["block", bytes(it.block_bytes)], ["fast_size", it.fast_size_bytes ? bytes(it.fast_size_bytes) : "all"],
  ...(it.tier ? [["tier.policy", it.tier.policy], ["tier.period", span(it.tier.period_seconds)], ["tier.region", bytes(it.tier.region_bytes)], ["tier.extent", bytes(it.tier.extent_bytes)],
    ["tier.pinned", it.tier.pinned.join(", ") || none], ["tier.barred", it.tier.barred.join(", ") || none], ["tier.windows", it.tier.windows.join(", ") || "always"], ["tier.auto", String(it.tier.auto)]] : [])];

// Many regions or intervals become as many as can be seen: sums of requests, and "in" if any part of it is.
const gridOf = map => {
  const intervals = map.intervals;
  const across = Math.max(1, Math.ceil(intervals.length / COLUMNS)), up = Math.max(1, Math.ceil(map.regions / ROWS));
  const columns = Math.ceil(intervals.length / across), rows = Math.ceil(map.regions / up);
  const values = new Float64Array(columns * rows), inside = new Uint8Array(columns * rows);
  intervals.forEach((interval, n) => {
    const x = Math.floor(n / across);
    const at = region => x * rows + Math.floor((region - 1) / up);
    for (const it of interval.counts) values[at(it.region)] += it.reads + it.writes;
    for (const region of interval.up) inside[at(region)] = 1;
  });
  return { columns, rows, across, up, values, inside };
};

const hybrid = (app, name) => {
  const map = heat("Where the requests go", "Requests by region and interval, as the tier counted them; logarithmic. What is outlined lived on the fast device at the end of its interval.",
    { x: "time of day", y: "address", value: "requests", inside: "on the fast device", show: count });
  let volume = null, heats = null, drawn = null, moves = null, listeners = [], exports = [];
  const load = async (signal, hybrids) => {
    const path = `/v1/volumes/${part(name)}`;
    volume = hybrids.find(it => it.name === name);
    if (!volume) return;
    // Without its fast device it has the settings of a tier, and no tier.
    const tier = volume.tier && volume.settings.tier;
    const seconds = Math.min(SECONDS, Math.floor((tier?.period_seconds ?? 1) * LIMIT * 0.95));
    const tiered = what => tier ? find(`${path}/${what}&limit=${LIMIT}`, signal) : null;
    [heats, moves, { nbd: listeners, exports }] = await Promise.all([
      tiered(`heat?last_seconds=${seconds}`), tiered(`moves?last_seconds=${SECONDS}`), get("/v1/status", signal)]);
    for (let pages = 0; moves?.next && pages < 9; pages += 1) moves = await tiered(`moves?after=${moves.next}`) ?? moves;
  };
  const drawHeat = () => {
    if (drawn === heats) return map.node;
    drawn = heats;
    const grid = gridOf(heats);
    const { columns, rows, across, up } = grid;
    const start = n => heats.intervals[Math.min(heats.intervals.length - 1, n * across)].start_unix_seconds;
    const address = n => Math.min(n * up, heats.regions) * heats.region_bytes;
    const cells = () => {
      const all = [];
      for (let x = columns - 1; x >= 0; x -= 1) {
        for (let y = 0; y < rows; y += 1) {
          const at = x * rows + y;
          if (grid.values[at] || grid.inside[at]) all.push([moment(start(x)), bytes(address(y)), count(grid.values[at]), grid.inside[at] ? "yes" : "no"]);
        }
      }
      return all.slice(0, 400);
    };
    const every = Math.max(1, Math.ceil(columns / 6));
    const label = start(columns - 1) - start(0) < 900 ? clock : minute;
    map.show({
      columns, rows, cells,
      value: (x, y) => grid.values[x * rows + y], inside: (x, y) => grid.inside[x * rows + y] === 1,
      xOf: x => moment(start(x)), yOf: y => `${bytes(address(y))} to ${bytes(address(y + 1))}`,
      xTicks: Array.from({ length: Math.ceil(columns / every) }, (_, n) => [(n * every) / columns, label(start(n * every))]),
      yTicks: [0, 0.25, 0.5, 0.75, 1].map(at => [at, bytes(at * heats.regions * heats.region_bytes)]),
    });
    return map.node;
  };
  const fastDevice = () => {
    const cache = volume.cache, tier = volume.tier;
    if (!volume.fast) return note("Its fast device is detached: ", code(`tanada volume attach ${name}`), " gives it one again.");
    const held = tier?.held_bytes ?? 0, clean = Math.max(0, cache.cached_bytes - held);
    return [bar("Room on the fast device", cache.cache_bytes, [
      { name: "tier", value: held, text: bytes(held) }, { name: "block cache", value: clean, text: bytes(clean) },
      { name: "free", value: Math.max(0, cache.cache_bytes - held - clean), text: bytes(Math.max(0, cache.cache_bytes - held - clean)) }]),
    facts([["Room", bytes(cache.cache_bytes), `on ${volume.fast}`], ["Dirty", bytes(cache.dirty_bytes), cache.dirty_bytes ? `oldest ${span(cache.dirty_age_ns / 1e9)}` : "only the fast device has it"],
      tier ? ["Regions", `${count(tier.regions_up)} of ${count(tier.regions)}`, `of ${bytes(tier.region_bytes)} each`] : null,
      tier ? ["Moves under way", count(tier.moves_under_way), `up ${count(tier.moves_up)}, down ${count(tier.moves_down)}, failed ${count(tier.moves_failed)}`] : null,
      ["Evicted", `${count(cache.evicted)}`, "pages"], ["Bad checksums", count(cache.bad_checksums), "pages"]].filter(Boolean))];
  };
  const movesTable = () => table("Moves", ["When", "#Region", "Address", "To", "Why", "End", "#Took", "#Copied"],
    [...moves.moves].reverse().slice(0, 50).map(it => [moment(it.at_unix_seconds), it.region, bytes((it.region - 1) * it.region_bytes), it.up ? "▲ fast" : "▼ slow",
      it.why, state(it.end, it.end === "done" ? "good" : it.end === "failed" ? "bad" : "idle"), it.took_seconds === undefined ? none : span(it.took_seconds), bytes(it.copied_bytes)]),
    "No region has moved in the last hour.");
  const clients = () => {
    const mine = exports.filter(it => it.device === name).map(it => it.name);
    const rows = listeners.flatMap(at => at.clients.filter(it => mine.includes(it.export)).map(it => [
      `${at.address}#${it.id}`, it.peer, it.export, it.tls ? "yes" : "no", span(it.connected_seconds), count(it.in_flight),
      act(app, "Disconnect", disconnect(at.address, it)) ?? none]));
    return table("Clients", ["Client", "From", "Export", "TLS", "#Connected", "#In flight", "Action"], rows, "No NBD client is connected.");
  };
  const settings = () => {
    const now = settingsOf(volume);
    return pairs([...SETTINGS.map(key => [code(key), now[key] === null || now[key] === undefined ? none : String(now[key]), act(app, `Set ${key}`, setting(name, key, now[key]))]),
      ...FIXED(volume.settings).map(([key, value]) => [code(key), value])]);
  };
  const show = () => {
    if (!volume) return [note("There is no such volume.")];
    const live = app.sample?.volumes.find(it => it.name === name);
    const rates = live?.rates ?? {};
    return [h("h2", { class: "named" }, name, " ", state(volume.health)), volume.why ? note(volume.why) : null,
      facts([["Size", bytes(volume.size_bytes), `${volume.slow} cached by ${volume.fast ?? "nothing"}`],
        ["Read", rate(rates.read_bytes_per_second), `${count(rates.reads_per_second)}/s`], ["Write", rate(rates.write_bytes_per_second), `${count(rates.writes_per_second)}/s`],
        ["Latency p99", latency(rates.latency_ns_p99), `p50 ${latency(rates.latency_ns_p50)}`], ["Hits", share(live?.hit_share), "of bytes read"],
        ["Asked in all", count(latest(volume.figures, "read")), `reads; ${count(latest(volume.figures, "write"))} writes`]]),
      heats?.intervals?.length ? drawHeat() : section("Where the requests go", note(heats ? "No interval has ended yet." : !volume.fast ? "Without its fast device no requests are counted." : ["It has no tier, which counts requests by region: ", code(`tanada volume set ${name} mode=both`), " gives it one."])),
      section("On the fast device", fastDevice()),
      section("Moves", moves ? h("div", { class: "tall" }, movesTable()) : note("Without a tier nothing moves.")),
      section("Clients", clients()),
      section("Settings", app.operates ? null : note("With a token of an operator they can be set here; on a terminal ", code(`tanada volume set ${name} KEY=VALUE`), " does it."), settings())];
  };
  return { load, show };
};

const virtual = (app, name) => {
  let disk = null, listeners = [];
  return {
    load: async (signal, hybrids, disks) => {
      disk = disks.find(it => it.name === name);
      ({ nbd: listeners } = await get("/v1/status", signal));
    },
    show: () => disk ? [h("h2", { class: "named" }, name, " ", state(disk.health)), disk.why ? note(disk.why) : null,
      facts([["Size", bytes(disk.size_bytes)], ["Copies", disk.copies, `a write reaches at least ${disk.min_copies}`], ["Fewest in sync", `${disk.weakest} of ${disk.copies}`, "copies of any extent"],
        ["Open on", disk.open_on ?? "no node", `${many(disk.clients, "client")} here`], ["Priority", disk.priority, disk.holder ? `reservations of ${disk.holder}` : "no reservation"], ["Generation", count(disk.generation), `epoch ${disk.epoch}`]]),
      section("Snapshots", act(app, "Take a snapshot", snapshot(name)), table("Snapshots", ["Snapshot", "#Size", "Clones"],
        disk.snapshots.map(it => [it.name, bytes(it.size_bytes), it.clones.join(", ") || none]), ["It has none. ", code(`tanada snapshot create ${name}@NAME`), " takes one."]),
      disk.from ? note("It goes on from ", code(disk.from), ".") : null),
      section("Copies", disk.out.length ? table("Stores that miss writes", ["Store", "#Since generation"], disk.out.map(it => [it.name || `#${it.store}`, it.since_generation])) : note("All of its stores have every write."),
        note(h("a", { href: "#/replication" }, "Replication"), " shows all volumes by store.")),
      section("Clients", table("Clients", ["Client", "From", "TLS", "#Connected", "#In flight", "Action"],
        listeners.flatMap(at => at.clients.filter(it => it.export === name).map(it => [`${at.address}#${it.id}`, it.peer, it.tls ? "yes" : "no", span(it.connected_seconds), count(it.in_flight),
          act(app, "Disconnect", disconnect(at.address, it)) ?? none])), ["No NBD client is connected here. It is at ", code(disk.nbd[0] ?? "no address of this node"), "."]))]
      : [note("There is no such volume.")],
  };
};

export const volumes = (app, rest) => {
  const page = { title: volumes.title, every: 5 };
  let all = [], disks = [], one = null, chosen = "";
  const choose = ([kind, name]) => {
    chosen = kind && name ? `${kind}/${name}` : "";
    one = kind === "hybrid" && name ? hybrid(app, name) : kind === "virtual" && name ? virtual(app, name) : null;
    page.loaded = false;
  };
  page.follow = choose;
  page.load = async signal => {
    const [own, virtuals] = await Promise.all([hybrids(signal), find("/v1/cluster/volumes", signal)]);
    [all, disks] = [own, virtuals ?? []];
    if (!chosen && all.length + disks.length > 0) choose(all.length ? ["hybrid", all[0].name] : ["virtual", disks[0].name]);
    await one?.load(signal, all, disks);
  };
  const row = (kind, it, more) => [h("a", { href: `#/volumes/${kind}/${part(it.name)}`, "aria-current": chosen === `${kind}/${it.name}` ? "true" : null }, it.name), kind, state(it.health), bytes(it.size_bytes), more];
  page.show = () => {
    const rows = [...all.map(it => row("hybrid", it, `${it.settings.mode}, write ${it.settings.write}; ${percent(it.cache.cache_bytes ? it.cache.cached_bytes / it.cache.cache_bytes * 100 : NaN)} of the cache in use`)),
      ...disks.map(it => row("virtual", it, `${it.copies === 1 ? "1 copy" : `${it.copies} copies`}, ${many(it.snapshots.length, "snapshot")}${it.open_on ? `, open on ${it.open_on}` : ""}`))];
    return [h("h1", {}, "Volumes"), page.error ? trouble(page.error) : null,
      !page.loaded && !rows.length ? note("Asking the daemon.") : section("All", table("All volumes", ["Volume", "Kind", "Health", "#Size", "What"], rows,
        ["There is no volume. A ", code("[[hybrid]]"), " in the configuration makes a hybrid; in a cluster ", code("tanada volume create NAME --size 10GiB"), " makes a virtual disk."])),
      ...(one && page.loaded ? one.show() : [])];
  };
  choose(rest);
  return page;
};
volumes.title = "Volumes";
