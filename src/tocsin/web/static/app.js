// Chooses the view, and feeds both from the stream of events.

import { byId } from "./dom.js";
import { liveEvents } from "./live.js";
import { showOperate } from "./operate.js";

const VIEWS = ["live", "operate"];
let hasLive = false;

function show() {
  const wanted = location.hash.slice(1);
  const view = wanted === "operate" || !hasLive ? "operate" : "live";
  for (const each of VIEWS) {
    byId(each).hidden = each !== view;
    const link = byId(`to-${each}`);
    if (each === view) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${view === "live" ? "Live" : "Operate"} · Tocsin`;
}

function subscribe() {
  const stream = new EventSource("/api/events");
  const link = byId("link");
  const handle = (name, show) => stream.addEventListener(name, (event) => show(JSON.parse(event.data)));
  stream.onopen = () => {
    link.textContent = "connected";
    link.dataset.level = "good";
  };
  stream.onerror = () => {
    link.textContent = "connection lost, reconnecting";
    link.dataset.level = "bad";
    if (stream.readyState === EventSource.CLOSED) setTimeout(subscribe, 2000);
  };
  handle("page", (page) => {
    hasLive = page.live;
    byId("to-live").hidden = !hasLive;
    show();
  });
  handle("operate", showOperate);
  for (const [name, show] of Object.entries(liveEvents)) handle(name, show);
}

addEventListener("hashchange", () => {
  if (!VIEWS.includes(location.hash.slice(1))) return; // the link that skips to the content
  show();
  scrollTo(0, 0);
  byId("main").focus({ preventScroll: true });
});
subscribe();
