// Charts of the view `Operate`. Text or numbers next to each say the same.

import { duration, make, svg, whole } from "./dom.js";

const WIDTH = 520;

export function sumBar({ total, parts }) {
  const height = 26;
  const scale = total ? WIDTH / total : 0;
  let x = 0;
  const bars = parts.map((part) => {
    const width = Math.max(part.value, 0) * scale;
    const bar = svg("rect", { x, y: 0, width, height, "data-part-name": part.name }, svg("title", {}, `${part.label}: ${whole(part.value)}`));
    x += width;
    return bar;
  });
  const words = parts.map((part, index) =>
    make(
      "li",
      { "data-part-name": part.name },
      index ? "+ " : `${whole(total)} received = `,
      make("i", {}),
      `${whole(part.value)} ${part.label}`,
    ),
  );
  const drawing = svg(
    "svg",
    { viewBox: `0 0 ${WIDTH} ${height}`, "aria-hidden": "true" },
    svg("rect", { class: "track", x: 0, y: 0, width: WIDTH, height, rx: 4 }),
    ...bars,
  );
  return make("div", { class: "sum" }, drawing, make("ul", { class: "equation" }, ...words));
}

export function hoursChart(hours) {
  const height = 120;
  const most = Math.max(...hours.map((hour) => hour.received), 1);
  const step = WIDTH / hours.length;
  const names = ["accepted", "superseded", "failed", "shed", "pending", "difference"];
  const shapes = hours.flatMap((hour, index) => {
    let y = height;
    return names.map((name) => {
      const size = (Math.max(hour[name], 0) / most) * height;
      y -= size;
      const place = { x: index * step + 1, y, width: Math.max(step - 2, 1), height: size, "data-part-name": name };
      return svg("rect", place, svg("title", {}, `${hour.at} UTC, ${name}: ${whole(hour[name])}`));
    });
  });
  const title = `Notifications by hour (UTC), from ${hours[0].at} to ${hours.at(-1).at}, at most ${whole(most)} in an hour`;
  const drawing = svg(
    "svg",
    { viewBox: `0 -4 ${WIDTH} ${height + 24}`, role: "img", "aria-label": title },
    svg("line", { class: "axis", x1: 0, x2: WIDTH, y1: height, y2: height }),
    ...shapes,
    svg("text", { x: 0, y: height + 16 }, hours[0].at),
    svg("text", { x: WIDTH, y: height + 16, "text-anchor": "end" }, hours.at(-1).at),
  );
  return make("div", { class: "sum" }, make("p", { class: "legend" }, title), drawing);
}

// The axis runs from 100 µs to 1000 s in seven steps, each a factor of ten.
const LOW = -4;
const HIGH = 3;
const place = (seconds) => ((Math.min(Math.max(Math.log10(Math.max(seconds, 1e-9)), LOW), HIGH) - LOW) / (HIGH - LOW)) * (WIDTH - 20) + 10;

export function rangeChart({ quantiles }) {
  const [half, most, nearly] = quantiles.map(place);
  const axis = [];
  for (let power = LOW; power <= HIGH; power += 1) {
    axis.push(svg("line", { class: "axis", x1: place(10 ** power), x2: place(10 ** power), y1: 2, y2: 22 }));
  }
  return svg(
    "svg",
    { viewBox: `0 0 ${WIDTH} 24`, "aria-hidden": "true" },
    ...axis,
    svg("line", { class: "line", x1: half, x2: nearly, y1: 12, y2: 12 }),
    svg("circle", { class: "q0", cx: half, cy: 12, r: 6 }),
    svg("rect", { class: "q1", x: most - 5, y: 7, width: 10, height: 10 }),
    svg("polygon", { class: "q2", points: `${nearly - 7},18 ${nearly + 7},18 ${nearly},5` }),
  );
}

export function rangeTexts({ count, quantiles }) {
  const [half, most, nearly] = quantiles.map(duration);
  const texts = [`● ${half}`, `■ ${most}`, `▲ ${nearly}`, `of ${whole(count)}`];
  return make("ul", {}, ...texts.map((text) => make("li", {}, text)));
}
