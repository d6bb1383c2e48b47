// Elements and pictures that the views share.

export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name in element && typeof value !== "string") element[name] = value;
    else element.setAttribute(name === "className" ? "class" : name, value);
  }
  element.append(...children);
  return element;
}

export function percent(value) {
  return `${(100 * value).toFixed(value > 0.1 ? 0 : 1)}\u00a0%`;
}

// Horizontal bars; `before` marks earlier values.
export function showBars(root, names, values, { before, best = [] } = {}) {
  const cells = names.flatMap((name, index) => {
    const value = Math.max(0, Math.min(1, values[index]));
    const fill = make("div", { className: "fill" });
    fill.style.width = `${100 * value}%`;
    const track = make("div", { className: "track" }, fill);
    if (before) {
      const ghost = make("div", { className: "ghost" });
      ghost.style.left = `calc(${100 * Math.min(1, before[index])}% - 2px)`;
      track.append(ghost);
    }
    const mark = best.includes(index) ? " best" : "";
    return [make("span", { className: `name${mark}` }, name), track,
      make("span", { className: `value${mark}` }, values[index].toFixed(3))];
  });
  root.className = "bars";
  root.replaceChildren(...cells);
}

export function pixelCanvas(width, label) {
  const canvas = make("canvas", { className: "pixels", role: "img", "aria-label": label });
  canvas.style.width = `${width}px`;
  return canvas;
}

// Paint [c h w] with values in 0 to `top`.
export function paintImage(canvas, shape, data, top = 1) {
  const [channels, height, width] = shape.slice(-3);
  canvas.width = width;
  canvas.height = height;
  const image = new ImageData(width, height);
  for (let at = 0; at < height * width; at++) {
    for (let channel = 0; channel < 3; channel++) {
      const value = data[(channels === 3 ? channel : 0) * height * width + at];
      image.data[4 * at + channel] = (255 * value) / top;
    }
    image.data[4 * at + 3] = 255;
  }
  canvas.getContext("2d").putImageData(image, 0, 0);
}

// Two gray images [h w] in 0 to 1 as light of two colors.
export function paintTwo(canvas, height, width, first, second) {
  canvas.width = width;
  canvas.height = height;
  const image = new ImageData(width, height);
  for (let at = 0; at < height * width; at++) {
    FIRST_COLOR.forEach((value, channel) => {
      image.data[4 * at + channel] = value * first[at] + SECOND_COLOR[channel] * second[at];
    });
    image.data[4 * at + 3] = 255;
  }
  canvas.getContext("2d").putImageData(image, 0, 0);
}

export const FIRST_COLOR = [230, 159, 0];
export const SECOND_COLOR = [86, 180, 233];

// From black over violet and orange to pale yellow: lightness rises evenly.
const HEAT = [[0, 0, 4], [60, 15, 110], [140, 41, 129], [222, 73, 104], [254, 159, 109], [252, 253, 191]];

export function heatColor(value) {
  const place = Math.max(0, Math.min(0.9999, value)) * (HEAT.length - 1);
  const low = Math.floor(place);
  return HEAT[low].map((start, channel) => start + (place - low) * (HEAT[low + 1][channel] - start));
}

// Paint rows of values as a heat map. Brightness grows with the root of a value; a column shows the largest of its values.
export function paintHeat(canvas, all, brightest = largest(all.flat())) {
  const rows = all.map((row) => largestOf(row, HEAT_COLUMNS));
  const top = Math.sqrt(Math.max(brightest, 1e-12));
  const [height, width] = [rows.length, rows[0].length];
  canvas.width = width;
  canvas.height = height;
  const image = new ImageData(width, height);
  rows.forEach((row, y) => row.forEach((value, x) => {
    const at = 4 * (y * width + x);
    image.data.set(heatColor(Math.sqrt(Math.max(value, 0)) / top), at);
    image.data[at + 3] = 255;
  }));
  canvas.getContext("2d").putImageData(image, 0, 0);
}

const HEAT_COLUMNS = 144;

export function largest(values) {
  return values.reduce((a, b) => Math.max(a, b), -Infinity);
}

function largestOf(row, columns) {
  const size = Math.ceil(row.length / columns);
  return Array.from({ length: Math.ceil(row.length / size) }, (_, at) => largest(row.slice(at * size, (at + 1) * size)));
}

// The drawing with a value per place of the children's grid as glowing squares over it.
export function paintPlaces(canvas, described, pixels, values, range = [Math.min(...values), Math.max(...values)]) {
  const scale = 8;
  const [, height, width] = described.input;
  canvas.width = width * scale;
  canvas.height = height * scale;
  const context = canvas.getContext("2d");
  const small = document.createElement("canvas");
  paintImage(small, described.input, pixels, 255);
  context.imageSmoothingEnabled = false;
  context.drawImage(small, 0, 0, canvas.width, canvas.height);
  const [rows, columns] = described.fields;
  const [, across] = described.layers[0].below;
  const [low, high] = range;
  values.forEach((value, place) => {
    const share = Math.sqrt(Math.max(0, Math.min(1, (value - low) / Math.max(high - low, 1e-12))));
    const y = rows.start + rows.step * Math.floor(place / across) + 0.5;
    const x = columns.start + columns.step * (place % across) + 0.5;
    const [red, green, blue] = heatColor(0.35 + 0.65 * share);
    context.fillStyle = `rgba(${red}, ${green}, ${blue}, ${0.8 * share})`;
    context.fillRect((x - columns.step / 2) * scale, (y - rows.step / 2) * scale, columns.step * scale, rows.step * scale);
  });
}

export function slider(label, { min, max, step, value, onInput }) {
  const shown = make("output", {}, String(value));
  const input = make("input", { type: "range", min, max, step, value });
  const text = make("span", {}, label);
  const root = make("label", { className: "slider" }, make("span", { className: "line" }, text, shown), input);
  const show = () => { shown.textContent = Number(input.value).toFixed(step < 0.1 ? 2 : step < 1 ? 1 : 0); };
  show();
  input.addEventListener("input", () => { show(); onInput(Number(input.value)); });
  return {
    root,
    name: (words) => { text.textContent = words; },
    set: (next) => { input.value = next; show(); },
    get value() { return Number(input.value); },
  };
}

// Buttons of which one is pressed; an optional first entry stands for none.
export function chooser(names, onChoose) {
  const root = make("div", { className: "row" });
  const buttons = names.map((name, index) =>
    make("button", { type: "button", "aria-pressed": "false", onclick: () => onChoose(index) }, name));
  root.append(...buttons);
  return { root, press: (chosen) => buttons.forEach((b, i) => b.setAttribute("aria-pressed", String(i === chosen))) };
}

// The names of classes beside the rows of a heat map, where there is room for them.
export function rowNames(root, names, chosen) {
  const shown = names.length > 20 ? [] : names;
  root.replaceChildren(...shown.map((name, index) => make("span", { className: index === chosen ? "best" : "" }, name)));
}

// Run a job for the latest arguments only: calls while it runs are replaced by the last of them.
export function latestOnly(job) {
  let running = null;
  let waiting = null;
  return function run(...given) {
    waiting = given;
    running ??= (async () => {
      try {
        while (waiting) {
          const now = waiting;
          waiting = null;
          await job(...now);
        }
      } finally {
        running = null;
      }
    })();
    return running;
  };
}
