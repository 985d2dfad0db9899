// What do the devices draw, and do they rest?

import { get, hybrids } from "./api.js";
import { history } from "./draw.js";
import { h } from "./dom.js";
import { absent, code, facts, note, section, state, table, trouble } from "./parts.js";
import { count, joules, none, span, ticks, watts } from "./units.js";

const SECONDS = 300;

export const energy = app => {
  const page = { title: energy.title, every: 5 };
  let devices = [], volumes = [], drawing = null, drawn = "";
  page.load = async signal => {
    [devices, volumes] = await Promise.all([get("/v1/devices", signal), hybrids(signal)]);
  };
  const watt = sample => new Map((sample?.power ?? []).map(it => [it.device, it.watts]));
  const power = names => {
    // Of other devices it is another drawing.
    if (drawn !== names.join("\n")) {
      drawn = names.join("\n");
      drawing = history("Power", { name: "power (W)", show: value => Number.isFinite(value) ? String(Number(value.toPrecision(3))) : none, ticks: top => ticks(top, 4), least: 1 },
        names, sample => names.map(name => watt(sample).get(name)), SECONDS, "h2");
    }
    drawing.show(app.samples);
    return drawing.node;
  };
  page.show = () => {
    const title = h("h1", {}, "Energy");
    if (page.error) return [title, trouble(page.error)];
    if (!page.loaded) return [title, note("Asking the daemon.")];
    const metered = devices.filter(it => it.power);
    const sleeping = volumes.filter(it => it.settings.energy || it.cache.slow_asleep);
    const hybrids = section("Slow devices of hybrids", table("Slow devices of hybrids", ["Volume", "Slow device", "Spindle", "Energy mode", "#Sleeps after", "#Dirty data wait"],
      volumes.map(it => [it.name, it.slow, it.cache.slow_asleep ? state("standby", "idle") : state("spinning", "good"), it.settings.energy ? "on" : ["off; ", code(`tanada volume set ${it.name} energy=true`)],
        it.settings.standby_after_seconds ? span(it.settings.standby_after_seconds) : none, it.settings.age_limit_seconds ? span(it.settings.age_limit_seconds) : none]), "There is no hybrid."));
    if (!metered.length) return [title, absent("No device here says what it draws: only modelled ones do.", "A device with ", code("model = \"hdd-7200-sata\""), " in the configuration is one; ", code("tanada model list"), " lists them."), volumes.length ? hybrids : null];
    const now = watt(app.sample);
    const sum = metered.reduce((all, it) => all + (now.get(it.name) ?? 0), 0);
    return [title,
      facts([["Power now", watts(sum), "of modelled devices"], ["Energy", joules(metered.reduce((all, it) => all + it.power.joules, 0)), "since the start"],
        ["In standby", `${count(metered.filter(it => it.power.standby).length)} of ${count(metered.length)}`, "devices"], ["Spin-ups", count(metered.reduce((all, it) => all + it.power.spin_ups, 0)), "since the start"],
        ["Energy mode", sleeping.length ? sleeping.map(it => it.name).join(", ") : "off", "hybrids"]]),
      power(metered.map(it => it.name)),
      section("Devices", table("Devices", ["Device", "Model", "State", "#Power now", "#Mean", "#Energy", "#Spin-ups"], metered.map(it => [it.name, it.model ?? it.kind, it.power.standby ? state("standby", "idle") : state("on", "good"),
        watts(now.get(it.name)), watts(it.power.over_ns ? it.power.joules / (it.power.over_ns / 1e9) : NaN), joules(it.power.joules), count(it.power.spin_ups)]))),
      hybrids];
  };
  return page;
};
energy.title = "Energy";
