"use strict";
// What every page has: its data, read once; events; views in tabs; the search box; keys, and the list of them.
const E = { data: null, listeners: {}, state: { step: -1, tab: "" }, made: {} };

E.load = async function () {
  const coded = document.getElementById("data").textContent;
  const bytes = Uint8Array.from(atob(coded), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  E.data = JSON.parse(await new Response(stream).text());
};

E.on = (event, f) => (E.listeners[event] ||= []).push(f);
E.emit = (event, ...values) => (E.listeners[event] || []).forEach((f) => f(...values));

// Reads the data, and makes tabs and keys work. The page's own script then shows a view, and calls E.ready.
E.open = async function () {
  E.theme(matchMedia("(prefers-color-scheme: dark)").matches);
  await E.load();
  E.tabs();
  document
    .getElementById("theme")
    .addEventListener("click", () => E.theme(document.documentElement.dataset.theme !== "dark"));
  document.getElementById("help-open").addEventListener("click", E.help);
  document.addEventListener("keydown", E.key);
};

E.ready = function () {
  performance.mark("ready");
  document.documentElement.dataset.ready = "true";
};

E.theme = function (dark) {
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  const button = document.getElementById("theme");
  button.setAttribute("aria-pressed", String(dark));
  E.emit("theme");
};

// Figures in the header: [name, value, what follows in small].
E.totals = function (figures) {
  document
    .getElementById("totals")
    .append(
      ...figures.map(([name, value, more]) =>
        E.el("div", {}, E.el("dt", {}, name), E.el("dd", {}, value, E.el("small", {}, more || ""))),
      ),
    );
};

// E.views are [key, title, function that fills its panel]; panels are filled when they are first looked at.
E.show = function (name, focus) {
  E.state.tab = name;
  for (const [key, , make] of E.views) {
    const tab = document.getElementById("tab-" + key),
      panel = document.getElementById("panel-" + key),
      on = key === name;
    tab.setAttribute("aria-selected", String(on));
    tab.tabIndex = on ? 0 : -1;
    panel.hidden = !on;
    if (on && !E.made[key]) {
      E.made[key] = true;
      make(panel);
    }
    if (on && focus) tab.focus();
  }
};

E.tabs = function () {
  const tabs = document.getElementById("tabs");
  tabs.append(
    ...E.views.map(([key, title]) =>
      E.el(
        "button",
        { type: "button", role: "tab", id: "tab-" + key, "aria-controls": "panel-" + key, onclick: () => E.show(key) },
        title,
      ),
    ),
  );
  document
    .getElementById("views")
    .append(
      ...E.views.map(([key]) =>
        E.el("div", { role: "tabpanel", id: "panel-" + key, "aria-labelledby": "tab-" + key, hidden: true }),
      ),
    );
  tabs.addEventListener("keydown", (e) => {
    const at = E.views.findIndex(([key]) => key === E.state.tab),
      to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: E.views.length - 1 }[e.key];
    if (to === undefined) return;
    e.preventDefault();
    E.show(E.views[(to + E.views.length) % E.views.length][0], true);
  });
};

// The words of the search box; quotes keep words together.
E.words = () =>
  (
    document
      .getElementById("search")
      .value.toLowerCase()
      .match(/"[^"]*"|\S+/g) || []
  ).map((w) => w.replace(/"/g, ""));

E.search = function (text) {
  document.getElementById("search").value = text;
  E.filter();
};

// Filters while one types; submitted is called when Enter is pressed.
E.searching = function (submitted) {
  const form = document.getElementById("filters");
  let waiting;
  document.getElementById("search").addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => E.filter(), 80);
  });
  form.addEventListener("submit", (e) => {
    e.preventDefault();
    E.filter();
    submitted();
  });
  form.addEventListener("reset", () => setTimeout(() => E.filter()));
};

// What keys do, besides the digits, which show views.
E.actions = {
  "/": () => document.getElementById("search").focus(),
  t: () => E.theme(document.documentElement.dataset.theme !== "dark"),
  c: () => document.getElementById("reset").click(),
  "?": () => E.help(),
};

E.key = function (e) {
  const typing = e.target.matches("input, select, textarea") || document.getElementById("help").open;
  if (e.key === "Escape" && e.target.id === "search") {
    E.search(""); // browsers empty the field
    e.target.blur();
    return;
  }
  if (typing || e.ctrlKey || e.metaKey || e.altKey) return;
  const view = E.views[+e.key - 1];
  if (view) E.show(view[0], true);
  else if (Object.hasOwn(E.actions, e.key)) E.actions[e.key]();
  else return;
  e.preventDefault();
};

// E.keys are [key, what it does]; E.explanations() is what stands below them.
E.help = function () {
  const help = document.getElementById("help");
  help.replaceChildren(
    E.el("h2", { id: "help-title" }, "Keys"),
    E.table(
      "",
      [
        ["key", (r) => E.el("kbd", {}, r[0])],
        ["does", (r) => r[1]],
      ],
      E.keys,
    ),
    ...E.explanations(),
    E.el("p", {}, E.el("button", { type: "button", onclick: () => help.close() }, "Close")),
  );
  help.showModal();
};
