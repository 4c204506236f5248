// The card `Who pushes`: both engines, the job on Spark, and the pipeline's tables as they grow.

import { act, byId, duration, make, say, whole } from "./dom.js";

export const ENGINES = { inline: "the router", spark: "Spark" };
let phase = "";
const before = new Map(); // table → rows when they were last shown

export function showEngines({ engines, job, tables }) {
  byId("engine-list").replaceChildren(...engines.map((engine) => engineBox(engine, job)));
  byId("job-meaning").textContent = job.phase === "off" ? "" : job.meaning;
  byId("tables-title").hidden = !tables.length;
  byId("table-list").replaceChildren(...tables.map(tableRow));
  byId("engines").hidden = job.phase === "off" && !tables.length;
  if (phase && phase !== job.phase && ["pushing", "gone"].includes(job.phase)) {
    say(job.phase === "pushing" ? "Spark is ready and pushes to its phones." : "Spark is gone: the router pushes to all phones.");
  }
  phase = job.phase;
}

function engineBox(engine, job) {
  const usual = engine.seconds === null ? "not measured yet" : `usually ${duration(engine.seconds)} after the message`;
  const head = make("div", { class: "row" }, make("h3", {}, engine.title));
  const box = make(
    "div",
    { class: "engine", "data-engine-box": engine.key },
    head,
    make("p", { class: "count" }, make("b", {}, whole(engine.pushes)), engine.pushes === 1 ? " push" : " pushes"),
    make("p", { class: "soft" }, usual),
  );
  if (engine.key !== "spark") return box;
  head.append(make("span", { class: "badge", "data-level": job.level, "data-phase": job.phase }, job.word));
  if (job.facts.length) box.append(make("dl", { class: "facts" }, ...job.facts.map(fact)));
  const tools = make("div", { class: "row" });
  if (job.page) tools.append(make("a", { href: job.page, target: "_blank", rel: "noopener noreferrer", id: "spark-page" }, "Spark’s own page"));
  if (["pushing", "late", "starting"].includes(job.phase)) {
    tools.append(make("button", { type: "button", "data-kill-job": true, onclick: kill }, "Kill"));
  }
  box.append(tools);
  return box;
}

async function kill() {
  const problem = byId("problem");
  problem.textContent = "";
  try {
    await act("kill", { router: "spark" });
  } catch (error) {
    problem.textContent = error.message;
  }
}

function fact({ key, label, value, unit }) {
  return make("div", {}, make("dt", {}, label), make("dd", { "data-fact": key }, shown(value, unit)));
}

function shown(value, unit) {
  if (unit === "time") return new Date(value).toLocaleTimeString("en-GB");
  if (unit === "ms") return duration(value / 1000);
  if (unit === "bytes") return value < 10000 ? `${whole(value)} bytes` : `${whole(Math.round(value / 1000))} kB`;
  return whole(value);
}

function tableRow({ name, rows }) {
  const last = before.get(name) ?? rows;
  before.set(name, rows);
  const grown = rows > last ? make("span", { class: "grown" }, ` +${whole(rows - last)}`) : null;
  return make("li", { "data-table": name }, make("code", {}, name), " ", make("b", {}, whole(rows)), " rows", grown);
}
