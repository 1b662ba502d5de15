// Keeps a page true, and the keyboard useful. Everything works without it, but for that.
"use strict";
(() => {
  const view = () => document.getElementById("view");
  const help = document.getElementById("help");
  const live = () => document.getElementById("live");
  const LEAST_MILLIS = 3000;
  // Pages that load themselves anew may share what is drawn for them.
  const ANEW = { headers: { accept: "text/html", "fedsched-refresh": "1" } };
  let loading = false, loadedAt = Date.now(), changed = false, leader = "";

  // What a person is about to do must not be taken away.
  const isBusy = () => document.hidden || help.open || (window.getSelection() || "").toString() !== ""
    || (view().contains(document.activeElement) && document.activeElement !== view()
        && document.activeElement.matches("input, select, textarea"));

  const refresh = async () => {
    if (loading) return;
    loading = true;
    try {
      const answer = await fetch(location.href, ANEW);
      if (answer.redirected) { location.reload(); return; }
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const next = page.getElementById("view");
      if (!answer.ok || !next) { say("Not refreshed: the control plane answers " + answer.status); return; }
      swap(next);
      changed = false;
      loadedAt = Date.now();
      say("");
    } catch {
      say("Not refreshed: the control plane cannot be reached");
    } finally {
      loading = false;
    }
  };

  const swap = (next) => {
    const open = [...view().querySelectorAll("details")].map((each) => each.open);
    const scrolled = [...view().querySelectorAll(".wide")].map((each) => each.scrollLeft);
    const focused = place(document.activeElement);
    view().replaceChildren(...next.childNodes);
    view().querySelectorAll("details").forEach((each, at) => { each.open = open[at] || each.open; });
    view().querySelectorAll(".wide").forEach((each, at) => { each.scrollLeft = scrolled[at] || 0; });
    if (focused) view().querySelector(focused)?.focus({ preventScroll: true });
  };

  // How to find a link again that has the focus.
  const place = (element) => {
    if (!element || !view().contains(element)) return "";
    const address = element.getAttribute("href");
    return address ? `a[href="${CSS.escape(address)}"]` : "";
  };

  const say = (text) => { if (live()) live().textContent = text ? " ▲ " + text + "." : ""; };

  const look = () => {
    if (changed && !isBusy() && Date.now() - loadedAt >= LEAST_MILLIS) refresh();
  };

  const listen = () => {
    const events = new EventSource("/ui/events");
    events.addEventListener("changed", () => { changed = true; look(); });
    events.addEventListener("error", () => { changed = true; });
    window.addEventListener("pagehide", () => events.close());
    document.addEventListener("visibilitychange", look);
    setInterval(look, LEAST_MILLIS);
  };

  const keys = (event) => {
    const typing = event.target.matches("input, select, textarea");
    if (event.key === "Escape" && typing) { event.target.blur(); return; }
    if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
    const tab = leader === "g" && document.querySelector(`nav a[data-key="${CSS.escape(event.key)}"]`);
    leader = event.key === "g" ? "g" : "";
    if (tab) { tab.click(); return; }
    const actions = {
      "/": () => document.querySelector("[data-search]")?.focus(),
      "?": () => help.showModal(),
      "r": () => location.reload(),
    };
    if (actions[event.key]) { event.preventDefault(); actions[event.key](); }
  };

  const middle = (element) => {
    const { left, width } = element.getBoundingClientRect();
    return left + width / 2;
  };

  document.addEventListener("keydown", keys);
  // On a phone the tabs go beyond the edge. scrollIntoView would let the Tab key begin there.
  const here = document.querySelector("nav a[aria-current]"), tabs = here?.closest("nav");
  if (tabs) tabs.scrollLeft += middle(here) - middle(tabs);
  const button = document.getElementById("help-button");
  button.hidden = false;
  button.addEventListener("click", () => help.showModal());
  if (document.body.hasAttribute("data-live") && window.EventSource) listen();
})();
