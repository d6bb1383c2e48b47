// View 1: class capsules grow while one draws.
import { make, paintImage, pixelCanvas, showBars } from "./charts.js";
import { confidences, ranking } from "./readings.js";

export function scoresView(app) {
  const bars = make("div", { className: "bars" });
  const seen = pixelCanvas(140, "The image as the network gets it");
  const drawn = pixelCanvas(140, "The drawing of the decoder");
  const drawnFigure = make("figure", {}, drawn, make("figcaption", {}, "Drawn back from the numbers of the best capsule."));
  const seenWords = make("figcaption");
  const root = make("div", { className: "two" }, bars, make("div", { className: "figures" }, make("figure", {}, seen, seenWords), drawnFigure));
  return {
    id: "classes",
    title: "Classes",
    words: "Every class has a capsule, a short list of numbers, and its bar shows how sure the network is that the class is " +
      "there. Watch the bars rise and fall while you draw: the drawing is read anew with every movement of the pen.",
    root,
    update({ described, pixels, look, pad, empty }) {
      const values = confidences(described, look.scores);
      const best = empty ? [] : ranking(values).slice(0, described.objects);
      showBars(bars, described.classes, values, { best });
      paintImage(seen, described.input, pixels, 255);
      seenWords.textContent = pad.picture || !app.isOfDigits(described)
        ? `What the network sees: ${described.input[2]} x ${described.input[1]} pixels.`
        : "What the network sees: your drawing, fitted and centered by its mass as MNIST was made.";
      drawnFigure.classList.toggle("hidden", !look.drawing);
      if (look.drawing) {
        const [channels, height, width] = look.drawing.shape.slice(-3);
        paintImage(drawn, [channels, height, width], look.drawing.data);
      }
    },
  };
}
