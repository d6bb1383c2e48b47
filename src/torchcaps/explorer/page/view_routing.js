// View 2: routing iterations, couplings by child and by place, the parse tree.
import { chooser, largest, make, paintHeat, paintImage, paintPlaces, percent, pixelCanvas, rowNames, slider } from "./charts.js";
import { byPlace, couplingsOfChildren, parseTree, ranking, relevance } from "./readings.js";

const SVG = "http://www.w3.org/2000/svg";

function svg(tag, attributes, text) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

export function routingView(app) {
  let state;
  let timer = 0;
  const map = make("canvas", { className: "pixels wide", role: "img", "aria-label": "Couplings: a row per class, a column per child" });
  const names = make("div", { className: "names", "aria-hidden": "true" });
  const scale = make("p", { className: "quiet" });
  const coupled = pixelCanvas(164, "Couplings to the chosen class by place in the image");
  const deciding = pixelCanvas(164, "Children that decide the chosen class by place in the image");
  const step = slider("Routing iteration", { min: 1, max: 3, step: 1, value: 3, onInput: () => show() });
  const play = make("button", { type: "button", onclick: () => playThrough() }, "Play iterations");
  const controls = make("div", { className: "row" }, step.root, play);
  const kinds = make("div");
  const note = make("p", { className: "quiet" });
  const table = make("table");
  const tree = svg("svg", { class: "tree", role: "img", "aria-label": "Parse tree", width: "100%" });
  const root = make("div", {},
    make("h3", {}, "Class"), kinds,
    controls, note,
    make("h3", {}, "Couplings, child by class"), make("div", { className: "heat" }, names, map), scale,
    make("div", { className: "two" }, make("div", {}, make("h3", {}, "Places"), make("div", { className: "figures" },
      make("figure", {}, coupled, make("figcaption", {}, "Couplings to this class, summed at each place.")),
      make("figure", {}, deciding, make("figcaption", {}, "Share of each place in this class: coupling times vote."))),
      make("h3", {}, "Children that decide"), make("div", { className: "scroll" }, table)),
    make("div", {}, make("h3", {}, "Parse tree"), make("div", { className: "scroll" }, tree),
      make("p", { className: "quiet" }, "The class at the top, below it the children with the largest shares and where they look."))));

  function playThrough() {
    clearInterval(timer);
    step.set(1);
    show();
    timer = setInterval(() => {
      if (step.value >= iterations()) return clearInterval(timer);
      step.set(step.value + 1);
      show();
    }, 900);
  }

  function iterations() {
    const layer = state.described.layers.at(-1);
    return state.look[`${layer.name}.couplings`].shape[0];
  }

  function show() {
    if (!state) return;
    const { described, look, pixels } = state;
    const layer = described.layers.at(-1);
    const count = iterations();
    const t = Math.min(step.value, count) - 1;
    const couplingsAfter = (time) => described.classes.map((_, kind) => Array.from(couplingsOfChildren(described, look, time, kind)));
    const rows = couplingsAfter(t);
    const final = couplingsAfter(count - 1);
    const brightest = largest(final.flat());
    paintHeat(map, rows, brightest);
    rowNames(names, described.classes, state.kind);
    scale.textContent = "A row is a class; a column is a child, from the top left of the image to its bottom right. The brightest " +
      `square is a coupling of ${brightest.toFixed(2)}, black is none.`;
    const oneLayer = described.layers.length === 1;
    const [places, lasting] = [rows, final].map((all) => Array.from(byPlace(all[state.kind], layer.below)));
    const shares = relevance(described, look, state.kind);
    if (oneLayer) paintPlaces(coupled, described, pixels, places, [Math.min(...lasting), Math.max(...lasting)]);
    coupled.parentElement.classList.toggle("hidden", !oneLayer);
    paintPlaces(deciding, described, pixels, byPlace(shares, described.layers[0].below));
    note.textContent = count > 1
      ? `${layer.routing}, iteration ${t + 1} of ${count}. Shares, tree and table are of the last one.`
      : `${layer.routing} does not iterate: its couplings are found in one step.`;
    showTree(parseTree(described, look, state.kind));
    showTable(shares, final[state.kind], oneLayer);
  }

  function showTable(shares, couplings, oneLayer) {
    const [, columns, types] = state.described.layers[0].below;
    const head = ["Row", "Column", "Type", "Share", ...(oneLayer ? ["Coupling"] : [])];
    const lines = ranking(Array.from(shares)).slice(0, 8).filter((child) => shares[child] > 0).map((child) => {
      const place = Math.floor(child / types);
      const cells = [Math.floor(place / columns) + 1, (place % columns) + 1, (child % types) + 1, percent(shares[child])];
      if (oneLayer) cells.push(couplings[child].toFixed(3));
      return make("tr", {}, ...cells.map((cell) => make("td", {}, String(cell))));
    });
    table.replaceChildren(make("tr", {}, ...head.map((one) => make("th", { scope: "col" }, one))), ...lines);
  }

  function showTree(nodes) {
    const { described, pixels } = state;
    const levels = described.layers.length;
    const leaves = nodes.filter((node) => node.level === levels);
    const width = Math.max(330, leaves.length * 48);
    const side = 160;
    const height = levels * 62 + 40 + side;
    tree.replaceChildren();
    tree.setAttribute("viewBox", `0 0 ${width} ${height}`);
    tree.style.maxWidth = `${Math.max(width, 420)}px`;
    const picture = document.createElement("canvas");
    paintImage(picture, described.input, pixels, 255);
    const left = (width - side) / 2;
    const top = height - side;
    tree.append(svg("image", { href: picture.toDataURL(), x: left, y: top, width: side, height: side, style: "image-rendering: pixelated" }));
    for (let level = 0; level <= levels; level++) {
      const row = nodes.filter((node) => node.level === level);
      row.forEach((node, index) => {
        node.x = ((index + 0.5) * width) / row.length;
        node.y = 22 + 62 * level;
      });
    }
    const [rows, columns] = described.fields;
    const pixel = side / described.input[1];
    for (const node of nodes) {
      if (node.parent >= 0) {
        const above = nodes[node.parent];
        tree.append(svg("line", { class: "branch", x1: above.x, y1: above.y, x2: node.x, y2: node.y, "stroke-width": 1 + 12 * node.share }));
      }
      if (node.level === levels) {
        const [x, y] = [left + (columns.start + columns.step * node.place[1] + 0.5) * pixel, top + (rows.start + rows.step * node.place[0] + 0.5) * pixel];
        tree.append(svg("line", { class: "look", x1: node.x, y1: node.y, x2: x, y2: y }), svg("circle", { class: "spot", cx: x, cy: y, r: 5 }));
      }
    }
    for (const node of nodes) {
      tree.append(svg("circle", { class: "node", cx: node.x, cy: node.y, r: 19 }),
        svg("text", { x: node.x, y: node.y + 4, "text-anchor": "middle" }, node.level ? percent(node.share).replace("\u00a0", "") : described.classes[node.type].slice(0, 4)));
    }
  }

  return {
    id: "routing",
    title: "Routing",
    words: "Every child capsule sees a small part of the image and gives its vote to the classes; couplings say how much each " +
      "class gets of it. Step through the iterations and see the couplings move to the class on which the children agree.",
    root,
    update(next) {
      if (state?.described !== next.described) {
        const one = chooser(next.described.classes, (kind) => app.choose(kind));
        kinds.replaceChildren(one.root);
        kinds.press = one.press;
        step.root.querySelector("input").max = next.look[`${next.described.layers.at(-1).name}.couplings`].shape[0];
        step.set(99);
        state = next;
        controls.classList.toggle("hidden", iterations() < 2);
      }
      state = next;
      kinds.press(state.kind);
      show();
    },
  };
}
