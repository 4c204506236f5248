// One notification: its times by stage, who sees what, and both encryption layers step by step.

import { ask, byId, duration, make, whole } from "./dom.js";

const VISIBILITIES = { all: "◉ sees", part: "◐ sees a part", nothing: "○ sees nothing" };
let number = null;
let asked = 0;

export const selected = () => number;

export function select(wanted) {
  if (wanted !== number) byId("detail-content").replaceChildren(make("p", { class: "empty" }, "…"));
  number = wanted;
  refreshDetail();
}

export async function refreshDetail() {
  const mine = ++asked;
  const content = byId("detail-content");
  let message;
  try {
    message = await ask(`/api/message?number=${number}`);
  } catch (error) {
    if (mine === asked) content.replaceChildren(make("p", { class: "empty" }, error.message));
    return;
  }
  if (mine !== asked) return; // another message was selected meanwhile
  const open = new Set([...content.querySelectorAll("details[open]")].map((each) => each.dataset.layer));
  const focused = document.activeElement?.closest("#detail-content details")?.dataset.layer;
  content.replaceChildren(
    make("p", { class: "title" }, `${message.sender} → ${message.receiver}: “${message.text}”`),
    message.failure ? make("p", { class: "problem" }, message.failure) : "",
    make("h3", {}, "When"),
    timeline(message),
    make("h3", {}, "Who sees what"),
    visibilityTable(message.visibility),
    make("h3", {}, "What is in the push, opened step by step"),
    layers(message),
  );
  for (const each of content.querySelectorAll("details")) {
    each.open = open.has(each.dataset.layer);
    if (each.dataset.layer === focused) each.querySelector("summary").focus();
  }
}

// When

function timeline(message) {
  const times = message.steps.filter((step) => step.at !== null && !step.wholeSeconds).map((step) => step.at);
  const start = message.times.sent;
  const end = Math.max(...times, start + 0.001);
  const place = (at) => Math.min(Math.max((at - start) / (end - start), 0), 1) * 100;
  return make("ol", { class: "timeline" }, ...message.steps.map((step) => row(message, step, start, end, place)));
}

function row(message, step, start, end, place) {
  const track = make("span", { class: "track" });
  let text = awaited(message, step);
  if (step.at !== null && step.wholeSeconds) {
    const band = make("span", { class: "band", title: "a whole second: no party reports a finer time" });
    band.style.left = `${place(step.at)}%`;
    band.style.width = `${Math.max(place(Math.min(step.at + 1, end)) - place(step.at), 0)}%`;
    track.append(band);
    text = clock(step.at);
  } else if (step.at !== null) {
    const mark = make("span", { class: "mark" });
    mark.style.left = `clamp(2px, ${place(step.at)}%, calc(100% - 3px))`;
    track.append(mark);
    text = step.step === "sent" ? clock(step.at) : `+ ${duration(step.at - start)}`;
  }
  const label = make("span", { class: "label" }, step.label);
  const item = { "data-station": step.station, "data-step": step.step, class: step.at === null ? "not-yet" : "" };
  return make("li", item, label, track, make("time", {}, text));
}

function awaited(message, step) {
  if (message.failure) return "–";
  const pushed = ["ntf_time", "pushed", "woken"].includes(step.step);
  return pushed && (!message.expectsPush || message.times.fetched) ? "no push" : "not yet";
}

const clock = (at) => new Date(at * 1000).toLocaleTimeString("en-GB");

// Who sees what

function visibilityTable({ columns, rows }) {
  const head = make("tr", {}, make("th", { scope: "col" }, "Party"), ...columns.map((each) => make("th", { scope: "col" }, each)));
  const body = rows.map(({ party, cells }) =>
    make("tr", {}, make("th", { scope: "row" }, party), ...cells.map((cell, index) => seen(cell, columns[index]))),
  );
  return make("table", { class: "visibility" }, make("thead", {}, head), make("tbody", {}, ...body));
}

function seen({ visibility, text }, column) {
  const mark = make("span", { class: "mark" }, VISIBILITIES[visibility]);
  return make("td", { "data-visibility": visibility, "data-column": column }, mark, " ", text);
}

// The layers

function layers(message) {
  const { layers: found } = message;
  if (!found) {
    const why = message.expectsPush ? "No push for it has been opened yet." : "The receiver did not want a push for it.";
    return make("p", { class: "empty" }, why);
  }
  const item = found.index === null ? null : found.items[found.index];
  return make(
    "ol",
    { class: "layers" },
    layer("provider", "raw", `What the provider saw: ${whole(found.bytes)} bytes`, [
      make("p", {}, "A fixed text and one sealed block. The size does not reveal how much is in it."),
      make("p", { class: "bytes", tabindex: "0" }, found.payload),
    ]),
    layer("ntf", "one", `Open layer one with the token’s secret, which ${found.phone}’s phone shares with the NTF router`, [
      make("p", {}, `The last notification of ${found.items.length === 1 ? "one queue" : `${found.items.length} queues`}, oldest first.`),
      ...found.items.map((each, index) => layerOne(each, index === found.index)),
    ]),
    layer("smp", "two", "Open layer two with the queue’s secret, which the phone shares with the SMP router", [
      item?.meta
        ? facts({
            "message ID": item.meta.messageId,
            "SMP router’s time": clock(item.meta.sentAt),
            "kind of message": item.meta.mention ? "a mention" : "ordinary",
            "so the sender is": item.peer ?? "?",
          })
        : make("p", {}, "This layer cannot be opened."),
    ]),
    layer("device", "message", "Fetch the message from the SMP router and open it", [
      make("p", {}, `${message.receiver}’s phone requested the queue’s messages (GET) and opened what ${message.sender}’s phone had sealed.`),
      message.receivedAsMention ? make("p", { class: "mention" }, "The phone shows it as a mention.") : null,
      make("p", { class: "bytes" }, message.text),
    ]),
  );
}

function layer(station, name, title, content) {
  const details = make("details", { "data-layer": name }, make("summary", {}, title), ...content);
  return make("li", { "data-station": station }, details);
}

function layerOne(item, isThis) {
  const shown = facts({
    queue: `${item.router}/${item.notifierId}`,
    "NTF router’s time": clock(item.receivedAt),
    nonce: item.nonce,
    "sealed metadata": item.sealedMeta,
  });
  return make("div", { class: isThis ? "item this" : "item" }, isThis ? make("p", {}, "This one is for the message above:") : null, shown);
}

function facts(values) {
  const pairs = Object.entries(values).flatMap(([name, value]) => [
    make("dt", {}, name),
    make("dd", {}, make("code", {}, value)),
  ]);
  return make("dl", {}, ...pairs);
}
