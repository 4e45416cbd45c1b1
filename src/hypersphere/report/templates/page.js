// On a map, the image that is pointed at, and one class alone. The maps themselves are there without this.
"use strict";

// What is folded is printed, too.
const folded = () => document.querySelectorAll("details:not([open])");
addEventListener("beforeprint", () => folded().forEach((details) => (details.open = details.unfolded = true)));
addEventListener("afterprint", () =>
  document.querySelectorAll("details").forEach((details) => details.unfolded && (details.open = details.unfolded = false)));

for (const figure of document.querySelectorAll(".map")) {
  const drawing = figure.querySelector("svg");
  const card = figure.querySelector(".card");
  const names = JSON.parse(figure.dataset.classes);
  const rowLength = Number(figure.dataset.row);
  const marks = [...drawing.querySelectorAll("use")].map((node) => ({
    node, x: Number(node.getAttribute("x")), y: Number(node.getAttribute("y")), image: Number(node.dataset.image),
  }));
  let chosen = null;

  function choose(mark) {
    if (chosen) chosen.node.classList.remove("chosen");
    chosen = mark;
    card.hidden = !mark;
    if (!mark) return;
    mark.node.classList.add("chosen");
    card.querySelector(".tile").style.setProperty("--column", mark.image % rowLength);
    card.querySelector(".tile").style.setProperty("--row", Math.floor(mark.image / rowLength));
    card.querySelector(".name").textContent = names[mark.node.dataset.class] ?? "no label";
    place(mark);
  }

  // Beside the mark, on the side where there is room.
  function place(mark) {
    const scale = drawing.clientWidth / drawing.viewBox.baseVal.width;
    const [x, y] = [mark.x * scale, mark.y * scale];
    const right = x + 14 + card.offsetWidth < drawing.clientWidth;
    card.style.left = `${right ? x + 14 : Math.max(0, x - 14 - card.offsetWidth)}px`;
    card.style.top = `${Math.max(0, Math.min(y - card.offsetHeight / 2, drawing.clientHeight - card.offsetHeight))}px`;
  }

  // The mark with the least distance, if that is less than `reach`.
  function nearest(distance, reach = Infinity) {
    let best = null;
    for (const mark of marks) {
      const d = distance(mark);
      if (d < reach) [best, reach] = [mark, d];
    }
    return best;
  }

  function point(event) {
    const box = drawing.getBoundingClientRect();
    const scale = drawing.viewBox.baseVal.width / box.width;
    const [x, y] = [(event.clientX - box.left) * scale, (event.clientY - box.top) * scale];
    choose(nearest((mark) => Math.hypot(mark.x - x, mark.y - y), 16));
  }

  const directions = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] };

  function step(event) {
    if (event.key === "Escape") choose(null);
    if (!(event.key in directions)) return;
    event.preventDefault();
    const [right, down] = directions[event.key];
    const from = chosen ?? { x: drawing.viewBox.baseVal.width / 2, y: drawing.viewBox.baseVal.height / 2 };
    const next = nearest((mark) => {
      const ahead = (mark.x - from.x) * right + (mark.y - from.y) * down;
      const aside = Math.abs((mark.x - from.x) * down) + Math.abs((mark.y - from.y) * right);
      return ahead > 0 && mark !== chosen ? ahead + 2 * aside : Infinity;
    });
    if (next) choose(next);
  }

  drawing.addEventListener("pointermove", point);
  drawing.addEventListener("pointerdown", point);
  drawing.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && choose(null));
  drawing.addEventListener("focus", () => chosen || choose(nearest((mark) => mark.x + mark.y)));
  drawing.addEventListener("blur", () => choose(null));
  drawing.addEventListener("keydown", step);

  for (const entry of figure.querySelectorAll("li[data-class]")) {
    const only = (alone) => marks.forEach(({ node }) =>
      node.classList.toggle("faded", alone && node.dataset.class !== entry.dataset.class));
    entry.addEventListener("pointerenter", () => only(true));
    entry.addEventListener("pointerleave", () => only(false));
  }
}
