// View 3: the numbers of a class capsule as sliders that move the drawing.
import { chooser, latestOnly, make, paintImage, pixelCanvas, slider } from "./charts.js";
import { poseRows } from "./readings.js";

const SPAN = 0.3;

export function slidersView(app) {
  let state;
  let poses = [];
  let sliders = [];
  let labeled = "";
  const kinds = make("div");
  const drawn = pixelCanvas(250, "The drawing of the moved capsule");
  drawn.id = "moved";
  const before = pixelCanvas(120, "The drawing of the capsule as the network found it");
  const panel = make("div", { className: "sliders" });
  const none = make("p", { className: "quiet hidden" }, "This network has no decoder and cannot draw: choose another at the top.");
  const reset = make("button", { type: "button", onclick: () => { sliders.forEach((one) => one.set(0)); redraw(); } }, "Reset the sliders");
  const content = make("div", {}, make("h3", {}, "Class"), kinds,
    make("div", { className: "figures top" },
      make("figure", {}, drawn, make("figcaption", {}, "Drawing of the capsule with your changes.")),
      make("figure", {}, before, make("figcaption", {}, "As the network found it."))),
    make("div", { className: "row" }, reset), panel);
  const root = make("div", {}, none, content);

  const redraw = latestOnly(async () => {
    const moved = poses.map((row, kind) => (kind === state.kind ? row.map((value, index) => value + sliders[index].value) : row));
    await app.attempt(async () => {
      const image = await app.backend.draw(state.name, moved, state.kind);
      paintImage(drawn, image.shape, image.data);
      root.dataset.drawn = String(Number(root.dataset.drawn ?? 0) + 1);
    });
  });

  const label = latestOnly(async (name, kind) => {
    await app.attempt(async () => {
      const words = await app.backend.effects(name, kind);
      sliders.forEach((one, index) => one.name(words[index] ? `${index + 1}: ${words[index]}` : `Number ${index + 1}`));
      labeled = `${name} ${kind}`;
    });
  });

  return {
    id: "sliders",
    title: "Sliders",
    words: "A class capsule holds numbers that say how its digit is written, and a decoder draws the digit back from them. " +
      "Move a slider to change one number; its label says what a move to the right does, as measured on generated digits of this class.",
    root,
    update(next) {
      state = next;
      none.classList.toggle("hidden", state.described.can_draw);
      content.classList.toggle("hidden", !state.described.can_draw);
      if (!state.described.can_draw) return;
      poses = poseRows(state.look);
      if (sliders.length !== poses[0].length || kinds.described !== state.described) {
        const span = SPAN * state.described.pose_step;
        sliders = poses[0].map((_, index) =>
          slider(String(index + 1), { min: -span, max: span, step: span / 30, value: 0, onInput: () => redraw() }));
        panel.replaceChildren(...sliders.map((one) => one.root));
        const one = chooser(state.described.classes, (kind) => app.choose(kind));
        kinds.replaceChildren(one.root);
        kinds.press = one.press;
        kinds.described = state.described;
        labeled = "";
      }
      kinds.press(state.kind);
      if (labeled !== `${state.name} ${state.kind}`) label(state.name, state.kind);
      app.attempt(async () => {
        const image = await app.backend.draw(state.name, poses, state.kind);
        paintImage(before, image.shape, image.data);
      });
      return redraw();
    },
  };
}
