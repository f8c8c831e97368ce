"use strict";
// The schedule: one lane for computing and one for each link, drawn on a canvas, as far as it is in view.
E.Timeline = class {
  constructor(panel) {
    this.lanes = E.data.lanes.map(([name]) => name);
    this.most = d3.max(E.data.steps.alive) || 1;
    this.bar = E.el(
      "div",
      { class: "bar" },
      E.el("button", { type: "button", onclick: () => this.zoomBy(1.6) }, "Zoom in ", E.el("kbd", {}, "+")),
      E.el("button", { type: "button", onclick: () => this.zoomBy(1 / 1.6) }, "Zoom out ", E.el("kbd", {}, "\u2212")),
      E.el("button", { type: "button", onclick: () => this.reset() }, "All ", E.el("kbd", {}, "0")),
      E.el(
        "span",
        { class: "note" },
        `${E.price(E.data.makespan)} in all; ` +
          E.data.lanes.map(([n, s]) => `${n} held ${E.price(s)}`).join(", ") +
          `; shards of ${E.size(this.most)} at most, step by step`,
      ),
    );
    this.canvas = E.el("canvas", {
      id: "timeline",
      tabindex: "0",
      role: "application",
      "aria-roledescription": "timeline",
      "aria-label":
        "Timeline of steps. Left and Right go from step to step, Home and End to the first and last, plus and minus zoom. The list of steps has the same as text.",
    });
    this.memory = 64;
    // What is drawn of branches is the dearest one, which is what they take.
    this.left = new Uint8Array(E.count);
    for (const programs of Object.values(E.data.steps.inside)) {
      const takes = ([, first, n]) => d3.sum(E.outermost(first, n), E.seconds),
        least = programs.every(([address]) => /branch\d+$/.test(address)) ? d3.greatest(programs, takes) : null;
      for (const p of programs) if (least && p !== least) this.left.fill(1, p[1], p[1] + p[2]);
    }
    this.ends = E.data.groups.map(([, start, count]) => d3.max(E.outermost(start, count), (i) => E.data.steps.end[i]));
    this.canvas.style.height = 46 + 34 + this.memory + this.lanes.length * Math.min(80, Math.max(30, 320 / this.lanes.length)) + "px";
    panel.append(this.bar, this.legend(), this.canvas, this.parts());
    this.x = d3.scaleLinear().domain([0, E.data.makespan || 1]);
    this.zoom = d3
      .zoom()
      .scaleExtent([1, Math.max(50, E.count)])
      .on("zoom", (e) => {
        this.transform = e.transform;
        this.draw();
      });
    this.transform = d3.zoomIdentity;
    this.select = d3.select(this.canvas).call(this.zoom).on("dblclick.zoom", null);
    this.canvas.addEventListener("keydown", (e) => this.key(e));
    this.canvas.addEventListener("click", (e) => {
      const i = this.at(e.offsetX, e.offsetY);
      if (i >= 0) E.select(i, "timeline");
    });
    this.canvas.addEventListener("mousemove", (e) => {
      const i = this.at(e.offsetX, e.offsetY);
      E.tip(
        i < 0 ? "" : `${E.address(i)} ${E.title(i)}: ${E.price(E.seconds(i))}${E.bytes(i) ? ", " + E.size(E.bytes(i)) : ""}`,
        e.clientX,
        e.clientY,
      );
    });
    this.canvas.addEventListener("mouseleave", () => E.tip(""));
    this.canvas.addEventListener("focus", () => this.draw());
    new ResizeObserver(() => this.resize()).observe(this.canvas);
    E.on("select", (i) => {
      this.show(i);
      this.draw();
    });
    E.on("filter", () => this.draw());
    E.on("theme", () => this.draw());
  }

  // What each part takes; choosing one goes there.
  parts() {
    const s = E.data.steps,
      total = E.data.makespan || 1;
    return E.partsTable((r) => {
      const a = s.start[r.start],
        b = d3.max(E.outermost(r.start, r.count), (i) => s.end[i]);
      if (b > a)
        this.select
          .call(this.zoom.transform, d3.zoomIdentity)
          .call(this.zoom.scaleTo, Math.max(1, (0.8 * total) / (b - a)))
          .call(this.zoom.translateTo, this.x((a + b) / 2), 0);
      E.select(r.start, "parts");
    });
  }

  // What colours mean, as far as the plan has them.
  legend() {
    const shown = [...new Set(d3.range(E.count).map(E.kind))].filter((kind) => kind !== "view");
    return E.el(
      "p",
      { class: "legend beside" },
      ...shown.map((kind) => E.el("span", { class: "key" }, E.el("span", { class: "dot " + kind }), kind)),
      E.data.steps.lanes.some((lanes) => lanes.length > 1)
        ? E.el("span", { class: "key" }, E.el("span", { class: "dot waits" }), "computing waits for a collective")
        : null,
    );
  }

  resize() {
    const box = this.canvas.getBoundingClientRect(),
      k = devicePixelRatio || 1;
    if (!box.width) return;
    [this.w, this.h] = [box.width, box.height];
    this.canvas.width = Math.round(box.width * k);
    this.canvas.height = Math.round(box.height * k);
    this.x.range([90, this.w - 14]);
    this.zoom
      .translateExtent([
        [90, 0],
        [this.w - 14, this.h],
      ])
      .extent([
        [90, 0],
        [this.w - 14, this.h],
      ]);
    this.draw();
  }

  rows() {
    const top = 46,
      each = Math.max(26, Math.min(90, (this.h - top - 34 - this.memory) / this.lanes.length));
    return { top, each };
  }

  // How far down in a lane a step begins: those of loops and branches stand in the lower part of their step.
  inset(i, each) {
    return each * (1 - 0.6 ** E.depth(i));
  }

  draw() {
    if (!this.w) return;
    const c = this.canvas.getContext("2d"),
      k = devicePixelRatio || 1,
      css = getComputedStyle(document.documentElement),
      colour = (n) => css.getPropertyValue("--" + n).trim();
    c.setTransform(k, 0, 0, k, 0, 0);
    c.clearRect(0, 0, this.w, this.h);
    const x = this.transform.rescaleX(this.x),
      { top, each } = this.rows(),
      s = E.data.steps;
    c.font = "12px system-ui, sans-serif";
    c.textBaseline = "middle";
    c.save();
    c.beginPath();
    c.rect(90, 0, this.w - 104, this.h);
    c.clip();
    if (E.data.groups.length > 1) {
      E.data.groups.forEach(([name, start, count], g) => {
        const a = x(s.start[start]),
          b = x(this.ends[g]);
        if (b < 90 || a > this.w || b - a < 1) return;
        c.fillStyle = colour(g % 2 ? "panel" : "line");
        c.fillRect(a, 22, b - a, 18);
        if (b - a > 24) {
          c.save();
          c.beginPath();
          c.rect(a, 22, b - a - 2, 18);
          c.clip();
          c.fillStyle = colour("text");
          c.fillText(name, Math.max(a, 90) + 4, 31);
          c.restore();
        }
      });
    }
    const kinds = ["collective", "compute", "move", "control", "view"],
      colours = { ...Object.fromEntries(kinds.map((n) => [n, colour(n)])), waits: colour("soft") };
    const last = new Map();
    this.held(c, x, top + this.lanes.length * each, colour);
    for (let i = 0; i < E.count; i++) {
      const a = x(s.start[i]),
        b = x(s.end[i]);
      if (b < 88 || a > this.w || s.end[i] <= s.start[i] || (this.left[i] && i !== E.state.step)) continue;
      const inset = this.inset(i, each);
      for (const name of s.lanes[i]) {
        const lane = this.lanes.indexOf(name),
          row = lane + " " + E.depth(i);
        if (b - (last.get(row) ?? -1) < 0.35 && i !== E.state.step) continue;
        last.set(row, b);
        if (inset) {
          c.globalAlpha = 1;
          c.fillStyle = colour("page");
          c.fillRect(a - 0.5, top + lane * each + inset, Math.max(1.2, b - a + 0.5), each - inset - 3);
        }
        c.globalAlpha = E.mask[i] ? 1 : 0.15;
        if (lane === 0 && s.lanes[i].length > 1) {
          // It is drawn on its link. Here computing waits.
          c.fillStyle = colours.waits;
          c.fillRect(a, top + lane * each + each / 2 - 1 + inset / 2, Math.max(0.7, b - a), 2);
          continue;
        }
        c.fillStyle = colours[E.kind(i)];
        c.fillRect(a, top + lane * each + 3 + inset, Math.max(0.7, b - a - (b - a > 4 ? 1 : 0)), each - 6 - inset);
        if (b - a > 46) {
          c.save();
          c.beginPath();
          c.rect(a, top, b - a - 4, 4000);
          c.clip();
          c.fillStyle = colour("page");
          c.fillText(`${E.address(i)} ${E.what(i)}`, Math.max(a, 90) + 5, this.middle(i, top + lane * each, each));
          c.restore();
        }
      }
    }
    c.globalAlpha = 1;
    const i = E.state.step;
    if (i >= 0) {
      const a = x(s.start[i]),
        b = x(s.end[i]);
      c.strokeStyle = colour("text");
      c.lineWidth = 2.5;
      for (const name of s.lanes[i])
        c.strokeRect(
          a - 1,
          top + this.lanes.indexOf(name) * each + 1 + this.inset(i, each),
          Math.max(3, b - a) + 1,
          each - 2 - this.inset(i, each),
        );
      c.fillStyle = colour("text");
      c.fillText("\u25bc", Math.min(Math.max((a + b) / 2 - 5, 90), this.w - 20), 12);
    }
    c.restore();
    c.fillStyle = colour("text");
    this.lanes.forEach((name, n) => {
      c.fillText(name, 10, top + n * each + each / 2);
    });
    const low = top + this.lanes.length * each;
    c.fillText("held", 10, low + this.memory / 2);
    c.textAlign = "right";
    c.fillText(E.size(this.most), 86, low + 11);
    c.fillText("0", 86, low + this.memory - 5);
    c.textAlign = "left";
    const y = top + this.lanes.length * each + this.memory + 4;
    c.strokeStyle = c.fillStyle = colour("soft");
    c.lineWidth = 1;
    c.beginPath();
    c.moveTo(90, y);
    c.lineTo(this.w - 14, y);
    c.stroke();
    c.textAlign = "center";
    for (const t of x.ticks(Math.max(2, Math.floor(this.w / 130)))) {
      const at = x(t);
      if (at < 90) continue;
      c.beginPath();
      c.moveTo(at, y);
      c.lineTo(at, y + 5);
      c.stroke();
      c.fillText(E.price(t), at, y + 15);
    }
    c.textAlign = "left";
  }

  // Where the text of a step stands: above what is in it.
  middle(i, y, each) {
    const from = this.inset(i, each),
      to = E.data.steps.inside[i] ? each * (1 - 0.6 ** (E.depth(i) + 1)) : each;
    return y + (from + to) / 2 + 1;
  }

  // Bytes of shards on each device while steps run.
  held(c, x, y, colour) {
    const s = E.data.steps,
      high = this.memory - 10;
    c.fillStyle = colour("move");
    let drawn = -1;
    for (let i = 0; i < E.count; i++) {
      if (s.inside[i] || this.left[i] || s.end[i] <= s.start[i]) continue;
      const a = x(s.start[i]),
        b = x(s.end[i]);
      if (b < 88 || a > this.w || (b - drawn < 0.35 && s.alive[i] < this.most)) continue;
      drawn = b;
      const part = (high * s.alive[i]) / this.most;
      c.fillRect(a, y + 6 + high - part, Math.max(0.7, b - a), part);
    }
  }

  at(px, py) {
    const { top, each } = this.rows(),
      lane = this.lanes[Math.floor((py - top) / each)],
      x = this.transform.rescaleX(this.x),
      t = x.invert(px),
      s = E.data.steps,
      near = x.invert(px + 3) - t;
    if (!lane) return -1;
    const down = (py - top) % each;
    let best = -1,
      least = Infinity;
    for (let i = 0; i < E.count; i++) {
      if (s.end[i] <= s.start[i] || this.left[i] || down < this.inset(i, each) || !s.lanes[i].includes(lane)) continue;
      const away = t < s.start[i] ? s.start[i] - t : t > s.end[i] ? t - s.end[i] : 0;
      if (away < least || (away <= near && E.depth(i) > E.depth(best))) {
        least = away;
        best = i;
      }
    }
    return least <= near ? best : -1;
  }

  show(i) {
    if (!this.w) return;
    const s = E.data.steps,
      [a, b] = this.transform.rescaleX(this.x).domain();
    if (s.end[i] < a || s.start[i] > b) this.select.call(this.zoom.translateTo, this.x((s.start[i] + s.end[i]) / 2), 0);
  }

  zoomBy(k) {
    const i = E.state.step,
      s = E.data.steps;
    this.select.call(this.zoom.scaleBy, k);
    if (i >= 0) this.select.call(this.zoom.translateTo, this.x((s.start[i] + s.end[i]) / 2), 0);
  }
  reset() {
    this.select.call(this.zoom.transform, d3.zoomIdentity);
  }

  key(e) {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    const go = { ArrowRight: 1, ArrowLeft: -1 }[e.key];
    if (go) E.move(go);
    else if (e.key === "Home") E.select(E.first(0, 1), "timeline");
    else if (e.key === "End") E.select(E.first(E.count - 1, -1), "timeline");
    else if (e.key === "+" || e.key === "=") this.zoomBy(1.6);
    else if (e.key === "-") this.zoomBy(1 / 1.6);
    else if (e.key === "0") this.reset();
    else return;
    e.preventDefault();
  }
};
