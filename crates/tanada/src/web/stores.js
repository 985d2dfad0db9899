// The stores of this daemon: room, queue, scrub, and what their devices are trusted to do.

import { act, calibrate, scrub } from "./actions.js";
import { get } from "./api.js";
import { bar } from "./draw.js";
import { h } from "./dom.js";
import { absent, code, facts, note, pairs, section, state, table, trouble } from "./parts.js";
import { bytes, count, many, moment, none, percent, rate, whole } from "./units.js";

const scrubbed = it => {
  if (it.running) return [state("running", "good"), ` ${bytes(it.read_bytes)} of ${bytes(it.of_bytes)}`];
  if (it.failed) return state(it.failed, "bad");
  return it.ended_unix_seconds ? `ended ${moment(it.ended_unix_seconds)}` : "not since the start";
};

const one = (app, live) => it => {
  const { node, scrub: round, calibrating, server } = it, { space, capacity } = node;
  const now = live?.stores.find(sample => sample.name === it.name);
  return section(it.name,
    h("p", { class: "buttons" }, act(app, "Scrub", scrub(it.name)), act(app, "Calibrate", calibrate(it.name))),
    bar(`Room of ${it.name}`, space.total_bytes, [
      { name: "used", value: space.used_bytes, text: bytes(space.used_bytes) }, { name: "reserved", value: space.reserved_bytes, text: bytes(space.reserved_bytes) },
      { name: "free", value: space.free_bytes, text: bytes(space.free_bytes) }]),
    facts([["Room", bytes(space.total_bytes), `${count(space.objects)} objects on ${it.device}`],
      ["Read", rate(now?.read_bytes_per_second), `trusted with ${rate(capacity.read)}`], ["Write", rate(now?.write_bytes_per_second), `trusted with ${rate(capacity.write)}`],
      ["Queue", `${count(node.in_flight)} of ${count(node.depth)}`, `at the device; scheduler ${node.scheduler}`],
      ["Clients", count(server.connections), `${count(server.answered)} requests answered`], ["Bad pages", count(it.bad_blocks), it.bad_blocks ? "not written since" : "none known"]]),
    pairs([
      ["Scrub", scrubbed(round)], ["Rounds, and bad pages of the last", `${whole(round.rounds)}, ${whole(round.bad)}`],
      ["Scrubs by itself", round.bytes_per_second ? `once a day, at ${rate(round.bytes_per_second)}` : "only when asked"],
      ["Speeds are", [capacity.source, capacity.calibrated ? `, measured ${moment(capacity.calibrated)}` : null, capacity.calibration_due ? [" ", state("a calibration is due", "warn")] : null]],
      ["Observed", capacity.read_speed_percent ?? capacity.write_speed_percent ? `reads ${percent(capacity.read_speed_percent ?? NaN)}, writes ${percent(capacity.write_speed_percent ?? NaN)} of that` : none],
      calibrating.running || calibrating.failed ? ["Calibration", calibrating.failed ? state(calibrating.failed, "bad") : [state("running", "good"), ` ${calibrating.what}, ${percent(calibrating.done_percent)}`]] : null,
      ["Given up", node.shed], ["Read and written", `${bytes(node.read_bytes)}, ${bytes(node.written_bytes)}; metadata ${bytes(node.metadata_bytes)}`],
      ["Object table", `${bytes(it.table_bytes)} of ${bytes(it.table_max_bytes)}, ${bytes(it.memory_bytes)} of memory`],
      ["Connections cut, not let in", `${whole(server.stalled + server.violations)}, ${whole(server.not_let_in)}`], ["Listens at", it.listen.join(", ")],
    ]),
    it.first_bad.length ? h("details", {}, h("summary", {}, "The first bad pages"), h("ul", {}, it.first_bad.map(line => h("li", {}, line)))) : null,
    node.log.length ? h("details", {}, h("summary", {}, `Its log: ${many(node.log.length, "line")}`), table(`Log of ${it.name}`, ["When", "Kind", "What"], [...node.log].reverse().slice(0, 50).map(line => [moment(line.at), line.kind, line.what]))) : null);
};

export const stores = app => {
  const page = { title: stores.title, every: 3 };
  let all = [];
  page.load = async signal => { all = await get("/v1/stores", signal); };
  page.show = () => {
    const title = h("h1", {}, "Stores");
    if (page.error) return [title, trouble(page.error)];
    if (!page.loaded) return [title, note("Asking the daemon.")];
    if (!all.length) return [title, absent("This daemon has no store.", code("tanada serve --store"), " tries one on a modelled disk; a ", code("[[store]]"), " in the configuration makes one.")];
    return [title, all.map(one(app, app.sample))];
  };
  return page;
};
stores.title = "Stores";
