// The view `Live`: the stations, the list of messages, and the buttons.

import { act, byId, duration, make, say, whole } from "./dom.js";
import { refreshDetail, selected, select } from "./detail.js";
import { ENGINES, showEngines } from "./engines.js";

const MOST = 60;
const LEVELS = { all: "every message", mentions: "mentions only", none: "nothing (muted)" };
const NAMES = { smp: "SMP router", ntf: "NTF router" };
const rows = new Map(); // message number → { item, message }
let parts = {};
let known = ""; // names of the phones whose controls exist

export const liveEvents = {
  phones: showPhones,
  parts: showParts,
  engines: showEngines,
  chatter: (on) => (byId("chatter").checked = on),
  history({ messages, counts }) {
    for (const { item } of rows.values()) item.remove();
    rows.clear();
    messages.forEach(showMessage);
    count(counts);
    if (selected() === null && messages.length) choose(messages.at(-1).number);
  },
  message({ message, counts }) {
    const before = rows.get(message.number)?.message;
    showMessage(message);
    count(counts);
    if (!before) pulse("sender");
    else if (message.times.stored && !before.times.stored) pulse("smp");
    if (message.times.fetched && !before?.times.fetched) {
      pulse("device");
      if (message.byHand) say(`${message.receiver} has the message from ${message.sender}: ${state(message)}`);
    }
    if (selected() === null) choose(message.number);
    else if (selected() === message.number) refreshDetail();
  },
  push({ counts }) {
    count(counts);
    pulse("ntf");
    pulse("provider");
  },
  woken({ counts }) {
    count(counts);
    pulse("device");
  },
};

// Stations

function count(counts) {
  for (const element of document.querySelectorAll("[data-count]")) {
    element.textContent = whole(counts[element.dataset.count] ?? 0);
  }
}

function pulse(station) {
  const element = document.querySelector(`#stations [data-station="${station}"]`);
  element.classList.remove("pulse");
  void element.offsetWidth; // restarts the animation
  element.classList.add("pulse");
}

function showParts(now) {
  for (const [name, title] of Object.entries(NAMES)) {
    const badge = document.querySelector(`[data-part="${name}"]`);
    const times = now[name].restarts;
    const again = times ? `, restarted ${times}×` : "";
    badge.textContent = now[name].serving ? `serving${again}` : "killed, restarting";
    badge.dataset.level = now[name].serving ? "good" : "bad";
    document.querySelector(`[data-kill="${name}"]`).disabled = !now[name].serving;
    if (parts[name] && parts[name].serving !== now[name].serving) {
      say(`The ${title} ${now[name].serving ? "is back" : "was killed and is restarting"}.`);
    }
  }
  parts = now;
}

for (const button of document.querySelectorAll("[data-kill]")) {
  button.addEventListener("click", () => attempt(() => act("kill", { router: button.dataset.kill })));
}

// Messages

function state(message) {
  const { times } = message;
  if (message.failure) return "not accepted";
  if (times.fetched) {
    const after = `fetched after ${duration(times.fetched - times.sent)}`;
    return message.push ? after : `${after}, without its own push`;
  }
  if (!times.stored) return "on its way";
  return message.expectsPush ? "stored, waiting for a push" : "stored; the receiver wants no push";
}

function by({ engine }) {
  return engine ? make("span", { class: "by", "data-by": engine }, ` · pushed by ${ENGINES[engine]}`) : null;
}

function showMessage(message) {
  let row = rows.get(message.number);
  if (!row) {
    const button = make("button", { type: "button", "aria-pressed": "false", onclick: () => choose(message.number) });
    row = { item: make("li", { "data-number": message.number }, button) };
    rows.set(message.number, row);
    byId("messages").prepend(row.item);
    while (rows.size > MOST) {
      const [oldest, { item }] = rows.entries().next().value;
      item.remove();
      rows.delete(oldest);
    }
  }
  row.message = message;
  row.item.hidden = byId("mine").checked && !message.byHand;
  const button = row.item.firstChild;
  button.setAttribute("aria-pressed", String(selected() === message.number));
  button.replaceChildren(
    make("span", { class: "who" }, `${message.sender} → ${message.receiver}`),
    make("span", { class: "text" }, message.mention ? make("span", { class: "mention" }, "@ ") : null, message.text),
    make("span", { class: "state" }, state(message), by(message)),
  );
  byId("no-messages").hidden = true;
}

