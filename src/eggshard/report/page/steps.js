"use strict";
// All steps as rows, of which only those in view are elements of the page.
E.Steps = class {
  constructor(panel) {
    this.height = 30;
    this.sort = { by: 0, down: false };
    this.columns = [
      ["step", (i) => i, E.address],
      ["what", (i) => E.what(i), (i) => E.what(i)],
      ["over", (i) => E.over(i), (i) => E.over(i)],
      [
        "placement",
        (i) => (E.result(i) ? E.placementText(E.result(i)) : ""),
        (i) => (E.result(i) ? E.chip(E.result(i)) : ""),
      ],
      ["received", (i) => E.bytes(i), (i) => (E.bytes(i) ? E.size(E.bytes(i)) : "\u2013"), true],
      ["time", (i) => E.seconds(i), (i) => E.price(E.seconds(i)), true],
      ["held", (i) => E.data.steps.alive[i], (i) => E.size(E.data.steps.alive[i]), true],
      ["part", (i) => E.groupOf[i], (i) => E.data.groups[E.groupOf[i]][0]],
    ].filter(([name]) => name !== "part" || E.data.groups.length > 1);
    this.grid = E.el("div", {
      class: "grid",
      role: "grid",
      tabindex: "0",
      id: "steps",
      "aria-label": "Steps. Up and Down go through them.",
      "aria-colcount": this.columns.length,
    });
    this.grid.style.setProperty("--address", Math.max(4, d3.max(E.data.steps.address, (a) => a.length) * 0.45 + 1.5) + "rem");
    this.head = E.el("div", { class: "row head", role: "row" });
    this.body = E.el("div", { class: "body", role: "rowgroup" });
    this.grid.append(this.head, this.body);
    panel.append(this.grid);
    this.heads();
    this.grid.addEventListener("scroll", () => this.draw());
    new ResizeObserver(() => this.draw()).observe(this.grid);
    this.grid.addEventListener("keydown", (e) => this.key(e));
    E.on("filter", () => this.arrange());
    E.on("select", (i, source) => {
      this.show(i);
      this.draw();
    });
    this.arrange();
    if (E.state.step >= 0) this.show(E.state.step);
  }

  heads() {
    this.head.replaceChildren(
      ...this.columns.map(([name, , , right], n) =>
        E.el(
          "span",
          {
            role: "columnheader",
            class: right ? "right" : null,
            "aria-sort": this.sort.by === n ? (this.sort.down ? "descending" : "ascending") : "none",
          },
          E.el(
            "button",
            {
              type: "button",
              "data-column": n,
              onclick: () => {
                this.sort = { by: n, down: this.sort.by === n ? !this.sort.down : !!right };
                this.heads();
                this.arrange();
                this.head.querySelector(`[data-column="${n}"]`).focus();
              },
            },
            name + (this.sort.by === n ? (this.sort.down ? " \u25be" : " \u25b4") : ""),
          ),
        ),
      ),
    );
  }

  arrange() {
    const [, key] = this.columns[this.sort.by],
      sign = this.sort.down ? -1 : 1;
    this.rows = d3.range(E.count).filter((i) => E.mask[i]);
    if (this.sort.by || this.sort.down) this.rows.sort((a, b) => sign * d3.ascending(key(a), key(b)) || a - b);
    this.where = new Map(this.rows.map((i, n) => [i, n]));
    this.body.style.height = this.rows.length * this.height + "px";
    this.grid.setAttribute("aria-rowcount", this.rows.length + 1);
    E.order = this.rows;
    this.draw();
  }

  draw() {
    const top = this.grid.scrollTop,
      n = Math.ceil((this.grid.clientHeight || 600) / this.height) + 4,
      first = Math.max(0, Math.floor(top / this.height) - 2);
    const rows = this.rows.slice(first, first + n).map((i, k) => {
      const row = E.el(
        "div",
        {
          class: "row",
          role: "row",
          id: "row-" + i,
          "aria-rowindex": first + k + 2,
          "aria-selected": String(i === E.state.step),
          onclick: () => {
            this.grid.focus({ preventScroll: true });
            E.select(i, "steps");
          },
        },
        ...this.columns.map(([, , cell, right], n) =>
          E.el(
            "span",
            { role: "gridcell", class: right ? "right" : null },
            n === 1 ? E.el("span", { class: "dot " + E.kind(i) }) : null,
            cell(i),
          ),
        ),
      );
      row.style.top = (first + k) * this.height + "px";
      return row;
    });
    this.body.replaceChildren(...rows);
    if (rows.some((row) => row.id === "row-" + E.state.step))
      this.grid.setAttribute("aria-activedescendant", "row-" + E.state.step);
    else this.grid.removeAttribute("aria-activedescendant");
  }

  show(i) {
    const n = this.where.get(i);
    if (n === undefined || !this.grid.clientHeight) return;
    const y = n * this.height,
      high = this.grid.clientHeight - 2 * this.height;
    if (y < this.grid.scrollTop) this.grid.scrollTop = y;
    else if (y > this.grid.scrollTop + high) this.grid.scrollTop = y - high;
  }

  key(e) {
    if (e.target !== this.grid || e.ctrlKey || e.metaKey || e.altKey) return;
    const page = Math.max(1, Math.floor(this.grid.clientHeight / this.height) - 2),
      now = this.where.get(E.state.step) ?? -1;
    const to = {
      ArrowDown: now + 1,
      ArrowUp: now - 1,
      PageDown: now + page,
      PageUp: now - page,
      Home: 0,
      End: this.rows.length - 1,
    }[e.key];
    if (to === undefined || !this.rows.length) return;
    e.preventDefault();
    E.select(this.rows[Math.min(Math.max(to, 0), this.rows.length - 1)], "steps");
  }
};
