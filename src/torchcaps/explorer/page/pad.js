// A drawing pad for mouse, touch and keyboard, and the image that a network gets from it.

const PAD_SIDE = 280;
const PEN_WIDTH = 22;
const DIGIT_SHARE = 20 / 28; // MNIST fits its digits into 20 of 28 pixels
const KEY_STEP = 10;

export class Pad {
  // Each of `colors` is a pen with ink of its own: one, or two for overlapping digits.
  constructor(root, { label, colors = ["#ffffff"], hint, onChange }) {
    this.strokes = [];
    this.pen = 0;
    this.erasing = false;
    this.colors = colors;
    this.onChange = onChange;
    this.cursor = { x: PAD_SIDE / 2, y: PAD_SIDE / 2, down: false, shown: false };
    this.canvas = document.createElement("canvas");
    this.canvas.width = this.canvas.height = PAD_SIDE;
    this.canvas.className = "pad";
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute("role", "img");
    this.canvas.setAttribute("aria-label", `${label}. With the keyboard: arrows move, Space lowers or lifts the pen, ` +
      "E changes between pen and eraser, Delete clears.");
    this.hint = document.createElement("span");
    this.hint.className = "hint";
    this.hint.textContent = hint;
    const frame = document.createElement("div");
    frame.className = "frame";
    frame.append(this.canvas, this.hint);
    root.append(frame);
    this.listen();
    this.show();
  }

  listen() {
    const canvas = this.canvas;
    const point = (event) => {
      const box = canvas.getBoundingClientRect();
      return [((event.clientX - box.left) / box.width) * PAD_SIDE, ((event.clientY - box.top) / box.height) * PAD_SIDE];
    };
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      this.begin(point(event));
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!canvas.hasPointerCapture(event.pointerId)) return;
      for (const one of event.getCoalescedEvents?.() ?? [event]) this.extend(point(one));
      this.extend(point(event));
      this.changed();
    });
    canvas.addEventListener("keydown", (event) => this.onKey(event));
    canvas.addEventListener("blur", () => { this.cursor.shown = this.cursor.down = false; this.show(); });
  }

  onKey(event) {
    const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    const cursor = this.cursor;
    if (moves[event.key]) {
      const [dx, dy] = moves[event.key];
      cursor.x = Math.min(PAD_SIDE, Math.max(0, cursor.x + dx * KEY_STEP));
      cursor.y = Math.min(PAD_SIDE, Math.max(0, cursor.y + dy * KEY_STEP));
      if (cursor.down) this.extend([cursor.x, cursor.y]);
    } else if (event.key === " ") {
      cursor.down = !cursor.down;
      if (cursor.down) this.begin([cursor.x, cursor.y]);
    } else if (event.key === "Delete" || event.key === "Backspace") {
      this.clear();
    } else if (event.key.toLowerCase() === "e") {
      this.erasing = !this.erasing;
      this.canvas.dispatchEvent(new Event("pen"));
    } else {
      return;
    }
    event.preventDefault();
    cursor.shown = true;
    this.changed();
  }

  begin(point) {
    this.picture = null;
    this.strokes.push({ pen: this.pen, erase: this.erasing, points: [point] });
    this.changed();
  }

  extend(point) {
    this.strokes.at(-1)?.points.push(point);
  }

  undo() {
    this.strokes.pop();
    this.changed();
  }

  clear() {
    this.strokes = [];
    this.picture = null;
    this.changed();
  }

  // Replace one pen's ink by the strokes of a glyph: points from -1 to 1.
  write(strokes, pen = 0) {
    this.picture = null;
    const scale = 0.34 * PAD_SIDE;
    this.strokes = this.strokes.filter((stroke) => stroke.pen !== pen);
    for (const stroke of strokes) {
      const points = spline(stroke).map(([x, y]) => [PAD_SIDE / 2 + scale * x, PAD_SIDE / 2 + scale * y]);
      this.strokes.push({ pen, erase: false, points });
    }
    this.changed();
  }

  // Show a picture in place of strokes; `labels` are the names of what is on it, if they are known.
  paste(picture, labels = []) {
    this.strokes = [];
    this.picture = picture;
    this.labels = labels;
    this.changed();
  }

  changed() {
    this.show();
    this.onChange();
  }

  show() {
    const context = this.canvas.getContext("2d");
    context.clearRect(0, 0, PAD_SIDE, PAD_SIDE);
    this.hint.classList.toggle("hidden", !this.isEmpty() || this.cursor.shown);
    context.imageSmoothingEnabled = Boolean(this.picture && this.picture.width > PAD_SIDE);
    if (this.picture) drawCovering(context, this.picture, PAD_SIDE, PAD_SIDE);
    context.globalCompositeOperation = "lighter";
    this.colors.forEach((color, pen) => context.drawImage(this.ink(pen, color), 0, 0));
    context.globalCompositeOperation = "source-over";
    if (this.cursor.shown) {
      context.strokeStyle = this.cursor.down ? "#ff5a36" : "#7fb8ff";
      context.lineWidth = 3;
      context.beginPath();
      context.arc(this.cursor.x, this.cursor.y, PEN_WIDTH / 2, 0, 2 * Math.PI);
      context.stroke();
    }
  }

  // The ink of one pen on a canvas of its own.
  ink(pen, color = "#ffffff") {
    const canvas = document.createElement("canvas");
    canvas.width = canvas.height = PAD_SIDE;
    const context = canvas.getContext("2d", { willReadFrequently: true });
    context.lineCap = context.lineJoin = "round";
    context.strokeStyle = color;
    for (const { pen: owner, erase, points } of this.strokes) {
      if (owner !== pen && !erase) continue;
      context.globalCompositeOperation = erase ? "destination-out" : "source-over";
      context.lineWidth = erase ? 1.6 * PEN_WIDTH : PEN_WIDTH;
      context.beginPath();
      context.moveTo(...points[0]);
      for (const point of points) context.lineTo(...point);
      context.stroke();
    }
    return canvas;
  }

  isEmpty() {
    return !this.picture && this.strokes.every((stroke) => stroke.erase);
  }

  // The image for a network, a Uint8Array [c h w]: ink of one pen, centered by its mass, turned and moved.
  pixels([channels, height, width], { pen = 0, degrees = 0, dx = 0, dy = 0 } = {}) {
    if (this.picture) return picturePixels(this.picture, channels, height, width, { degrees, dx, dy });
    const gray = centeredInk(this.ink(pen), height, width, { degrees, dx, dy });
    const pixels = new Uint8Array(channels * height * width);
    for (let channel = 0; channel < channels; channel++) pixels.set(gray, channel * height * width);
    return pixels;
  }
}

