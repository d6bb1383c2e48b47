// The page: network, pad and views. Views get the same state whenever the drawing or the network changes.
import { openBackend } from "./backend.js";
import { latestOnly, make, percent } from "./charts.js";
import { Pad } from "./pad.js";
import { confidences, ranking } from "./readings.js";
import { compareView } from "./view_compare.js";
import { pairsView } from "./view_pairs.js";
import { routingView } from "./view_routing.js";
import { scoresView } from "./view_scores.js";
import { slidersView } from "./view_sliders.js";
import { whatIfView } from "./view_whatif.js";

const byId = (id) => document.getElementById(id);
const descriptions = new Map();
const variants = new Map();
let views = [];
let active;
let pad;
let chosen = null;
let sampled = 0;

const app = {
  backend: null,
  catalog: null,
  async describe(name) {
    if (!descriptions.has(name)) descriptions.set(name, await app.backend.describe(name));
    return descriptions.get(name);
  },
  // Choose the class that a view shows; a new drawing returns to the best class.
  choose(kind) {
    chosen = kind;
    refresh();
  },
  // Run a job and show the sentence of an error.
  async attempt(job) {
    try {
      await job();
      if (byId("status").className === "bad") say("");
    } catch (error) {
      say(error.message, true);
    }
  },
  isOfDigits: ({ classes, input }) => input[0] === 1 && classes.join("") === "0123456789",
  // What the page says of a network.
  factsOf(name, described) {
    const entry = app.catalog.networks.find((one) => one.name === name);
    const layers = described.layers.map((layer) => layer.routing);
    const score = entry.test == null ? "" : `, ${entry.test.toFixed(2)} % of the test images right`;
    return `${entry.recipe ?? name}: ${described.parameters.toLocaleString("en")} parameters, ` +
      `${[...new Set(layers)].join(", ")} in ${layers.length === 1 ? "one capsule layer" : `${layers.length} capsule layers`}${score}.`;
  },
};

function say(sentence, bad = false) {
  byId("status").textContent = sentence;
  byId("status").className = bad ? "bad" : "";
}

const refresh = latestOnly(async () => {
  document.documentElement.dataset.state = "busy";
  await app.attempt(async () => {
    if (active.ownInput) return say((await active.update({})) ?? "");
    const name = byId("network").value;
    const described = await app.describe(name);
    showInput(described);
    const pixels = pad.pixels(described.input);
    const start = performance.now();
    const look = await app.backend.look(name, pixels);
    const took = performance.now() - start;
    const values = confidences(described, look.scores);
    const order = ranking(values);
    const kind = chosen ?? order[0];
    const names = order.slice(0, described.objects).map((one) => `${described.classes[one]} (${percent(Math.min(1, values[one]))})`);
    byId("reading").textContent = pad.isEmpty() ? "Nothing is drawn yet." : `The network reads ${names.join(" and ")}.${labelOf(pad)}`;
    const said = await active.update({ name, described, pixels, look, kind, pad, empty: pad.isEmpty() });
    say(said ?? `Read by ${name} in ${took.toFixed(0)} ms.`);
  });
  document.documentElement.dataset.state = "ready";
});

function labelOf({ picture, labels }) {
  return picture && labels.length ? ` Its label is ${labels.join(" and ")}.` : "";
}

// Networks that know no digits get images instead.
function showInput(described) {
  const digits = app.isOfDigits(described);
  byId("input-title").textContent = digits ? "Draw a digit" : "Show an image";
  pad.hint.textContent = digits ? "Draw here" : "Open an image, or draw";
  byId("digits").classList.toggle("hidden", !digits);
}

function redrawn() {
  chosen = null;
  return refresh();
}

function setUpPad() {
  const root = byId("pad");
  pad = new Pad(root, { label: "Drawing pad", hint: "Draw here", onChange: redrawn });
  const pen = make("button", { type: "button", "aria-pressed": "true", onclick: () => choosePen(false) }, "Pen");
  const eraser = make("button", { type: "button", "aria-pressed": "false", onclick: () => choosePen(true) }, "Eraser");
  function choosePen(erasing) {
    pad.erasing = erasing;
    pen.setAttribute("aria-pressed", String(!erasing));
    eraser.setAttribute("aria-pressed", String(erasing));
  }
  pad.canvas.addEventListener("pen", () => choosePen(pad.erasing));
  const file = make("input", { type: "file", accept: "image/*", className: "hidden", id: "file" });
  file.addEventListener("change", async () => {
    if (file.files[0]) await app.attempt(async () => pad.paste(await openPicture(file.files[0])));
    file.value = "";
  });
  const digits = make("div", { className: "digits", role: "group", "aria-label": "Digits" });
  for (let digit = 0; digit < 10; digit++) {
    digits.append(make("button", { type: "button", onclick: () => pad.write(nextGlyph(String(digit))) }, String(digit)));
  }
  const more = make("div", { className: "row" }, make("button", { type: "button", onclick: () => file.click() }, "Open an image"), file);
  if (app.backend.sample) more.prepend(make("button", { type: "button", onclick: () => app.attempt(takeSample) }, "Test image"));
  root.append(make("div", { className: "row tools" }, pen, eraser,
    make("button", { type: "button", onclick: () => pad.undo() }, "Undo"),
    make("button", { type: "button", onclick: () => pad.clear() }, "Clear")),
  make("div", { id: "digits" }, make("p", { className: "quiet" }, "Or take one; press again for another."), digits), more);
}

