// What would another size of the cache do? As a shadow of each hybrid found.

import { act, watch } from "./actions.js";
import { find, hybrids, part } from "./api.js";
import { curves } from "./draw.js";
import { h } from "./dom.js";
import { absent, code, facts, note, section, table, trouble } from "./parts.js";
import { bytes, count, none, share, span, ticks } from "./units.js";

const size = { name: "size of the cache", show: bytes };
const drawings = () => ({
  hits: curves("Hits by size", "Pages found in the cache, of those asked for: the policy at sizes around the present one, and LRU over all sizes.",
    { x: size, y: { name: "hits (% of pages)", show: value => Number.isFinite(value) ? `${Math.round(value)} %` : none, ticks: () => [0, 25, 50, 75, 100] } }),
  flash: curves("Flash writes by size", "Fills and writes of the fast device in a day.",
    { x: size, y: { name: "flash writes (GiB a day)", show: value => Number.isFinite(value) ? count(value / 2 ** 30) : none, ticks: top => ticks(top / 2 ** 30, 4).map(at => at * 2 ** 30), least: 2 ** 30 } }),
});

const draw = (drawing, found) => {
  const most = Math.max(...found.sizes.map(it => it.size_bytes), ...found.lru.map(it => it.size_bytes), 1);
  const xTicks = ticks(most, 4, 1024).filter(at => at <= most);
  const marks = [{ x: found.present_bytes, name: `present: ${bytes(found.present_bytes)}` }];
  if (found.advised_bytes) marks.push({ x: found.advised_bytes, name: `advised: ${bytes(found.advised_bytes)}` });
  // Where all that was asked for fits, more room finds nothing more.
  const last = found.lru[found.lru.length - 1];
  const lru = last && last.size_bytes < most ? [...found.lru, { ...last, size_bytes: most }] : found.lru;
  const x = [...new Set([...found.sizes, ...lru].map(it => it.size_bytes))].sort((a, b) => a - b);
  // Between two points a line is what is between them.
  const at = (points, key) => x.map(wanted => {
    const after = points.findIndex(it => it.size_bytes >= wanted);
    if (after < 0) return NaN;
    if (points[after].size_bytes === wanted) return points[after][key] * 100;
    if (after === 0) return NaN;
    const [low, high] = [points[after - 1], points[after]];
    return 100 * (low[key] + (high[key] - low[key]) * (wanted - low.size_bytes) / (high.size_bytes - low.size_bytes));
  });
  drawing.hits.show({ x, from: 0, to: most, xTicks, marks, series: [{ name: found.policy, y: at(found.sizes, "hit_ratio") }, { name: "lru, all misses taken in", y: at(lru, "hit_ratio") }] });
  const sizes = found.sizes.map(it => it.size_bytes);
  drawing.flash.show({ x: sizes, from: 0, to: most, xTicks, marks, series: [{ name: found.policy, y: found.sizes.map(it => it.flash_bytes_per_day) }] });
};

export const advice = app => {
  const page = { title: advice.title, every: 10, live: false };
  const drawn = new Map();
  let volumes = [], found = [];
  page.load = async signal => {
    volumes = await hybrids(signal);
    found = await Promise.all(volumes.map(it => it.advise ? find(`/v1/volumes/${part(it.name)}/advice`, signal) : null));
  };
  const one = (volume, seen) => {
    if (!seen) return section(volume.name, note("No shadow watches it: ", code(`tanada volume set ${volume.name} advise=on`), " lets one see what it is asked, for some memory and no I/O."), act(app, "Watch it", watch(volume.name)));
    if (!drawn.has(volume.name)) drawn.set(volume.name, drawings());
    const drawing = drawn.get(volume.name);
    if (seen.sizes.length) draw(drawing, seen);
    return section(volume.name,
      facts([["Advised", seen.advised_bytes ? bytes(seen.advised_bytes) : "nothing yet", `present ${bytes(seen.present_bytes)}`], ["Watched", span(seen.watched_seconds), `${count(seen.requests)} requests`],
        ["Footprint", bytes(seen.footprint_bytes), "asked for outside long streams"], ["Sampled", share(seen.sampling_rate), `${count(seen.sampled)} uses of pages`],
        ["Measured", share(seen.measured_read_share), "of bytes read came from the fast device"], ["Shadow", bytes(seen.memory_bytes), "of memory"]]),
      seen.reasons.length ? h("ul", { class: "reasons" }, seen.reasons.map(it => h("li", {}, it))) : null,
      seen.sizes.length ? h("div", { class: "grid" }, drawing.hits.node, drawing.flash.node) : null,
      table(`Sizes of ${volume.name}`, ["Size", "#Hits", "#Of reads", "#With LRU", "#Slow device spared", "#Flash writes a day"], seen.sizes.map(it => [
        `${bytes(it.size_bytes)}${it.size_bytes === seen.present_bytes ? " (present)" : ""}`, share(it.hit_ratio), share(it.read_hit_ratio), share(it.lru_hit_ratio), share(it.slow_saved), bytes(it.flash_bytes_per_day)]), "Too little was asked yet."),
      note(`Of policy ${seen.policy}, write mode ${seen.write}, admission ${seen.admission}.`));
  };
  page.show = () => {
    const title = h("h1", {}, "Advice");
    if (page.error) return [title, trouble(page.error)];
    if (!page.loaded) return [title, note("Asking the daemon.")];
    if (!volumes.length) return [title, absent("There is no hybrid, whose cache could have another size.", "A ", code("[[hybrid]]"), " in the configuration makes one.")];
    return [title, volumes.map((it, n) => one(it, found[n]))];
  };
  return page;
};
advice.title = "Advice";
