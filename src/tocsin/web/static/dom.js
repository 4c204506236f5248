// Elements are created, never parsed from text, so that no user input becomes markup.

export const byId = (id) => document.getElementById(id);

export function make(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

export function svg(name, attributes = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.filter((each) => each !== null && each !== undefined));
  return element;
}

export async function ask(path) {
  const answer = await fetch(path);
  const content = await answer.json();
  if (!answer.ok) throw new Error(content.error ?? answer.statusText);
  return content;
}

export async function act(name, content) {
  const answer = await fetch(`/api/${name}`, {
    method: "POST",
    headers: { "Content-Type": "application/json", "X-Tocsin": "1" },
    body: JSON.stringify(content),
  });
  const text = await answer.text();
  let said;
  try {
    said = JSON.parse(text);
  } catch {
    said = { error: text };
  }
  if (!answer.ok) throw new Error(said?.error ?? answer.statusText);
  return said;
}

// Tells screen readers in one sentence what changed.
export function say(text) {
  byId("said").textContent = text;
}

export const whole = (number) => number.toLocaleString("en");

export function duration(seconds) {
  const sign = seconds < 0 ? "−" : "";
  const value = Math.abs(seconds);
  if (value < 0.001) return `${sign}${Math.round(value * 1e6)} µs`;
  if (value < 1) return `${sign}${short(value * 1000)} ms`;
  if (value < 120) return `${sign}${short(value)} s`;
  return `${sign}${short(value / 60)} min`;
}

const short = (value) => String(Number(value.toPrecision(value < 100 ? 2 : 3)));
