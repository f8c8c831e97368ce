"use strict";
// What a reader looks for first: findings in words, each with a walk through its steps, and where time goes by part.
E.overview = function (panel) {
  const box = E.el("div", { class: "pad findings" });
  for (const [title, text, steps] of E.data.findings) {
    let at = -1;
    const place = E.el("span", { class: "note" });
    const go = (by) => {
      at = (at + by + steps.length) % steps.length;
      place.textContent = `${at + 1} of ${steps.length}`;
      E.select(steps[at], "findings");
    };
    box.append(
      E.el(
        "section",
        { "aria-label": title },
        E.el("h2", {}, title),
        E.el("p", {}, E.micro(text)),
        steps.length
          ? E.el(
              "p",
              { class: "walk" },
              E.el("button", { type: "button", onclick: () => go(1) }, steps.length > 1 ? "Next step" : "Show the step"),
              steps.length > 1
                ? E.el("button", { type: "button", onclick: () => go(at < 0 ? 0 : -1) }, "Previous")
                : null,
              place,
            )
          : null,
      ),
    );
  }
  panel.append(box, E.partsTable((row) => E.select(row.start, "parts")));
};

// What each part takes, communication and the rest; onrow where one is chosen.
E.partsTable = function (onrow) {
  const total = E.data.makespan || 1;
  const rows = E.data.groups.map(([name, start, count]) => {
    const range = E.outermost(start, count),
      sends = range.filter((i) => E.bytes(i));
    return {
      name,
      start,
      count,
      seconds: d3.sum(range, E.seconds),
      sends: d3.range(start, start + count).filter((i) => E.kind(i) === "collective").length,
      sending: d3.sum(sends, E.seconds),
      bytes: d3.sum(sends, E.bytes),
    };
  });
  const most = d3.max(rows, (r) => r.seconds) || 1;
  const share = (r) =>
    E.el(
      "span",
      { class: "share", style: `width:${(140 * r.seconds) / most}px`, title: "communication, and all of it" },
      E.el("span", { style: `width:${(100 * r.sending) / (r.seconds || 1)}%` }),
    );
  return E.el(
    "div",
    { class: "pad" },
    E.el(
      "p",
      { class: "legend" },
      E.el("span", { class: "key" }, E.el("span", { class: "dot collective" }), "communication"),
      E.el("span", { class: "key" }, E.el("span", { class: "dot compute" }), "the rest"),
    ),
    E.table(
      "Parts of the plan; choosing one goes there.",
      [
        ["part", (r) => r.name],
        ["steps", (r) => String(r.count), true],
        ["price", (r) => E.price(r.seconds), true],
        ["of the plan", (r) => `${((100 * r.seconds) / total).toFixed(1)} %`, true],
        ["", share],
        ["communication", (r) => E.price(r.sending), true],
        ["collectives", (r) => String(r.sends), true],
        ["received", (r) => (r.bytes ? E.size(r.bytes) : "\u2013"), true],
      ],
      rows,
      onrow,
    ),
  );
};
