// View 5: the same drawing through networks that differ in their routing alone.
import { make, paintHeat, paintPlaces, percent, pixelCanvas, showBars } from "./charts.js";
import { byPlace, confidences, couplingsOfChildren, ranking, relevance } from "./readings.js";

export function compareView(app) {
  const cards = make("div", { className: "cards" });
  const shown = new Map();

  function card(entry) {
    const one = {
      verdict: make("p"),
      bars: make("div", { className: "bars" }),
      places: make("canvas", { className: "pixels wide places-seen", role: "img", "aria-label": `Places that decide, ${entry.title}` }),
      map: make("canvas", { className: "pixels wide", role: "img", "aria-label": `Couplings child by class, ${entry.title}` }),
    };
    one.map.style.height = "60px";
    const facts = entry.test == null ? "" : `${entry.test.toFixed(1)} % of MNIST right`;
    cards.append(make("article", { className: "card", "data-network": entry.name }, make("h3", {}, entry.title), one.verdict,
      make("p", { className: "quiet" }, facts), one.places, make("p", { className: "quiet" }, "Couplings, child by class"), one.map, one.bars));
    shown.set(entry.name, one);
    return one;
  }

  return {
    id: "compare",
    title: "Compare",
    words: "These networks have the same layers and were trained on the same digits; they differ in their routing alone, after which " +
      "they are named. Compare what they read in your drawing, how sure they are and which places decide.",
    root: cards,
    async update({ pad, empty }) {
      const demos = app.catalog.networks.filter((entry) => entry.name.startsWith("demo/"));
      if (!demos.length) cards.textContent = "No demo networks are installed here.";
      const start = performance.now();
      for (const entry of demos) {
        const one = shown.get(entry.name) ?? card(entry);
        const described = await app.describe(entry.name);
        const own = pad.pixels(described.input);
        const look = await app.backend.look(entry.name, own);
        const values = confidences(described, look.scores);
        const best = ranking(values)[0];
        one.verdict.textContent = empty ? "Draw a digit." : `Reads ${described.classes[best]} (${percent(values[best])})`;
        const top = ranking(values).slice(0, 3);
        showBars(one.bars, top.map((kind) => described.classes[kind]), top.map((kind) => values[kind]), { best: [0] });
        paintPlaces(one.places, described, own, byPlace(relevance(described, look, best), described.layers[0].below));
        const last = look[`${described.layers.at(-1).name}.couplings`].shape[0] - 1;
        paintHeat(one.map, described.classes.map((_, kind) => Array.from(couplingsOfChildren(described, look, last, kind))));
      }
      return demos.length ? `Read by ${demos.length} networks in ${(performance.now() - start).toFixed(0)} ms.` : "";
    },
  };
}
