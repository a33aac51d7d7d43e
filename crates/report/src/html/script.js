"use strict";
(() => {
  const root = document.documentElement;
  root.classList.add("js");
  const byId = (id) => document.getElementById(id);
  const data = JSON.parse(byId("data").textContent);
  const svgNs = "http://www.w3.org/2000/svg";

  // One captured point at a time; without this script all of them are there.
  const chooser = byId("point");
  if (chooser) {
    const show = () => {
      for (const part of document.querySelectorAll(".captured")) {
        const chosen = part.dataset.point === chooser.value;
        part.hidden = !chosen;
        part.classList.toggle("chosen", chosen);
      }
    };
    chooser.addEventListener("change", show);
    show();
  }

  // Lines of a chart on and off.
  for (const button of document.querySelectorAll("button.line")) {
    button.addEventListener("click", () => {
      const on = button.getAttribute("aria-pressed") !== "true";
      button.setAttribute("aria-pressed", String(on));
      for (const g of byId(button.dataset.chart).querySelectorAll("g.target")) {
        if (g.dataset.target === button.dataset.target) g.style.display = on ? "" : "none";
      }
    });
  }

  // The waterfall between two chosen points. The same drawing as the one that came with the page.
  const micros = (v) => {
    const s = Math.abs(v);
    if (!Number.isFinite(v)) return "–";
    if (s >= 1e15) return v.toExponential(2);
    if (s >= 99.95) return Math.round(v).toLocaleString("en-US");
    if (s === 0) return "0";
    return s < 0.05 ? "0.0" : v.toFixed(1);
  };
  const signed = (v) => {
    const t = micros(Math.abs(v));
    if (t === "0" || t === "0.0" || t === "–") return t;
    return (v < 0 ? "−" : "+") + t;
  };
  const element = (name, attributes, text) => {
    const e = document.createElementNS(svgNs, name);
    for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
    if (text !== undefined) e.textContent = text;
    return e;
  };
  for (const box of document.querySelectorAll(".waterfall")) {
    const points = data.waterfalls[Number(box.dataset.group)];
    const [base, next] = [box.querySelector("select.base"), box.querySelector("select.next")];
    const figure = box.querySelector("figure");
    const draw = () => {
      const [a, b] = [points[Number(base.value)], points[Number(next.value)]];
      const bare = a.tasks !== b.tasks;
      const total = (p) => p.total === null ? null : p.total - (bare && p.unused !== null ? p.unused : 0);
      const bars = [];
      const [at, bt] = [total(a), total(b)];
      if (at === null || bt === null) return;
      bars.push({ label: a.name, from: 0, to: at, kind: "total", text: micros(at) });
      let x = at;
      const spinBoth = a.spin !== null && b.spin !== null;
      const part = (p, key) => {
        if (key === "system" && !spinBoth && p.system !== null) return p.system + (p.spin === null ? 0 : p.spin);
        return p[key];
      };
      for (const [key, label] of data.parts) {
        if ((bare && key === "unused") || (key === "spin" && !spinBoth)) continue;
        const [pa, pb] = [part(a, key), part(b, key)];
        if (pa === null || pb === null) continue;
        const d = pb - pa;
        if (d === 0) continue;
        bars.push({ label, from: x, to: x + d, kind: key, text: signed(d) });
        x += d;
      }
      const rest = bt - x;
      if (Math.abs(rest) > 0.01 * Math.max(Math.abs(at), Math.abs(bt))) {
        bars.push({ label: "not known in both", from: x, to: bt, kind: "unaccounted", text: signed(rest) });
      }
      bars.push({ label: b.name, from: 0, to: bt, kind: "total", text: micros(bt) });
      const low = Math.min(0, ...bars.map((bar) => Math.min(bar.from, bar.to)));
      const high = Math.max(1e-9, ...bars.map((bar) => Math.max(bar.from, bar.to)));
      const scale = (v) => 138 + (v - low) / (high - low) * 220;
      const svg = figure.querySelector("svg");
      svg.replaceChildren(element("title", {}, `CPU-us per operation: ${a.name} to ${b.name}`));
      svg.setAttribute("viewBox", `0 0 420 ${bars.length * 26 + 4}`);
      bars.forEach((bar, i) => {
        const y = i * 26 + 4;
        const label = bar.label.length > 20 ? bar.label.slice(0, 19) + "…" : bar.label;
        svg.append(element("text", { x: 132, y: y + 15, "text-anchor": "end" }, label));
        const [x0, x1] = [scale(Math.min(bar.from, bar.to)), scale(Math.max(bar.from, bar.to))];
        const rect = element("rect", {
          x: x0.toFixed(1), y, width: Math.max(1, x1 - x0).toFixed(1), height: 20, "data-kind": bar.kind,
          "data-value": bar.kind === "total" ? bar.to : bar.to - bar.from,
          style: `fill:var(--${bar.kind === "total" ? "soft" : bar.kind})`,
        });
        rect.append(element("title", {}, `${bar.label}: ${bar.text}`));
        svg.append(rect, element("text", { x: (x1 + 5).toFixed(1), y: y + 15 }, bar.text));
      });
      figure.querySelector("figcaption").textContent =
        `An operation costs ${micros(at)} CPU-us at ${a.name} and ${micros(bt)} at ${b.name}: ${signed(bt - at)}` +
        (bare ? " (without CPUs that have no task)." : ".");
    };
    base.addEventListener("change", draw);
    next.addEventListener("change", draw);
  }

  // Flame graphs: a click widens a frame to the whole width, a second one on the top row goes back.
  for (const flame of document.querySelectorAll(".flame")) {
    const frames = [...flame.querySelectorAll(".f")];
    const zoom = (to) => {
      const [x, w] = [Number(to.dataset.x), Number(to.dataset.w)];
      for (const f of frames) {
        const [fx, fw] = [Number(f.dataset.x), Number(f.dataset.w)];
        const above = fx <= x + 1e-9 && fx + fw >= x + w - 1e-9 && Number(f.dataset.d) < Number(to.dataset.d);
        const inside = fx >= x - 1e-9 && fx + fw <= x + w + 1e-9 && Number(f.dataset.d) >= Number(to.dataset.d);
        f.style.display = above || inside ? "" : "none";
        f.classList.toggle("faded", above);
        f.style.left = above ? "0" : `${(fx - x) / w * 100}%`;
        f.style.width = above ? "100%" : `${fw / w * 100}%`;
      }
    };
    flame.addEventListener("click", (event) => {
      const f = event.target.closest(".f");
      if (f) zoom(f);
    });
    flame.addEventListener("keydown", (event) => {
      const f = event.target.closest(".f");
      if (f && (event.key === "Enter" || event.key === " ")) { event.preventDefault(); zoom(f); }
    });
    const box = flame.parentElement.querySelector("input.find");
    if (box) box.addEventListener("input", () => {
      const word = box.value.toLowerCase();
      for (const f of frames) f.classList.toggle("hit", word !== "" && f.textContent.toLowerCase().includes(word));
    });
  }

  // On paper everything is open that the style does not leave out: the stacks of the cards, which the flame graphs show, and much of the
  // points that are not chosen. Afterwards it is as it was.
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("details:not([open])")];
    for (const d of opened) d.open = true;
  });
  addEventListener("afterprint", () => {
    for (const d of opened) d.open = false;
    opened = [];
  });
})();
