"use strict";
// The graph by keys: along its edges, to the next node beside, into parts, nearer and farther.
E.Graph.prototype.key = function (e) {
  const here = e.target.closest && e.target.closest(".node"),
    n = here && d3.select(here).datum();
  if (e.ctrlKey || e.metaKey || e.altKey) return;
  if (e.key === "+" || e.key === "=") {
    this.zoomBy(1.35);
    e.preventDefault();
    return;
  }
  if (e.key === "-") {
    this.zoomBy(1 / 1.35);
    e.preventDefault();
    return;
  }
  if (e.key === "0") {
    this.fit();
    e.preventDefault();
    return;
  }
  if (!n) return;
  if (e.key === "Enter" || e.key === " ") {
    e.preventDefault();
    this.choose(n);
    return;
  }
  let to;
  if (e.key === "ArrowDown") to = this.near(n, this.next.get(n.id));
  else if (e.key === "ArrowUp") to = this.near(n, this.before.get(n.id));
  else if (e.key === "ArrowLeft" || e.key === "ArrowRight") {
    const sign = e.key === "ArrowRight" ? 1 : -1;
    const row = [...this.placed.values()].filter((m) => m !== n && (m.x - n.x) * sign > 0);
    to = d3.least(row, (m) => Math.abs(m.x - n.x) + 6 * Math.abs(m.y - n.y));
  } else return;
  e.preventDefault();
  if (to) {
    this.center(to.id);
    this.focus(to.id);
  }
};

// Of some nodes the nearest to one.
E.Graph.prototype.near = function (n, ids) {
  return d3.least(
    (ids || []).map((id) => this.placed.get(id)),
    (m) => Math.hypot(m.x - n.x, m.y - n.y),
  );
};

E.Graph.prototype.focus = function (id) {
  const node = document.getElementById("node-" + id);
  if (node) node.focus({ preventScroll: true });
};
