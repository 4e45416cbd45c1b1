/* The interactive figure of understand/sphere.md: points on a circle with their uniformity and energies.
 *
 * <div class="sphere-figure" data-angles="0 30 …" (degrees)></div> becomes the figure. No dependencies, no network.
 * The formulas are those of hs.uniformity and hs.hyperspherical_energy. */
"use strict";

(() => {
  const FLOOR = Math.sqrt(2 ** -23); // closer points count as this far apart, as in float32 of hs.hyperspherical_energy
  const LARGEST_MOVE = 0.04; // of a point in one step of gradient descent, in radians
  const MOST_STEPS = 20000;
  const TURN = 2 * Math.PI;

  const STYLE = `
.sphere-figure { display: flex; flex-wrap: wrap; gap: 1rem 1.5rem; align-items: flex-start; margin: 1.5rem 0;
  padding: 1rem; border: 1px solid var(--color-background-border); border-radius: 0.5rem;
  background: var(--color-background-secondary); color: var(--color-foreground-primary); font-size: 0.9rem; }
.sphere-figure .plot { flex: 1 1 240px; max-width: 330px; margin: 0 auto; text-align: center; }
.sphere-figure canvas { display: block; width: 100%; aspect-ratio: 1; border-radius: 0.5rem; cursor: grab; }
.sphere-figure canvas:focus-visible { outline: 2px solid var(--color-brand-primary); }
.sphere-figure .hint { margin: 0.4rem 0 0; font-size: 0.8rem; line-height: 1.35;
  color: var(--color-foreground-secondary); }
.sphere-figure .controls { flex: 1 1 270px; min-width: 0; }
.sphere-figure .buttons { display: flex; flex-wrap: wrap; gap: 0.5rem; margin-bottom: 0.75rem; }
.sphere-figure button { min-height: 2.4rem; padding: 0.3rem 0.8rem; font: inherit; cursor: pointer;
  color: var(--color-foreground-primary); background: var(--color-background-primary);
  border: 1px solid var(--color-foreground-border); border-radius: 0.3rem; }
.sphere-figure button:last-child { min-width: 9.5rem; }
.sphere-figure button:hover { background: var(--color-background-hover); }
.sphere-figure button:focus-visible, .sphere-figure input:focus-visible { outline: 2px solid var(--color-brand-primary);
  outline-offset: 2px; }
.sphere-figure label { display: grid; grid-template-columns: 9.5rem 1fr 2.2rem; gap: 0.5rem; align-items: center;
  min-height: 2.2rem; }
.sphere-figure input { width: 100%; min-width: 0; accent-color: var(--color-brand-primary); }
.sphere-figure output { text-align: right; font-variant-numeric: tabular-nums; }
.sphere-figure table { width: 100%; margin: 0.5rem 0 0; border-collapse: collapse; }
.sphere-figure th, .sphere-figure td { padding: 0.3rem 0; border-bottom: 1px solid var(--color-background-border);
  font-weight: normal; text-align: left; }
.sphere-figure thead th { color: var(--color-foreground-secondary); font-size: 0.8rem; }
.sphere-figure td, .sphere-figure thead th + th { text-align: right; font-variant-numeric: tabular-nums; }
.sphere-figure tbody td:nth-child(2) { font-weight: bold; }
.sphere-figure td + td, .sphere-figure th + th { padding-left: 0.75rem; }
.sphere-figure .status { min-height: 1.4em; margin: 0.5rem 0 0; font-size: 0.8rem;
  color: var(--color-foreground-secondary); }
`;

  // ---- measures ----

  const potential = (distance, s) => {
    const d = Math.max(distance, FLOOR);
    return s === 0 ? -Math.log(d) : d ** -s;
  };

  const chord = (a, b) => 2 * Math.abs(Math.sin((a - b) / 2));

  const arc = (a, b) => 2 * Math.asin(Math.min(1, chord(a, b) / 2));

  function meanOverPairs(angles, value) {
    let sum = 0;
    for (let i = 1; i < angles.length; i++) for (let j = 0; j < i; j++) sum += value(angles[i], angles[j]);
    return (2 * sum) / (angles.length * (angles.length - 1));
  }

  const energy = (angles, s, distance = chord) => meanOverPairs(angles, (a, b) => potential(distance(a, b), s));

  const uniformity = (angles, t) => Math.log(meanOverPairs(angles, (a, b) => Math.exp(-t * chord(a, b) ** 2)));

  function meanVector(angles) {
    const mean = (f) => angles.reduce((sum, a) => sum + f(a), 0) / angles.length;
    return [mean(Math.cos), mean(Math.sin)];
  }

  const measures = (angles, s, t) => ({
    uniformity: uniformity(angles, t),
    euclidean: energy(angles, s),
    geodesic: energy(angles, s, arc),
    mean: Math.hypot(...meanVector(angles)),
  });

  // ---- gradient descent ----

  /** Gradient of the Euclidean energy with respect to each angle. */
  function gradient(angles, s) {
    const slopes = angles.map(() => 0);
    for (let i = 1; i < angles.length; i++) {
      for (let j = 0; j < i; j++) {
        const half = (angles[i] - angles[j]) / 2;
        const d = 2 * Math.sin(half); // with its sign
        if (Math.abs(d) < FLOOR) continue;
        const slope = (-(s === 0 ? 1 : s * Math.abs(d) ** -s) * Math.cos(half)) / d;
        slopes[i] += slope;
        slopes[j] -= slope;
      }
    }
    return slopes.map((slope) => (2 * slope) / (angles.length * (angles.length - 1)));
  }

  /** The angles after one step of gradient descent with a backtracking line search; null at the minimum. */
  function descend(angles, s) {
    const slopes = gradient(angles, s);
    const steepest = Math.max(...slopes.map(Math.abs));
    const squared = slopes.reduce((sum, slope) => sum + slope ** 2, 0);
    const before = energy(angles, s);
    for (let rate = LARGEST_MOVE / steepest; rate * steepest > 1e-6; rate /= 2) {
      const moved = angles.map((angle, i) => angle - rate * slopes[i]);
      if (energy(moved, s) < before - 0.3 * rate * squared) return moved;
    }
    return null;
  }

  /** The angles with coinciding points a little apart: their energy has no gradient. */
  function separated(angles) {
    const apart = angles.map((angle) => ((angle % TURN) + TURN) % TURN);
    const order = apart.map((_, i) => i).sort((i, j) => apart[i] - apart[j]);
    for (let k = 1; k < order.length; k++) {
      const least = apart[order[k - 1]] + 1e-3;
      if (apart[order[k]] < least) apart[order[k]] = least;
    }
    return apart;
  }

  // ---- arrangements ----

  const evenly = (count) => Array.from({ length: count }, (_, i) => (TURN * i) / count);
  const randomly = (count) => Array.from({ length: count }, () => TURN * Math.random());
  const collapsed = (count) => Array.from({ length: count }, (_, i) => TURN / 8 + (0.1 * (i + 0.5)) / count - 0.05);

  // ---- the page ----

  function make(tag, attributes = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children);
    return element;
  }

  const shown = (value) => {
    const text = Math.abs(value) >= 1e4 ? value.toExponential(2) : value.toFixed(3);
    return text.replace(/^-(?=0\.000$)/, "").replace("-", "−");
  };

  function slider(name, least, most, step, value, changed) {
    const input = make("input", { type: "range", min: least, max: most, step, value });
    const output = make("output", {}, value.toFixed(1));
    input.addEventListener("input", () => {
      output.textContent = Number(input.value).toFixed(1);
      changed();
    });
    return { row: make("label", {}, name, input, output), value: () => Number(input.value) };
  }

  function build(figure) {
    let angles = figure.dataset.angles.split(" ").map((degrees) => (Number(degrees) * Math.PI) / 180);
    let selected = 0;
    let frame = null; // of the animation, while it runs
    const count = angles.length;
    const still = window.matchMedia("(prefers-reduced-motion: reduce)");

    const canvas = make("canvas", { tabindex: 0, role: "application", "aria-label": `${count} points on a circle` });
    const hint = make("p", { class: "hint" }, "Drag a point. Keys: ↑ ↓ choose a point, ← → move it. ");
    hint.append("Shading: density of the points. Red arrow: their mean.");
    const status = make("p", { class: "status", role: "status" });
    const power = slider("energy exponent s", 0, 4, 0.5, 2, () => show());
    const scale = slider("uniformity scale t", 0.5, 10, 0.5, 2, () => show());
    const minimize = make("button", { type: "button" }, "minimize energy");
    const rows = [
      ["uniformity", "uniformity"],
      ["euclidean", "energy, Euclidean"],
      ["geodesic", "energy, geodesic"],
      ["mean", "length of the mean"],
    ].map(([key, name]) => {
      const now = make("td", { "data-measure": key });
      const even = make("td");
      return { key, now, even, row: make("tr", {}, make("th", { scope: "row" }, name), now, even) };
    });

    const buttons = make("div", { class: "buttons", role: "group", "aria-label": "Arrange the points" });
    for (const [name, arrange] of Object.entries({ even: evenly, random: randomly, collapsed })) {
      const button = make("button", { type: "button" }, name);
      button.addEventListener("click", () => {
        stop();
        angles = arrange(count);
        say("");
        show();
      });
      buttons.append(button);
    }
    buttons.append(minimize);
    const head = make("tr", {}, make("th", {}, "measure"), make("th", {}, "now"), make("th", {}, "if even"));
    const table = make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows.map((row) => row.row)));
    figure.replaceChildren(
      make("div", { class: "plot" }, canvas, hint),
      make("div", { class: "controls" }, buttons, power.row, scale.row, table, status),
    );

    const say = (text) => (status.textContent = text);

    function show() {
      const now = measures(angles, power.value(), scale.value());
      const even = measures(evenly(count), power.value(), scale.value());
      for (const row of rows) {
        row.now.textContent = shown(now[row.key]);
        row.even.textContent = shown(even[row.key]);
      }
      draw();
    }

    // drawing

    const geometry = () => {
      const side = canvas.clientWidth;
      return { side, middle: side / 2, radius: side / 2 - 24 };
    };

    function draw() {
      const { side, middle, radius } = geometry();
      if (!side) return;
      const dense = window.devicePixelRatio || 1;
      const pixels = Math.round(side * dense);
      if (canvas.width !== pixels) canvas.width = canvas.height = pixels;
      const style = getComputedStyle(document.body);
      const colour = (name) => style.getPropertyValue(`--color-${name}`).trim();
      const at = (angle, r = radius) => [middle + r * Math.cos(angle), middle - r * Math.sin(angle)];
      const c = canvas.getContext("2d");
      c.setTransform(dense, 0, 0, dense, 0, 0);
      c.clearRect(0, 0, side, side);

      const bins = 180; // density of the points around the circle, by a von Mises kernel
      c.strokeStyle = colour("brand-primary");
      c.lineWidth = 22;
      for (let k = 0; k < bins; k++) {
        const angle = (TURN * k) / bins;
        const density = angles.reduce((sum, a) => sum + Math.exp(30 * (Math.cos(angle - a) - 1)), 0) / count;
        c.globalAlpha = Math.min(0.6, 2.2 * density);
        c.beginPath();
        c.arc(middle, middle, radius, -angle - Math.PI / bins, -angle + Math.PI / bins);
        c.stroke();
      }
      c.globalAlpha = 1;

      c.strokeStyle = colour("foreground-border");
      c.lineWidth = 1.5;
      c.beginPath();
      c.arc(middle, middle, radius, 0, TURN);
      c.stroke();

      const [x, y] = meanVector(angles);
      const [length, angle] = [radius * Math.hypot(x, y), Math.atan2(y, x)];
      c.strokeStyle = c.fillStyle = colour("problematic");
      c.beginPath();
      c.arc(middle, middle, 3, 0, TURN);
      c.fill();
      if (length > 6) {
        const tip = at(angle, length);
        c.lineWidth = 2.5;
        c.beginPath();
        c.moveTo(middle, middle);
        c.lineTo(...at(angle, length - 5));
        c.stroke();
        c.beginPath();
        c.moveTo(...tip);
        for (const side of [-0.45, 0.45]) c.lineTo(tip[0] - 11 * Math.cos(angle + side), tip[1] + 11 * Math.sin(angle + side));
        c.fill();
      }

      const focused = document.activeElement === canvas;
      angles.forEach((angle, i) => {
        const [px, py] = at(angle);
        c.beginPath();
        c.arc(px, py, 8, 0, TURN);
        c.fillStyle = colour("brand-primary");
        c.fill();
        c.lineWidth = 1.5;
        c.strokeStyle = colour("background-primary");
        c.stroke();
        if (focused && i === selected) {
          c.beginPath();
          c.arc(px, py, 12, 0, TURN);
          c.lineWidth = 2.5;
          c.strokeStyle = colour("foreground-primary");
          c.stroke();
        }
      });
    }

    // moving points

    function describe() {
      const degrees = Math.round(((((angles[selected] % TURN) + TURN) % TURN) * 180) / Math.PI) % 360;
      say(`Point ${selected + 1} of ${count}: ${degrees}°`);
    }

    const place = (event) => {
      const box = canvas.getBoundingClientRect();
      const { middle } = geometry();
      return [event.clientX - box.left - middle, middle - (event.clientY - box.top)];
    };

    /** The point within a finger's reach of a place, or −1. */
    function hit([x, y]) {
      const { radius } = geometry();
      const gaps = angles.map((a) => Math.hypot(radius * Math.cos(a) - x, radius * Math.sin(a) - y));
      const nearest = gaps.indexOf(Math.min(...gaps));
      return gaps[nearest] <= 26 ? nearest : -1;
    }

    let dragged = false;
    canvas.addEventListener("pointerdown", (event) => {
      const found = hit(place(event));
      if (found < 0) return;
      stop();
      [selected, dragged] = [found, true];
      canvas.setPointerCapture(event.pointerId);
      canvas.focus({ preventScroll: true });
      event.preventDefault();
      draw();
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!dragged) {
        canvas.style.cursor = hit(place(event)) < 0 ? "default" : "grab";
        return;
      }
      const [x, y] = place(event);
      angles[selected] = Math.atan2(y, x);
      describe();
      show();
    });
    for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, () => (dragged = false));
    canvas.addEventListener(
      "touchstart", // a finger on a point drags it; elsewhere it scrolls the page
      (event) => {
        if (hit(place(event.touches[0])) >= 0) event.preventDefault();
      },
      { passive: false },
    );

    canvas.addEventListener("keydown", (event) => {
      const turn = { ArrowLeft: 1, ArrowRight: -1 }[event.key];
      const choose = { ArrowUp: 1, ArrowDown: -1 }[event.key];
      if ((!turn && !choose) || event.altKey || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      event.stopPropagation(); // the site turns pages by ← and →
      stop();
      if (turn) angles[selected] += (turn * (event.shiftKey ? 0.5 : 3) * Math.PI) / 180;
      else selected = (selected + choose + count) % count;
      describe();
      show();
    });
    canvas.addEventListener("focus", () => {
      describe();
      draw();
    });
    canvas.addEventListener("blur", draw);

    // the animation

    function stop() {
      if (frame !== null) cancelAnimationFrame(frame);
      frame = null;
      minimize.textContent = "minimize energy";
    }

    function start() {
      angles = separated(angles);
      let steps = 0;
      const advance = (most) => {
        for (let k = 0; k < most; k++) {
          const next = descend(angles, power.value());
          if (next === null || steps >= MOST_STEPS) {
            stop();
            say(`Minimum after ${steps} steps of gradient descent.`);
            return;
          }
          angles = next;
          steps++;
        }
      };
      if (still.matches) {
        advance(MOST_STEPS + 1);
        show();
        return;
      }
      minimize.textContent = "stop";
      say("Gradient descent …");
      const tick = () => {
        frame = requestAnimationFrame(tick);
        advance(1 + Math.floor(steps / 100)); // slow at first, to be watched
        show();
      };
      frame = requestAnimationFrame(tick);
    }

    minimize.addEventListener("click", () => {
      if (frame === null) start();
      else {
        stop();
        say("Stopped.");
      }
    });

    // the size and the theme

    new ResizeObserver(draw).observe(canvas);
    new MutationObserver(draw).observe(document.body, { attributes: true, attributeFilter: ["data-theme"] });
    window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
    show();
  }

  if (typeof document === "undefined") {
    module.exports = { measures, gradient, descend, separated, energy, evenly, randomly, collapsed };
  } else {
    document.head.append(make("style", {}, STYLE));
    document.querySelectorAll(".sphere-figure").forEach(build);
  }
})();