// Ink [height width], 0 to 255: scaled so that its longer side fills MNIST's box, its center of mass in the middle.
function centeredInk(canvas, height, width, { degrees, dx, dy }) {
  const { data } = canvas.getContext("2d").getImageData(0, 0, PAD_SIDE, PAD_SIDE);
  let [left, right, top, bottom, mass, sumX, sumY] = [PAD_SIDE, -1, PAD_SIDE, -1, 0, 0, 0];
  for (let y = 0, at = 3; y < PAD_SIDE; y++) {
    for (let x = 0; x < PAD_SIDE; x++, at += 4) {
      const alpha = data[at];
      if (alpha < 8) continue;
      left = Math.min(left, x); right = Math.max(right, x);
      top = Math.min(top, y); bottom = Math.max(bottom, y);
      mass += alpha; sumX += alpha * (x + 0.5); sumY += alpha * (y + 0.5);
    }
  }
  const gray = new Uint8Array(height * width);
  if (mass === 0) return gray;
  const box = height === 36 ? 20 : DIGIT_SHARE * Math.min(height, width); // MultiMNIST: digits of 28 in 36 pixels
  const scale = Math.min(box / Math.max(right - left + 1, bottom - top + 1), 0.2);
  const [cosine, sine] = [Math.cos((degrees * Math.PI) / 180) / scale, Math.sin((degrees * Math.PI) / 180) / scale];
  const [centerX, centerY] = [sumX / mass, sumY / mass];
  const samples = Math.min(12, Math.ceil(1 / scale));
  for (let row = 0; row < height; row++) {
    for (let column = 0; column < width; column++) {
      let sum = 0;
      for (let a = 0; a < samples; a++) {
        for (let b = 0; b < samples; b++) {
          const u = column + (b + 0.5) / samples - width / 2 - dx;
          const v = row + (a + 0.5) / samples - height / 2 - dy;
          const x = Math.floor(centerX + cosine * u - sine * v);
          const y = Math.floor(centerY + sine * u + cosine * v);
          if (x >= 0 && x < PAD_SIDE && y >= 0 && y < PAD_SIDE) sum += data[4 * (y * PAD_SIDE + x) + 3];
        }
      }
      gray[row * width + column] = Math.round(sum / samples ** 2);
    }
  }
  return gray;
}

function drawCovering(context, picture, width, height) {
  const scale = Math.max(width / picture.width, height / picture.height);
  const [w, h] = [picture.width * scale, picture.height * scale];
  context.drawImage(picture, (width - w) / 2, (height - h) / 2, w, h);
}

function picturePixels(picture, channels, height, width, { degrees, dx, dy }) {
  const canvas = document.createElement("canvas");
  canvas.width = width;
  canvas.height = height;
  const context = canvas.getContext("2d");
  context.imageSmoothingQuality = "high";
  context.translate(width / 2 + dx, height / 2 + dy);
  context.rotate((-degrees * Math.PI) / 180);
  context.translate(-width / 2, -height / 2);
  drawCovering(context, picture, width, height);
  const { data } = context.getImageData(0, 0, width, height);
  const pixels = new Uint8Array(channels * height * width);
  for (let at = 0; at < height * width; at++) {
    const color = data.subarray(4 * at, 4 * at + 3);
    const gray = 0.299 * color[0] + 0.587 * color[1] + 0.114 * color[2];
    for (let channel = 0; channel < channels; channel++) {
      pixels[channel * height * width + at] = channels === 3 ? color[channel] : Math.round(gray);
    }
  }
  return pixels;
}

// Points along the Catmull-Rom spline through the control points.
export function spline(control, steps = 8) {
  if (control.length < 3) return control;
  const closed = control[0].every((value, axis) => value === control.at(-1)[axis]);
  const mirror = (a, b) => a.map((value, axis) => 2 * value - b[axis]);
  const points = [
    closed ? control.at(-2) : mirror(control[0], control[1]),
    ...control,
    closed ? control[1] : mirror(control.at(-1), control.at(-2)),
  ];
  const path = [];
  for (let i = 1; i < control.length; i++) {
    for (let step = 0; step < steps; step++) {
      const t = step / steps;
      path.push([0, 1].map((axis) => {
        const [p0, p1, p2, p3] = points.slice(i - 1, i + 3).map((point) => point[axis]);
        return p1 + 0.5 * t * (p2 - p0 + t * (2 * p0 - 5 * p1 + 4 * p2 - p3 + t * (3 * p1 - p0 - 3 * p2 + p3)));
      }));
    }
  }
  return [...path, control.at(-1)];
}