function choose(number) {
  const before = rows.get(selected());
  select(number);
  for (const row of [before, rows.get(number)]) {
    row?.item.firstChild.setAttribute("aria-pressed", String(selected() === row.message.number));
  }
}

byId("mine").addEventListener("change", () => [...rows.values()].forEach(({ message }) => showMessage(message)));

// Buttons

async function attempt(action) {
  const problem = byId("problem");
  problem.textContent = "";
  try {
    return await action();
  } catch (error) {
    problem.textContent = error.message;
    return null;
  }
}

byId("write").addEventListener("submit", async (event) => {
  event.preventDefault();
  const { from, to, text, mention } = event.target.elements;
  const asked = { from: from.value, to: to.value, text: text.value, mention: mention.checked };
  const sent = await attempt(() => act("send", asked));
  if (sent) {
    if (!rows.has(sent.number)) showMessage(sent);
    choose(sent.number);
    say(sent.failure || `Sent from ${sent.sender} to ${sent.receiver}.`);
  }
});

byId("chatter").addEventListener("change", (event) => attempt(() => act("chatter", { on: event.target.checked })));

// Phones

function showPhones(phones) {
  const names = phones.map((phone) => phone.name).join("\n");
  if (names !== known) {
    known = names;
    offer(byId("write").elements.from, phones, 0);
    offer(byId("write").elements.to, phones, 1);
    byId("phones").replaceChildren(...phones.map(phoneControls));
  }
  for (const phone of phones) {
    const box = document.querySelector(`[data-phone="${CSS.escape(phone.name)}"]`);
    const badge = box.querySelector(".badge");
    badge.textContent = phone.online ? "online" : "offline";
    badge.dataset.level = phone.online ? "good" : "look";
    const [connect, open] = box.querySelectorAll("button");
    connect.textContent = phone.online ? "Go offline" : "Go online";
    connect.dataset.online = phone.online;
    open.disabled = !phone.online;
    const engine = box.querySelector("select[data-engine]");
    if (engine) {
      engine.value = phone.engine;
      const waits = phone.engine !== phone.engineNow;
      box.querySelector(".waits").textContent = waits ? `${ENGINES[phone.engineNow]} pushes until Spark is ready` : "";
    }
    for (const chat of phone.chats) {
      box.querySelector(`select[data-peer="${CSS.escape(chat.peer)}"]`).value = chat.level;
    }
  }
}

function offer(field, phones, chosen) {
  field.replaceChildren(...phones.map((phone) => make("option", {}, phone.name)));
  field.selectedIndex = chosen;
}

function phoneControls(phone) {
  const connect = make("button", {
    type: "button",
    onclick: () => attempt(() => act("phone", { phone: phone.name, online: connect.dataset.online !== "true" })),
  });
  const open = make(
    "button",
    { type: "button", onclick: () => attempt(() => act("look", { phone: phone.name })) },
    "Open the app",
  );
  const name = make("h3", {}, phone.name);
  const head = make("div", { class: "row" }, name, make("span", { class: "badge" }));
  const buttons = make("div", { class: "row" }, connect, open);
  const levels = phone.chats.map((chat) => level(phone, chat));
  return make("div", { class: "phone", role: "group", "aria-label": phone.name, "data-phone": phone.name }, head, buttons, ...engine(phone), ...levels);
}

function engine(phone) {
  if (!phone.engine) return [];
  const choice = make("select", {
    "data-engine": phone.name,
    onchange: () => attempt(() => act("engine", { phone: phone.name, engine: choice.value })),
  });
  for (const [value, text] of Object.entries(ENGINES)) choice.append(make("option", { value }, text));
  return [make("label", {}, "pushed by", choice), make("p", { class: "waits soft" })];
}

function level(phone, { peer }) {
  const choice = make("select", {
    "data-peer": peer,
    onchange: () => attempt(() => act("notify", { phone: phone.name, peer, level: choice.value })),
  });
  for (const [value, text] of Object.entries(LEVELS)) choice.append(make("option", { value }, text));
  return make("label", {}, `wakes for ${peer}`, choice);
}
