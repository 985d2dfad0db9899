// The daemon's API: one question, one command, and the stream of samples.
//
//   get(path), send(method, path, body) -> JSON, or a Refusal: what stood in the way, what to do
//   follow(): fetch, read as a stream -> sample | stale | waiting, with back-off
//
// The token is in this tab's session storage alone, and goes out in a header to this origin. It is forgotten when the
// connection is cut: what listens here next may be another program.

const KEY = "tanada-token";
const BACK_OFF = [500, 1000, 2000, 4000, 8000, 15000];
const STALE_AFTER = 3500;

export class Refusal extends Error {
  constructor(status, said) {
    super(said?.error || `the daemon answered with status ${status}`);
    this.status = status;
    this.todo = said?.what_to_do || "";
  }
}

export const token = {
  get: () => sessionStorage.getItem(KEY),
  set: text => text ? sessionStorage.setItem(KEY, text) : sessionStorage.removeItem(KEY),
};

const ask = (path, more = {}) => {
  const own = token.get();
  const headers = { ...more.headers, ...(own ? { Authorization: `Bearer ${own}` } : {}) };
  return fetch(path, { ...more, headers, cache: "no-store", credentials: "same-origin", redirect: "error" });
};

const read = async answer => {
  const text = await answer.text();
  let said = null;
  try {
    said = JSON.parse(text);
  } catch {
    // A refusal of something in between: its status says all there is.
  }
  if (!answer.ok) throw new Refusal(answer.status, said);
  return said;
};

export const get = async (path, signal) => read(await ask(path, { signal }));

// The volumes of kind hybrid.
export const hybrids = async signal => (await get("/v1/volumes", signal)).filter(it => it.kind === "hybrid");

// What is not there is null: no cluster, no tier, no shadow.
export const find = async (path, signal) => {
  try {
    return await get(path, signal);
  } catch (error) {
    if (error.status === 404 || error.status === 409) return null;
    throw error;
  }
};

export const send = async (method, path, body) => read(await ask(path, {
  method,
  headers: { "Content-Type": "application/json" },
  body: JSON.stringify(body ?? {}),
}));

export const part = encodeURIComponent;

// Events of a text/event-stream, as they come.
const events = async (stream, heard) => {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    rest += value;
    const whole = rest.split("\n\n");
    rest = whole.pop();
    for (const event of whole) {
      const lines = event.split("\n");
      const of = name => lines.find(line => line.startsWith(`${name}: `))?.slice(name.length + 2);
      if (of("data")) heard(of("event") ?? "sample", JSON.parse(of("data")));
    }
  }
};

// Follows the samples while the page is visible. `said` gets ("sample", it), ("stale", seconds),
// ("waiting", seconds until the next try, why), ("lost"): the connection was cut,
// ("refused"): the token is not taken any more.
export const follow = said => {
  let tries = 0, abort = null, timer = null, last = 0, waitsUntil = 0, why = "";
  const open = async () => {
    clearTimeout(timer);
    abort = new AbortController();
    const mine = abort;
    try {
      const answer = await ask("/v1/events", { signal: mine.signal });
      if (!answer.ok) await read(answer);
      await events(answer.body, (kind, data) => {
        if (mine !== abort) return;
        tries = 0;
        waitsUntil = 0;
        if (kind === "sample") last = Date.now();
        said(kind, data);
      });
      why = "the daemon ended the stream";
    } catch (error) {
      if (mine.signal.aborted) return;
      why = error instanceof Refusal ? error.message : "the daemon does not answer";
      if (!(error instanceof Refusal)) said("lost");
      else if (error.status === 401 && token.get()) return said("refused");
    }
    if (mine !== abort || document.hidden) return;
    // A stream that went well is opened again at once: it has an end by design.
    const wait = tries === 0 && last ? 100 : BACK_OFF[Math.min(tries, BACK_OFF.length - 1)];
    tries += 1;
    waitsUntil = Date.now() + wait;
    timer = setTimeout(open, wait);
  };
  const stop = () => {
    clearTimeout(timer);
    abort?.abort();
    abort = null;
  };
  const begin = () => {
    stop();
    tries = 0;
    open();
  };
  setInterval(() => {
    if (document.hidden) return;
    if (waitsUntil > Date.now() && tries > 1) said("waiting", Math.ceil((waitsUntil - Date.now()) / 1000), why);
    else if (last && Date.now() - last > STALE_AFTER) said("stale", Math.round((Date.now() - last) / 1000), why);
  }, 500);
  document.addEventListener("visibilitychange", () => document.hidden ? stop() : begin());
  begin();
  return { again: begin };
};
