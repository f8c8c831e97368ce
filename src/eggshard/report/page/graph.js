"use strict";
// The graph: runs of steps collapsed to one node each, opened when asked; only what is visible is laid out and drawn.
E.Graph = class {
  constructor(panel) {
    this.open = new Set();
    this.root = E.parts();
    this.inputs = E.data.inputs.length <= 12 && E.count <= 100;
    this.bar = E.el(
      "div",
      { class: "bar" },
      E.el("button", { type: "button", onclick: () => this.zoomBy(1.35) }, "Zoom in ", E.el("kbd", {}, "+")),
      E.el("button", { type: "button", onclick: () => this.zoomBy(1 / 1.35) }, "Zoom out ", E.el("kbd", {}, "\u2212")),
      E.el("button", { type: "button", onclick: () => this.fit() }, "Fit ", E.el("kbd", {}, "0")),
      E.el(
        "button",
        {
          type: "button",
          id: "collapse",
          onclick: () => {
            this.open = new Set([this.root]);
            this.draw();
            this.fit();
          },
        },
        "Collapse all",
      ),
      E.el(
        "button",
        {
          type: "button",
          "aria-pressed": String(this.inputs),
          onclick: (e) => {
            this.inputs = !this.inputs;
            e.currentTarget.setAttribute("aria-pressed", String(this.inputs));
            this.draw();
            this.fit();
          },
        },
        "Inputs, outputs",
      ),
      (this.note = E.el("span", { class: "note" })),
    );
    this.svg = d3
      .select(panel.appendChild(this.bar).parentNode)
      .append("svg")
      .attr("id", "graph")
      .attr("role", "group")
      .attr("aria-label", "Graph of steps. Arrow keys go along the edges, Enter selects a step or opens a part.");
    this.svg
      .append("defs")
      .append("marker")
      .attr("id", "arrow")
      .attr("viewBox", "0 0 8 8")
      .attr("refX", 7)
      .attr("refY", 4)
      .attr("markerWidth", 9)
      .attr("markerHeight", 9)
      .attr("markerUnits", "userSpaceOnUse")
      .attr("orient", "auto")
      .append("path")
      .attr("d", "M0,0L8,4L0,8z");
    this.canvas = this.svg.append("g");
    this.zoom = d3
      .zoom()
      .scaleExtent([0.02, 4])
      .on("zoom", (e) => {
        this.canvas.attr("transform", e.transform);
        // Below 11 pixels text is left out; titles tell it.
        this.svg.classed("far", 11 * e.transform.k < 11 - 1e-3);
      });
    this.svg.call(this.zoom).on("dblclick.zoom", null);
    this.svg.on("keydown", (e) => this.key(e));
    this.open.add(this.root);
    if (E.count <= 100) this.openAll(this.root);
    this.draw();
    requestAnimationFrame(() => this.fit());
    E.on("select", (i, source) => {
      if (source !== "graph") this.reveal(i);
      this.mark();
    });
    E.on("filter", () => this.mark());
  }

  children(node) {
    return (node.children ||= node.make());
  }
  openAll(node) {
    if (node.step === undefined) {
      this.open.add(node);
      this.children(node).forEach((c) => this.openAll(c));
    }
  }

  reveal(i) {
    let node = this.root,
      changed = false;
    while (node.step === undefined) {
      if (!this.open.has(node)) {
        this.open.add(node);
        changed = true;
      }
      node = this.children(node).find((c) => i >= c.start && i < c.start + c.count);
    }
    if (changed) this.draw();
    this.center("s" + i);
  }

  draw() {
    const shown = [],
      clusters = [],
      of = new Array(E.count);
    const visit = (node, parent) => {
      if (node.step !== undefined) {
        shown.push({ id: "s" + node.step, node, parent });
        of[node.step] = "s" + node.step;
        return;
      }
      if (this.open.has(node)) {
        const id = node === this.root ? parent : "c" + node.start + "+" + node.count;
        if (node !== this.root) clusters.push({ id, node, parent });
        for (const c of this.children(node)) visit(c, id);
        return;
      }
      const id = "g" + node.start + "+" + node.count;
      shown.push({ id, node, parent });
      of.fill(id, node.start, node.start + node.count);
    };
    visit(this.root, undefined);
    const edges = new Map(),
      link = (a, b, v) => {
        if (a === b) return;
        const key = a + ">" + b,
          known = edges.get(key);
        if (known) known.values.add(v);
        else edges.set(key, { a, b, values: new Set([v]) });
      };
    const ends = [];
    if (this.inputs) {
      const single = E.data.inputs.length > 40;
      E.data.inputs.forEach((v, n) => {
        if (!E.users[v].length) return;
        const id = single ? "in" : "in" + n;
        if (!ends.some((e) => e.id === id))
          ends.push({ id, end: single ? `${E.data.inputs.length} inputs` : `input ${E.name(v)}`, value: single ? -1 : v });
        for (const u of E.users[v]) link(id, of[u], v);
      });
      const one = E.data.outputs.length > 40;
      E.data.outputs.forEach((v, n) => {
        const id = one ? "out" : "out" + n;
        if (!ends.some((e) => e.id === id))
          ends.push({ id, end: one ? `${E.data.outputs.length} outputs` : `output ${E.text(E.data.output_names[n])}`, value: one ? -1 : v });
        if (E.maker[v] >= 0) link(of[E.maker[v]], id, v);
      });
    }
    // Constants that several parts share would tie everything to everything: their edges are drawn within a part only.
    const parent = new Map(shown.map((n) => [n.id, n.parent]));
    for (let i = 0; i < E.count; i++) {
      for (const v of E.data.steps.operands[i]) {
        const m = E.maker[v] >= 0 ? E.maker[v] : (E.enters.get(v) ?? -1);
        if (m < 0) continue;
        const a = of[m],
          b = of[i];
        if (
          a !== b &&
          !E.data.steps.operands[m].length &&
          E.count > 100 &&
          (parent.get(a) !== parent.get(b) || a[0] === "g" || b[0] === "g")
        )
          continue;
        link(a, b, v);
      }
    }
    this.lay([...shown, ...ends], clusters, [...edges.values()]);
  }

  lay(nodes, clusters, edges) {
    const g = new dagre.graphlib.Graph({ compound: true, multigraph: false });
    g.setGraph({
      rankdir: "TB",
      nodesep: 16,
      ranksep: 34,
      marginx: 10,
      marginy: 10,
      ranker: nodes.length > 150 ? "longest-path" : "network-simplex",
    }).setDefaultEdgeLabel(() => ({}));
    for (const n of nodes) {
      const lines = this.lines(n);
      n.lines = lines;
      g.setNode(n.id, {
        width: Math.max(70, d3.max(lines, (l, k) => l.length * (k ? 6.4 : 7)) + 16),
        height: 12 + 15 * lines.length,
      });
    }
    for (const c of clusters) g.setNode(c.id, {});
    for (const n of [...nodes, ...clusters]) if (n.parent) g.setParent(n.id, n.parent);
    for (const e of edges) g.setEdge(e.a, e.b, {});
    dagre.layout(g);
    this.placed = new Map(nodes.map((n) => [n.id, Object.assign(n, g.node(n.id))]));
    this.next = new Map();
    this.before = new Map();
    for (const e of edges) {
      (this.next.get(e.a) || this.next.set(e.a, []).get(e.a)).push(e.b);
      (this.before.get(e.b) || this.before.set(e.b, []).get(e.b)).push(e.a);
    }
    this.canvas.selectAll("*").remove();
    const boxes = this.canvas
      .append("g")
      .selectAll("g")
      .data(clusters)
      .join("g")
      .attr("class", "cluster")
      .each(function (c) {
        c.at = g.node(c.id);
      })
      .attr("transform", (c) => `translate(${c.at.x - c.at.width / 2},${c.at.y - c.at.height / 2})`);
    boxes
      .append("rect")
      .attr("width", (c) => c.at.width)
      .attr("height", (c) => c.at.height)
      .attr("rx", 8);
    const line = d3
      .line()
      .x((p) => p.x)
      .y((p) => p.y)
      .curve(d3.curveBasis);
    this.canvas
      .append("g")
      .selectAll("path")
      .data(edges)
      .join("path")
      .attr("class", "edge")
      .attr("marker-end", "url(#arrow)")
      .attr("d", (e) => line(g.edge(e.a, e.b).points))
      .attr("stroke-width", (e) => Math.min(5, 1 + Math.log2(e.values.size) / 2))
      .append("title")
      .text(
        (e) =>
          [...e.values]
            .slice(0, 6)
            .map((v) => `${E.name(v)} ${E.localType(v)}${E.tensorOf(v) ? " " + E.placementText(E.tensorOf(v)) : ""}`)
            .join("\n") + (e.values.size > 6 ? `\nand ${e.values.size - 6} more` : ""),
      );
    const fold = boxes
      .append("g")
      .attr("class", "fold")
      .attr("tabindex", 0)
      .attr("role", "button")
      .attr("aria-label", (c) => `Close ${c.node.label}`)
      .on("click", (e, c) => this.close(c.node))
      .on("keydown", (e, c) => {
        if (e.key === "Enter" || e.key === " ") {
          e.preventDefault();
          e.stopPropagation();
          this.close(c.node);
        }
      });
    fold
      .append("rect")
      .attr("x", 6)
      .attr("y", 5)
      .attr("width", (c) => 24 + c.node.label.length * 7)
      .attr("height", 19)
      .attr("rx", 4);
    fold
      .append("text")
      .attr("x", 12)
      .attr("y", 18)
      .text((c) => "\u2212 " + c.node.label);
    const self = this;
    this.nodes = this.canvas
      .append("g")
      .selectAll("g")
      .data(nodes)
      .join("g")
      .attr("id", (n) => "node-" + n.id)
      .attr("transform", (n) => `translate(${n.x},${n.y})`)
      .attr("tabindex", (n, k) => (k ? -1 : 0))
      .attr("role", "button")
      .attr("class", (n) => "node " + (n.end ? "end" : n.node.step === undefined ? "group" : E.kind(n.node.step)))
      .attr(
        "aria-label",
        (n) => n.lines.join(", ") + (n.node && n.node.step === undefined ? ", closed part, Enter opens" : ""),
      )
      .attr("aria-expanded", (n) => (n.node && n.node.step === undefined ? "false" : null))
      .on("click", (e, n) => this.choose(n))
      .on("focus", function (e, n) {
        self.focused = n.id;
        self.nodes.attr("tabindex", (m) => (m === n ? 0 : -1));
      });
    this.nodes
      .append("rect")
      .attr("x", (n) => -n.width / 2)
      .attr("y", (n) => -n.height / 2)
      .attr("width", (n) => n.width)
      .attr("height", (n) => n.height)
      .attr("rx", (n) => (n.end ? 14 : 5));
    this.nodes.each(function (n) {
      const t = n.end
        ? n.value >= 0
          ? E.tensorOf(n.value)
          : null
        : n.node.step !== undefined
          ? E.result(n.node.step)
          : null;
      if (t && E.dress(this, t)) this.classList.add("placed");
      const text = d3.select(this).append("text").attr("text-anchor", "middle");
      n.lines.forEach((l, k) =>
        text
          .append("tspan")
          .attr("x", 0)
          .attr("y", -n.height / 2 + 17 + 15 * k)
          .attr("font-size", k ? 11 : 12)
          .text(l),
      );
    });
    this.size = [g.graph().width, g.graph().height];
    this.middle = d3.least(nodes, (n) => n.y)?.x ?? 0; // of the topmost node
    const closed = nodes.filter((n) => n.node && n.node.step === undefined).length;
    this.note.textContent = closed
      ? `${closed} of ${nodes.length} nodes are closed parts: Enter or click opens one`
      : `${nodes.length} nodes`;
    this.mark();
  }

  lines(n) {
    if (n.end) return [n.end, ...(n.value >= 0 && E.tensorOf(n.value) ? [E.placementText(E.tensorOf(n.value))] : [])];
    if (n.node.step !== undefined) {
      const i = n.node.step,
        t = E.result(i),
        where = t ? E.placementText(t) : "";
      return [
        `${E.address(i)} ${E.title(i)}`.slice(0, 44),
        [where.slice(0, 34), E.seconds(i) > 0 ? E.price(E.seconds(i)) : "", E.bytes(i) ? E.size(E.bytes(i)) : ""]
          .filter(Boolean)
          .join(" \u00b7 "),
      ].filter(Boolean);
    }
    const range = E.outermost(n.node.start, n.node.count),
      all = d3.range(n.node.start, n.node.start + n.node.count),
      sends = all.filter((i) => E.kind(i) === "collective");
    return [
      `${n.node.label}`,
      `${n.node.count} steps \u00b7 ${E.price(d3.sum(range, E.seconds))}`,
      ...(sends.length
        ? [`${sends.length} collective${sends.length > 1 ? "s" : ""} \u00b7 ${E.size(d3.sum(range, E.bytes))}`]
        : []),
    ];
  }

  choose(n) {
    if (n.end) {
      if (n.value >= 0) E.say(n.lines.join(", "));
      return;
    }
    if (n.node.step !== undefined) {
      E.select(n.node.step, "graph");
      return;
    }
    this.open.add(n.node);
    this.draw();
    const first = this.children(n.node)[0],
      id = first.step !== undefined ? "s" + first.step : "g" + first.start + "+" + first.count;
    this.center(id);
    this.focus(id);
  }

  close(node) {
    this.open.delete(node);
    this.draw();
    const id = "g" + node.start + "+" + node.count;
    this.center(id);
    this.focus(id);
  }

  mark() {
    if (!this.nodes) return;
    const step = E.state.step;
    this.nodes
      .classed("selected", (n) => n.node && step >= n.node.start && step < n.node.start + n.node.count)
      .classed("out", (n) => {
        if (!n.node || !E.filtered) return false;
        for (let i = n.node.start; i < n.node.start + n.node.count; i++) if (E.mask[i]) return false;
        return true;
      });
  }

  area() {
    const box = this.svg.node().getBoundingClientRect();
    return [box.width || 800, box.height || 500];
  }
  zoomBy(k) {
    this.svg.call(this.zoom.scaleBy, k);
  }
  fit() {
    const [w, h] = this.area(),
      [gw, gh] = this.size,
      k = Math.max(Math.min(1.1, (w - 20) / gw, (h - 20) / gh), 1); // large graphs go beyond the view, and are moved
    const tall = gh * k > h;
    this.svg.call(
      this.zoom.transform,
      d3.zoomIdentity.translate(gw * k > w ? Math.min(8, w / 2 - this.middle * k) : (w - gw * k) / 2, tall ? 8 : (h - gh * k) / 2).scale(k),
    );
  }
  center(id) {
    const n = this.placed.get(id);
    if (!n) return;
    const [w, h] = this.area(),
      k = Math.max(d3.zoomTransform(this.svg.node()).k, 1);
    this.svg.call(this.zoom.transform, d3.zoomIdentity.translate(w / 2 - n.x * k, h / 2 - n.y * k).scale(k));
  }
};
