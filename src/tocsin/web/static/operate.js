// The view `Operate`: numbers with their meaning. Elements are updated in place, so that opened details stay open.

import { byId, make, whole } from "./dom.js";
import { hoursChart, rangeChart, rangeTexts, sumBar } from "./charts.js";

const LEVELS = { good: "fine", look: "check", bad: "bad", plain: "" };
const RIGHT = ["tables", "latency", "routers", "fleet"]; // sections of the second column
const figures = new Map(); // key → element
const sections = new Map();

export function showOperate(view) {
  byId("as-of").textContent = `As of ${new Date(view.at * 1000).toLocaleTimeString("en-GB")}.`;
  const missing = Object.entries(view.missing).map(([name, why]) => make("p", { class: "notice" }, make("b", {}, `${name}: `), why));
  byId("missing").replaceChildren(...missing);
  const wanted = view.sections.map((section) => section.key).join(" ");
  if (wanted !== byId("sections").dataset.keys) {
    byId("sections").dataset.keys = wanted;
    sections.clear();
    figures.clear();
    const columns = [make("div"), make("div")];
    for (const section of view.sections) columns[Number(RIGHT.includes(section.key))].append(makeSection(section));
    byId("sections").replaceChildren(...columns);
  }
  view.sections.forEach(updateSection);
}

function makeSection(section) {
  const element = make(
    "section",
    { class: "card", "data-section": section.key, "aria-labelledby": `${section.key}-title` },
    make("h2", { id: `${section.key}-title` }, section.title),
    make("p", { class: "lead" }, section.lead),
    make("div", { class: "drawn" }),
    make("div", { class: "figures" }),
    make("div", { class: "listed" }),
  );
  sections.set(section.key, element);
  return element;
}

function updateSection(section) {
  const element = sections.get(section.key);
  element.querySelector(".drawn").replaceChildren(...drawn(section));
  const list = element.querySelector(".figures");
  const wanted = section.figures.map((figure) => figure.key).join(" ");
  if (list.dataset.keys !== wanted) {
    list.dataset.keys = wanted;
    list.replaceChildren(...section.figures.map(makeFigure));
  }
  section.figures.forEach(updateFigure);
  const listed = element.querySelector(".listed");
  const text = JSON.stringify(section.tables ?? []);
  if (listed.dataset.text !== text) {
    listed.dataset.text = text;
    listed.replaceChildren(...(section.tables ?? []).filter((table) => table.rows.length).map(makeTable));
  }
}

function drawn(section) {
  const shapes = [];
  if (section.sum) shapes.push(sumBar(section.sum));
  if (section.hours?.length > 1) shapes.push(hoursChart(section.hours));
  if (section.progress) {
    const { done, whole: all, label } = section.progress;
    const text = all ? `${whole(done)} of ${whole(all)} ${label}` : "nothing to subscribe to yet";
    shapes.push(make("progress", { value: done, max: all || 1, "aria-label": text }), make("p", { class: "legend" }, text));
  }
  if (section.ranges) {
    if (!section.ranges.length) shapes.push(make("p", { class: "empty" }, "Nothing has been measured yet."));
    else shapes.push(make("p", { class: "legend" }, "Longest time for ● 50 % · ■ 95 % · ▲ 99 % of them; each step to the right is ten times longer"));
    for (const range of section.ranges) {
      shapes.push(
        make(
          "div",
          { class: "range" },
          make("p", { class: "name" }, `${range.label} (${range.source})`),
          rangeChart(range),
          rangeTexts(range),
          make("p", {}, `${range.meaning} ${range.action}`),
        ),
      );
    }
  }
  return shapes;
}

function makeFigure(figure) {
  const element = make(
    "div",
    { class: "figure", "data-figure": figure.key },
    make("p", { class: "name" }, make("span", {}, figure.label), make("span", { class: "badge" })),
    make("p", { class: "value" }),
    make("p", { class: "meaning" }, figure.meaning),
    make("details", {}, make("summary", {}, "When to act"), make("p", {}, figure.action)),
  );
  figures.set(figure.key, element);
  return element;
}

function updateFigure(figure) {
  const element = figures.get(figure.key);
  const worse = figure.level === "look" || figure.level === "bad";
  if (worse && element.dataset.level !== figure.level) element.querySelector("details").open = true;
  element.dataset.level = figure.level;
  const badge = element.querySelector(".badge");
  badge.hidden = !LEVELS[figure.level];
  badge.textContent = LEVELS[figure.level];
  badge.dataset.level = figure.level;
  element.querySelector(".value").textContent = figure.value === null ? "unknown" : whole(figure.value);
}

function makeTable({ caption, columns, rows }) {
  const kinds = columns.map((_, index) => (rows.some((row) => typeof row[index] === "number") ? "number" : "words"));
  const cell = (value, index) => make("td", { class: kinds[index] }, typeof value === "number" ? whole(value) : value || "–");
  const heading = (text, index) => make("th", { scope: "col", class: kinds[index] }, text);
  const table = make(
    "table",
    {},
    make("caption", {}, caption),
    make("thead", {}, make("tr", {}, ...columns.map(heading))),
    make("tbody", {}, ...rows.map((row) => make("tr", {}, ...row.map(cell)))),
  );
  return make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption }, table);
}
