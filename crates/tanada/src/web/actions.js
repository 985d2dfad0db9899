// What can be done with a token: each says what it does, shows the same as a command, and asks.
//
// None of them destroys data: nothing is deleted, rolled back or detached here; a job that is cancelled leaves what it did.

import { get, part, Refusal, send, token } from "./api.js";
import { h, patch } from "./dom.js";

let numbers = 0;

// A modal dialog: `fields(form)` -> nodes; `done(form)` may refuse, and says why in it.
const dialog = (title, { text, fields, command, verb, run }) => {
  const id = `d${numbers += 1}`;
  const said = h("p", { class: "refusal", role: "alert" });
  const line = h("code", {});
  const form = h("form", { method: "dialog" });
  const box = h("dialog", { "aria-labelledby": id }, form);
  const values = () => Object.fromEntries([...form.elements].filter(it => it.name)
    .map(it => [it.name, it.type === "checkbox" ? it.checked : it.value.trim()]));
  const follow = () => { line.textContent = command?.(values()) ?? ""; };
  const go = h("button", { type: "submit", class: "go" }, verb);
  const leave = h("button", { type: "button", onclick: () => box.close() }, "Cancel");
  form.append(h("h2", { id }, title), h("p", {}, text), ...(fields ?? []),
    ...(command ? [h("p", { class: "as-command" }, "The same as a command:"), h("pre", {}, line)] : []),
    said, h("div", { class: "buttons" }, leave, go));
  form.oninput = follow;
  form.onsubmit = async event => {
    event.preventDefault();
    go.disabled = true;
    patch(said, []);
    try {
      await run(values());
      box.close();
    } catch (error) {
      patch(said, [h("b", {}, error.message), error.todo ? ` ${error.todo}` : null]);
    }
    go.disabled = false;
  };
  box.onclose = () => box.remove();
  document.getElementById("dialogs").append(box);
  follow();
  box.showModal();
  (form.querySelector("input, select") ?? leave).focus();
};

export const field = (label, control, about) => {
  const id = `i${numbers += 1}`;
  control.id = id;
  return h("p", { class: "field" }, h("label", { for: id }, label), control, about ? h("span", { class: "about" }, about) : null);
};

export const signIn = then => dialog("Use a token", {
  text: "With a token, names of holders are shown, and what its role allows can be done. It is kept in this tab alone, and gone when the tab is closed.",
  verb: "Use it",
  fields: [field("Token", h("input", { name: "token", type: "password", autocomplete: "off", required: true, spellcheck: "false" }),
    "made by `tanada token create ACCOUNT`, or what is in the daemon's admin.token")],
  run: async ({ token: given }) => {
    const before = token.get();
    token.set(given);
    try {
      const access = await get("/v1/access");
      if (!access.role) throw new Refusal(401, { error: "the daemon knows no role for this token" });
    } catch (error) {
      token.set(before);
      throw error;
    }
    then();
  },
});

// A button that asks before it does something; nothing without the right to it.
export const act = (app, label, what) => app.operates
  ? h("button", { type: "button", onclick: () => dialog(what.title ?? label, { ...what, verb: what.verb ?? label, run: async values => { await what.run(values); app.again(); } }) }, label)
  : null;

