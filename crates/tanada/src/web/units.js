// Figures for people: sizes in powers of 1024, rates in powers of 1000, spans in the two units that say most.

const NONE = "–";
const is = value => typeof value === "number" && Number.isFinite(value);

const digits = value => {
  const size = Math.abs(value);
  return value.toFixed(size >= 100 || value === 0 ? 0 : size >= 10 ? 1 : 2);
};

const scaled = (value, step, names) => {
  if (!is(value)) return NONE;
  let at = 0;
  while (Math.abs(value) >= step * 0.9995 && at < names.length - 1) {
    value /= step;
    at += 1;
  }
  return `${at === 0 ? digits(value).replace(/\.0+$/, "") : digits(value)} ${names[at]}`.trim();
};

export const none = NONE;
export const bytes = value => scaled(value, 1024, ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]);
export const count = value => scaled(value, 1000, ["", "k", "M", "G", "T"]).replace(" ", "\u00a0");
export const rate = value => is(value) ? `${megabytes(value)} MB/s` : NONE;
export const perSecond = value => is(value) ? `${count(value)}/s` : NONE;
export const watts = value => is(value) ? `${value.toFixed(2)} W` : NONE;
export const joules = value => scaled(value, 1000, ["J", "kJ", "MJ", "GJ"]);
export const many = (n, what) => `${count(n)} ${what}${n === 1 ? "" : "s"}`;
export const percent = value => is(value) ? `${value === 0 || value >= 99.95 ? value.toFixed(0) : value.toFixed(1)} %` : NONE;
export const share = value => is(value) ? percent(value * 100) : NONE;
export const whole = value => is(value) ? Math.round(value).toLocaleString("en") : NONE;

const megabytes = value => {
  const mega = value / 1e6;
  return mega !== 0 && Math.abs(mega) < 0.01 ? "0.01" : digits(mega);
};

// As a setting takes it: nothing is rounded.
export const exact = value => {
  let at = 0;
  while (at < 4 && value >= 1024 && value % 1024 === 0) { value /= 1024; at += 1; }
  return `${value}${["B", "KiB", "MiB", "GiB", "TiB"][at]}`;
};

export const latency = ns => scaled(is(ns) ? ns : NaN, 1000, ["ns", "µs", "ms", "s"]);

export const span = seconds => {
  if (!is(seconds)) return NONE;
  let rest = Math.max(0, Math.round(seconds));
  const parts = [];
  for (const [length, unit] of [[86400, "d"], [3600, "h"], [60, "m"], [1, "s"]]) {
    const n = Math.floor(rest / length);
    rest -= n * length;
    if (n > 0 && parts.length < 2) parts.push(`${n} ${unit}`);
    else if (parts.length) break;
  }
  return parts.length ? parts.join(" ") : "0 s";
};

const two = n => String(n).padStart(2, "0");
const day = at => `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
export const clock = seconds => {
  const at = new Date(seconds * 1000);
  return `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
};
export const minute = seconds => clock(seconds).slice(0, 5);
export const moment = seconds => {
  if (!is(seconds)) return NONE;
  const at = new Date(seconds * 1000);
  return day(at) === day(new Date()) ? clock(seconds) : `${day(at)} ${minute(seconds)}`;
};

// Round steps that divide 0..most: at most `many` of them.
export const ticks = (most, many, base = 10) => {
  if (!(most > 0)) return [0, 1];
  const rough = most / many;
  const power = base ** Math.floor(Math.log(rough) / Math.log(base) + 1e-9);
  const steps = base === 1024 ? [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024] : [1, 2, 5, 10];
  const step = power * (steps.find(it => it * power >= rough * 0.9999) ?? base);
  const all = [];
  for (let n = 0; n * step < most * 0.9999; n += 1) all.push(n * step);
  all.push(all.length * step);
  return all;
};
