// View 6: switch children off, turn or move the drawing, and see what changes.
import { latestOnly, make, paintImage, percent, pixelCanvas, showBars, slider } from "./charts.js";
import { confidences, poseRows, ranking, relevance } from "./readings.js";

export function whatIfView(app) {
  let state;
  let off = new Set();
  let buttons = [];
  const moves = { degrees: 0, dx: 0, dy: 0 };
  const picture = make("canvas", { "aria-hidden": "true", className: "pixels" });
  const grid = make("div", { className: "grid", role: "group", "aria-label": "Places of child capsules; press one to switch it off" });
  const drawn = pixelCanvas(140, "The drawing of the changed image's best capsule");
  const bars = make("div", { className: "bars" });
  const verdict = make("p", { id: "whatif", "aria-live": "polite" });
  const change = make("p", { className: "quiet" });
  const refresh = latestOnly(() => app.attempt(read));
  const turn = (key, label, min, max, step) => slider(label, { min, max, step, value: 0, onInput: (value) => { moves[key] = value; refresh(); } });
  const sliders = [turn("degrees", "Rotation, degrees anticlockwise", -60, 60, 1), turn("dx", "Shift right, pixels", -8, 8, 0.5), turn("dy", "Shift down, pixels", -8, 8, 0.5)];
  const root = make("div", { className: "two" },
    make("div", {}, ...sliders.map((one) => one.root),
      make("h3", {}, "Children switched off"),
      make("p", { className: "quiet" }, "A square is the center of what the children of one place see. Press it to switch them off."),
      make("div", { className: "places" }, picture, grid),
      make("div", { className: "row" },
        make("button", { type: "button", onclick: () => switchStrongest() }, "Switch off the strongest place"),
        make("button", { type: "button", onclick: () => reset() }, "Undo all changes"))),
    make("div", {}, verdict, make("figure", { className: "side" }, drawn, make("figcaption", {}, "Drawn back from the best capsule.")), change, bars,
      make("p", { className: "quiet" }, "The upright mark in a bar is the value without your changes.")));

  function children() {
    const types = state.described.layers[0].below[2];
    return [...off].flatMap((place) => Array.from({ length: types }, (_, type) => place * types + type));
  }

  function toggle(place) {
    off.has(place) ? off.delete(place) : off.add(place);
    refresh();
  }

  function switchStrongest() {
    const types = state.described.layers[0].below[2];
    const shares = relevance(state.described, state.changed, ranking(confidences(state.described, state.changed.scores))[0]);
    const sums = buttons.map((_, place) => shares.subarray(place * types, (place + 1) * types).reduce((a, b) => a + b, 0));
    const strongest = ranking(sums).find((place) => !off.has(place));
    if (strongest !== undefined) toggle(strongest);
  }

  function reset() {
    off = new Set();
    Object.assign(moves, { degrees: 0, dx: 0, dy: 0 });
    sliders.forEach((one) => one.set(0));
    refresh();
  }

  function layGrid({ described }) {
    const [rows, columns] = described.layers[0].below;
    const [vertical, horizontal] = described.fields;
    const [, height, width] = described.input;
    off = new Set();
    buttons = Array.from({ length: rows * columns }, (_, place) => make("button", {
      type: "button", "aria-pressed": "false", onclick: () => toggle(place),
      "aria-label": `Children of row ${Math.floor(place / columns) + 1}, column ${(place % columns) + 1}`,
    }));
    grid.replaceChildren(...buttons);
    grid.style.gridTemplateColumns = `repeat(${columns}, 1fr)`;
    grid.style.gridTemplateRows = `repeat(${rows}, 1fr)`;
    grid.style.top = `${(100 * (vertical.start + 0.5 - vertical.step / 2)) / height}%`;
    grid.style.bottom = `${100 - (100 * (vertical.start + 0.5 + vertical.step * (rows - 0.5))) / height}%`;
    grid.style.left = `${(100 * (horizontal.start + 0.5 - horizontal.step / 2)) / width}%`;
    grid.style.right = `${100 - (100 * (horizontal.start + 0.5 + horizontal.step * (columns - 0.5))) / width}%`;
  }

  async function read() {
    const { described, name, pad, look } = state;
    const pixels = pad.pixels(described.input, moves);
    const changed = await app.backend.look(name, pixels, children());
    state.changed = changed;
    const [before, after] = [look, changed].map((one) => confidences(described, one.scores));
    const [best, now] = [before, after].map((values) => ranking(values)[0]);
    paintImage(picture, described.input, pixels, 255);
    buttons.forEach((button, place) => button.setAttribute("aria-pressed", String(off.has(place))));
    drawn.parentElement.classList.toggle("hidden", !changed.drawing);
    if (changed.drawing) paintImage(drawn, changed.drawing.shape, changed.drawing.data);
    showBars(bars, described.classes, after, { before, best: [now] });
    verdict.textContent = `It read ${described.classes[best]} (${percent(Math.min(1, before[best]))}) and now reads ` +
      `${described.classes[now]} (${percent(Math.min(1, after[now]))}); ${off.size} of ${buttons.length} places are off.`;
    change.textContent = poseChange(poseRows(look)[best], poseRows(changed)[best], described.classes[best]);
    root.dataset.reads = String(Number(root.dataset.reads ?? 0) + 1);
  }

  function poseChange(before, after, label) {
    const length = (row) => Math.hypot(...row);
    const moved = before.map((value, index) => after[index] - value);
    const most = ranking(moved.map(Math.abs)).slice(0, 3);
    const words = most.map((index) => `number ${index + 1} by ${moved[index].toFixed(2)}`).join(", ");
    return `The capsule of ${label} had length ${length(before).toFixed(2)} and has ${length(after).toFixed(2)}. ` +
      `Its pose moved by ${length(moved).toFixed(2)}, most of all ${words}.`;
  }

  return {
    id: "whatif",
    title: "What if",
    words: "Turn or move the drawing, or switch off the child capsules at a place, and see what the network still reads. If its " +
      "capsules are equivariant, the length of the class capsule stays and the numbers of its pose move.",
    root,
    update(next) {
      if (state?.described !== next.described) layGrid(next);
      state = next;
      return refresh();
    },
  };
}