const word = text => /^[A-Za-z0-9_.,:@%+=/-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;

export const scrub = store => ({
  title: `Scrub ${store}`,
  verb: "Begin",
  text: "Reads all data of the store and compares them with their checksums, in the background of all else. Nothing is changed but what a copy repairs.",
  command: () => `tanada store scrub ${word(store)} --no-wait`,
  run: () => send("POST", `/v1/stores/${part(store)}/scrub`),
});

export const calibrate = store => ({
  title: `Calibrate ${store}`,
  verb: "Begin",
  text: "Measures the device below the store for a quarter of an hour. It takes the device's time, and is refused while something is reserved for as long as it may take.",
  fields: [field("Measure everything, which takes some hours", h("input", { name: "full", type: "checkbox" }))],
  command: ({ full }) => `tanada store calibrate ${word(store)}${full ? " --full" : ""} --no-wait`,
  run: ({ full }) => send("POST", `/v1/stores/${part(store)}/calibrate`, { full }),
});

export const cancel = job => ({
  title: `Cancel job ${job.id}`,
  verb: "Cancel it",
  text: `The ${job.kind} of ${job.name} stops where it is, and can be begun again.`,
  command: () => `tanada job cancel ${job.id}`,
  run: () => send("DELETE", `/v1/jobs/${job.id}`),
});

export const snapshot = volume => ({
  title: `Snapshot of ${volume}`,
  verb: "Take it",
  text: "Keeps the volume as it is now under a name. It may be in use.",
  fields: [field("Name", h("input", { name: "name", required: true, autocomplete: "off", pattern: "[A-Za-z0-9][A-Za-z0-9._\\-]*" }), "letters, digits, dots, dashes")],
  command: ({ name }) => `tanada snapshot create ${word(`${volume}@${name || "NAME"}`)}`,
  run: ({ name }) => send("POST", `/v1/cluster/volumes/${part(volume)}/snapshots`, { name }),
});

export const disconnect = (listener, client) => ({
  title: `Disconnect ${client.peer}`,
  verb: "Disconnect",
  text: "Ends the client's connection. What its requests have begun runs to its end, and their answers are lost: a client that lives connects again and asks again.",
  command: () => `tanada client delete ${word(`${listener}#${client.id}`)}`,
  run: () => send("POST", "/v1/clients/disconnect", { listener, id: client.id }),
});

export const watch = volume => ({
  title: `Watch ${volume} with a shadow`,
  verb: "Watch",
  text: "Small shadow caches see what the volume is asked from now on, and tell what other sizes would do. They cost some memory and no I/O.",
  command: () => `tanada volume set ${word(volume)} advise=on`,
  run: () => send("PATCH", `/v1/volumes/${part(volume)}`, { advise: true }),
});

// Keys of a hybrid that can be set while it runs: what they take, and where the volume says what they are now.
const NUMBER = "number", SWITCH = "switch";
const KEYS = {
  write: ["back", "through", "around", "only-writes", "pass"],
  admission: ["second-access", "always"],
  dirty_low: NUMBER,
  dirty_high: NUMBER,
  energy: SWITCH,
  age_limit: "a span such as 30m",
  sequential_bypass: "a size such as 1MiB, or off",
  flash_writes_per_day: "a size such as 100GiB, or off",
  max_read: "bytes per second such as 100MB/s, or off",
  max_write: "bytes per second such as 100MB/s, or off",
  max_read_iops: "requests per second such as 500, or off",
  max_write_iops: "requests per second such as 500, or off",
};
export const SETTINGS = Object.keys(KEYS);

export const setting = (volume, key, now) => {
  const kind = KEYS[key];
  const choice = Array.isArray(kind) ? kind : kind === SWITCH ? ["true", "false"] : null;
  const control = choice
    ? h("select", { name: "value" }, choice.map(it => h("option", { value: it, selected: String(now) === it }, it)))
    : h("input", { name: "value", required: true, autocomplete: "off", inputmode: kind === NUMBER ? "numeric" : null, value: now ?? "" });
  const typed = value => kind === NUMBER ? Number(value) : kind === SWITCH ? value === "true" : value;
  return {
    title: `${key} of ${volume}`,
    verb: "Set",
    text: "In force at once, while clients go on. It is kept over restarts, before what the configuration says.",
    fields: [field(key, control, choice ? null : kind === NUMBER ? "percent of the cache" : kind),
      field("Only until the daemon ends", h("input", { name: "until", type: "checkbox" }))],
    command: ({ value, until }) => `tanada volume set ${word(volume)} ${word(`${key}=${value || "VALUE"}`)}${until ? " --until-restart" : ""}`,
    run: ({ value, until }) => send("PATCH", `/v1/volumes/${part(volume)}${until ? "?until_restart=true" : ""}`, { [key]: typed(value) }),
  };
};