// Show the next test image of the network's data set, with its label.
async function takeSample() {
  const name = byId("network").value;
  const [channels, height, width] = (await app.describe(name)).input;
  const { pixels, labels } = await app.backend.sample(name, sampled++);
  const image = new ImageData(width, height);
  for (let at = 0; at < height * width; at++) {
    for (let channel = 0; channel < 3; channel++) {
      image.data[4 * at + channel] = pixels[(channels === 3 ? channel : 0) * height * width + at];
    }
    image.data[4 * at + 3] = 255;
  }
  pad.paste(await createImageBitmap(image), labels);
}

async function openPicture(file) {
  try {
    return await createImageBitmap(file);
  } catch {
    throw new Error(`${file.name} is not an image that this browser can open: choose another`);
  }
}

// The glyphs of a digit in turn, each a little more slanted than the last.
function nextGlyph(digit) {
  const count = variants.get(digit) ?? 0;
  variants.set(digit, count + 1);
  const glyphs = app.catalog.digits.filter((one) => one.digit === digit);
  const slant = [0.12, 0, 0.25, -0.08][Math.floor(count / glyphs.length) % 4];
  return glyphs[count % glyphs.length].strokes.map((stroke) => stroke.map(([x, y]) => [x - slant * y, y]));
}

function setUpViews() {
  views = [scoresView(app), routingView(app), slidersView(app), pairsView(app), compareView(app), whatIfView(app)];
  for (const view of views) {
    view.tab = make("button", { type: "button", role: "tab", id: `tab-${view.id}`, "aria-controls": `view-${view.id}`, onclick: () => open(view) }, view.title);
    view.panel = make("div", { role: "tabpanel", id: `view-${view.id}`, "aria-labelledby": `tab-${view.id}`, className: "hidden" },
      make("p", {}, view.words), view.root);
    byId("tabs").append(view.tab);
    byId("panels").append(view.panel);
  }
  byId("tabs").addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const next = views[(views.indexOf(active) + step + views.length) % views.length];
    next.tab.focus();
    open(next);
  });
  globalThis.addEventListener("hashchange", () => open(viewOfAddress()));
  open(viewOfAddress());
}

function viewOfAddress() {
  return views.find((view) => `#${view.id}` === location.hash) ?? views[0];
}

function open(view) {
  active = view;
  for (const one of views) {
    one.tab.setAttribute("aria-selected", String(one === view));
    one.tab.tabIndex = one === view ? 0 : -1;
    one.panel.classList.toggle("hidden", one !== view);
  }
  for (const id of ["input", "choice", "about"]) byId(id).classList.toggle("hidden", Boolean(view.ownInput));
  document.querySelector("main").classList.toggle("alone", Boolean(view.ownInput));
  history.replaceState(null, "", `#${view.id}`);
  refresh();
}

async function showAbout() {
  const name = byId("network").value;
  byId("about").textContent = app.factsOf(name, await app.describe(name));
}

function titleOf(name) {
  const routing = name.replace("demo/mnist-", "");
  return { em: "EM", self: "Self-routing" }[routing] ?? `${routing[0].toUpperCase()}${routing.slice(1).replaceAll("-", " ")}`;
}

async function start() {
  app.backend = await openBackend();
  app.catalog = await app.backend.networks();
  app.catalog.pairs = app.catalog.networks.find((entry) => entry.name.includes("multimnist"))?.name;
  for (const entry of app.catalog.networks) entry.title = titleOf(entry.name);
  const select = byId("network");
  select.append(...app.catalog.networks.map((entry) => make("option", { value: entry.name }, entry.name)));
  select.value = app.catalog.first;
  select.addEventListener("change", () => { app.attempt(showAbout); redrawn(); });
  setUpPad();
  setUpViews();
  await showAbout();
}

app.attempt(start);
