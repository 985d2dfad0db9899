// Which store has every write of which volume, and how are the nodes?

import { find } from "./api.js";
import { h } from "./dom.js";
import { absent, code, facts, mark, note, section, state, table, trouble } from "./parts.js";
import { bytes, count, none, span } from "./units.js";

const cell = (disk, store) => {
  const out = disk.out.find(it => it.store === store.number);
  if (out) return h("span", { class: "state bad" }, mark("bad"), `out since ${out.since_generation}`);
  return h("span", { class: "state good" }, mark("good"), store.state === "draining" ? "in sync, leaving" : "in sync");
};

const left = disk => disk.resync?.left_bytes ?? disk.resync_left_bytes;

export const replication = app => {
  const page = { title: replication.title, every: 3, live: false };
  let here = null, disks = [];
  page.load = async signal => {
    await app.first;
    // Without one there is nothing to ask for.
    if (app.sample?.cluster === false) return;
    [here, disks] = await Promise.all([find("/v1/cluster", signal), find("/v1/cluster/volumes", signal)]);
    disks ??= [];
  };
  const nodes = () => {
    const names = [...new Set(here.stores.map(it => it.node))].sort();
    return table("Nodes", ["Node", "Lease", "Stores", "Fails together with", "#Heard"], names.map(name => {
      const own = here.stores.filter(it => it.node === name);
      const up = own[0].node_up;
      const heard = own.map(it => it.heard_ago_ms).filter(Number.isFinite);
      return [name === here.node ? `${name} (this)` : name,
        up === null || up === undefined ? state("keeps none", "idle") : state(up ? "up" : "down"),
        own.map(it => it.name).join(", "), [...new Set(own.map(it => it.domain))].join(", "), heard.length ? `${span(Math.min(...heard) / 1000)} ago` : none];
    }));
  };
  const drains = () => {
    const drained = here.stores.filter(it => it.state === "draining");
    return table("Drains", ["Store", "Node", "Volumes left", "#Extents left here"], drained.map(it => [it.name, it.node,
      it.volumes_left?.length ? it.volumes_left.join(", ") : "none: it can be taken out", count(it.extents_left_here)]),
    ["No store is being drained. ", code("tanada node drain STORE"), " begins it."]);
  };
  page.show = () => {
    const title = h("h1", {}, "Replication");
    if (page.error) return [title, trouble(page.error)];
    if (!page.loaded) return [title, note("Asking the daemon.")];
    if (!here) return [title, absent("This daemon is in no cluster, so nothing is replicated.", "A ", code("[cluster]"), " in its configuration makes it a node; docs/virtual-disks.md begins with an example.")];
    const silent = here.meta_silent_seconds;
    const worst = disks.filter(it => it.out.length > 0).length;
    return [title,
      silent ? h("div", { class: "card absent bad", role: "alert" }, mark("bad"), h("p", {}, h("b", {}, `The meta store has not answered for ${span(silent)}.`), " What is shown is what it said before.")) : null,
      here.warning ? h("div", { class: "card absent", role: "alert" }, mark("warn"), h("p", {}, here.warning)) : null,
      facts([["Node", here.node, `records in ${here.meta}`], ["Volumes", count(disks.length), worst ? `${count(worst)} with a store out` : "all stores have every write"],
        ["Stores", count(here.stores.length), `${count(here.stores.filter(it => it.node_up === false).length)} of nodes that are down`],
        ["Queues", here.deaf ? "not heard" : here.announce ? "announced" : "not announced", here.deaf ?? here.announce ?? "other nodes are not told how long they are"]]),
      section("Volume by store", disks.length ? [table("Volume by store", ["Volume", "Health", "Fewest in sync", ...here.stores.map(it => it.name), "#Left to resync"],
        disks.map(disk => [h("a", { href: `#/volumes/virtual/${encodeURIComponent(disk.name)}` }, disk.name), state(disk.health), `${disk.weakest} of ${disk.copies}`,
          ...here.stores.map(store => cell(disk, store)), left(disk) === undefined ? (disk.out.length ? "not known" : none) : bytes(left(disk))])),
      note("A store that is ", h("b", {}, "in sync"), " misses no write of the volume, whether or not it has a copy of it. One that is ", h("b", {}, "out"), " misses those since that generation, until it was resynced.")]
        : note("There is no virtual disk. ", code("tanada volume create NAME --size 10GiB"), " makes one.")),
      section("Nodes", nodes(), here.unregistered.length ? note("Not registered yet: ", here.unregistered.join("; ")) : null),
      section("Stores", table("Stores", ["Store", "#Number", "Node", "Address", "State", "Device"], here.stores.map(it => [it.name, it.number, it.node, it.address, state(it.state, it.state === "active" ? "good" : "warn"), it.rotating ? "rotating" : "flash"]), ["No store is registered yet. A ", code("[[store]]"), " in the configuration of a node makes one."])),
      section("Drains", drains())];
  };
  return page;
};
replication.title = "Replication";
