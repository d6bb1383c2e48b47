// View 4: two digits over each other, taken apart.
import { chooser, latestOnly, make, paintImage, paintTwo, percent, pixelCanvas, showBars, slider } from "./charts.js";
import { Pad } from "./pad.js";
import { confidences, poseRows, ranking } from "./readings.js";

const COLORS = ["#e69f00", "#56b4e9"];
const PENS = ["First digit", "Second digit", "Eraser"];

export function pairsView(app) {
  let described;
  let name;
  let took = 0;
  const holder = make("div");
  const seen = pixelCanvas(170, "The two digits as the network sees them");
  const apart = pixelCanvas(170, "The two digits taken apart, in two colors");
  apart.id = "apart";
  const singles = [pixelCanvas(120, "The first digit that was found"), pixelCanvas(120, "The second digit that was found")];
  const words = singles.map(() => make("figcaption"));
  const bars = make("div", { className: "bars" });
  const verdict = make("p", { id: "pair", "aria-live": "polite" });
  const refresh = latestOnly(() => app.attempt(read));
  const about = make("p", { className: "quiet" });
  const pad = new Pad(holder, { label: "Pad for two digits", colors: COLORS, hint: "Draw two digits here", onChange: () => refresh() });
  const pens = chooser(PENS, choosePen);
  ["first-pen", "second-pen"].forEach((style, pen) => pens.root.children[pen].classList.add(style));
  pens.press(0);
  pad.canvas.addEventListener("pen", () => choosePen(pad.erasing ? PENS.indexOf("Eraser") : pad.pen));
  const offsets = ["right", "down"].map((way) =>
    slider(`Second digit, pixels ${way}`, { min: -8, max: 8, step: 1, value: 4, onInput: () => refresh() }));
  const examples = chooser(["3 and 8", "5 and 0", "2 and 7", "6 and 1"], (index) => {
    const pair = ["38", "50", "27", "61"][index];
    [...pair].forEach((digit, pen) => pad.write(app.catalog.digits.find((one) => one.digit === digit).strokes, pen));
  });
  const root = make("div", {}, about, make("div", { className: "two" },
    make("div", {}, pens.root, holder, make("div", { className: "row" },
      make("button", { type: "button", onclick: () => pad.undo() }, "Undo"),
      make("button", { type: "button", onclick: () => pad.clear() }, "Clear")),
    make("h3", {}, "Or take two digits"), examples.root,
    make("p", { className: "quiet" }, "Each digit is centered by its mass, and then moved apart as in MultiMNIST:"), ...offsets.map((one) => one.root)),
    make("div", {}, verdict, make("div", { className: "figures" },
      make("figure", {}, seen, make("figcaption", {}, "All that the network sees.")),
      make("figure", {}, apart, make("figcaption", {}, "What it drew back, in two colors.")),
      make("div", { className: "pair" }, ...singles.map((canvas, index) => make("figure", {}, canvas, words[index])))), bars)));

  function choosePen(pen) {
    pad.erasing = PENS[pen] === "Eraser";
    if (!pad.erasing) pad.pen = pen;
    pens.press(pen);
  }

  async function read() {
    if (!described) return;
    const [, height, width] = described.input;
    const [dx, dy] = offsets.map((one) => one.value / 2);
    const inks = [pad.pixels(described.input, { pen: 0, dx: -dx, dy: -dy }), pad.pixels(described.input, { pen: 1, dx, dy })];
    const pixels = inks[0].map((value, at) => Math.min(255, value + inks[1][at]));
    const start = performance.now();
    const look = await app.backend.look(name, pixels);
    took = performance.now() - start;
    const values = confidences(described, look.scores);
    const best = ranking(values).slice(0, 2);
    const drawings = await Promise.all(best.map((kind) => app.backend.draw(name, poseRows(look), kind)));
    // the color of a digit is that of the ink which it resembles more
    const swap = resemblance(drawings[0].data, inks[0]) + resemblance(drawings[1].data, inks[1]) <
      resemblance(drawings[0].data, inks[1]) + resemblance(drawings[1].data, inks[0]);
    const order = swap ? [1, 0] : [0, 1];
    paintImage(seen, described.input, pixels, 255);
    paintTwo(apart, height, width, drawings[order[0]].data, drawings[order[1]].data);
    order.forEach((index, place) => {
      const color = Array.from({ length: height * width }, () => 0);
      const drawn = drawings[index].data;
      paintTwo(singles[place], height, width, place ? color : drawn, place ? drawn : color);
      words[place].className = ["first", "second"][place];
      words[place].textContent = `${described.classes[best[index]]} (${percent(Math.min(1, values[best[index]]))})`;
    });
    showBars(bars, described.classes, values, { best: pad.isEmpty() ? [] : best });
    verdict.textContent = pad.isEmpty() ? "Draw two digits." : `It sees ${best.map((kind) => described.classes[kind]).join(" and ")}.`;
    root.dataset.reads = String(Number(root.dataset.reads ?? 0) + 1);
  }

  function resemblance(drawn, ink) {
    let [both, left, right] = [0, 1e-9, 1e-9];
    drawn.forEach((value, at) => { both += value * ink[at]; left += value ** 2; right += ink[at] ** 2; });
    return both / Math.sqrt(left * right);
  }

  return {
    id: "pairs",
    title: "Two digits",
    words: "Draw one digit over another with two pens: the network gets both as one gray image and finds two capsules. Each " +
      "capsule draws its own digit back, so you see which strokes the network gives to which digit.",
    ownInput: true,
    root,
    async update() {
      if (!described) {
        name = app.catalog.pairs;
        if (!name) {
          verdict.textContent = "No network for two digits is installed here.";
          return;
        }
        described = await app.describe(name);
        about.textContent = app.factsOf(name, described);
        examples.root.querySelector("button").click();
      }
      await refresh();
      return `Read by ${name} in ${took.toFixed(0)} ms.`;
    },
  };
}
