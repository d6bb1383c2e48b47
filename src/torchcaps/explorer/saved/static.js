// The backend of a saved page: exported graphs, run by onnxruntime-web in one thread.
// Files come from the page's folder, or from the page itself if `torchcapsFile` is there.

const readFile = globalThis.torchcapsFile ?? (async (name) => {
  const response = await fetch(name);
  if (!response.ok) throw new Error(`${name} is missing beside this page: save the page again`);
  return response.arrayBuffer();
});

async function moduleAddress(name) {
  return URL.createObjectURL(new Blob([await readFile(name)], { type: "text/javascript" }));
}

async function openRuntime() {
  const ort = await import(await moduleAddress("ort.wasm.min.mjs"));
  ort.env.wasm.numThreads = 1;
  ort.env.wasm.wasmPaths = { mjs: await moduleAddress("ort-wasm-simd-threaded.mjs") };
  ort.env.wasm.wasmBinary = await readFile("ort-wasm-simd-threaded.wasm");
  return ort;
}

async function openBackend() {
  const catalog = JSON.parse(new TextDecoder().decode(await readFile("catalog.json")));
  const ort = await openRuntime();
  const sessions = new Map();
  let last = Promise.resolve();

  // One run after another: a session takes no second input while it computes.
  function run(file, inputs) {
    const result = last.then(async () => {
      if (!sessions.has(file)) sessions.set(file, await ort.InferenceSession.create(new Uint8Array(await readFile(file))));
      const outputs = await sessions.get(file).run(inputs);
      return Object.fromEntries(Object.entries(outputs).map(([name, { dims, data }]) => [name, { shape: dims.slice(1), data }]));
    });
    last = result.catch(() => {});
    return result;
  }

  async function draw(name, poses, kind) {
    const { draw: file } = catalog.files[name];
    const values = Float32Array.from(poses.flat());
    const inputs = {
      poses: new ort.Tensor("float32", values, [1, poses.length, poses[0].length]),
      classes: new ort.Tensor("int64", BigInt64Array.of(BigInt(kind)), [1]),
    };
    return (await run(file, inputs)).drawing;
  }

  async function look(name, pixels, off = []) {
    const described = catalog.described[name];
    const keep = new Float32Array(described.n_children).fill(1);
    for (const child of off) keep[child] = 0;
    const outputs = await run(catalog.files[name].look, {
      images: new ort.Tensor("float32", Float32Array.from(pixels, (value) => value / 255), [1, ...described.input]),
      keep: new ort.Tensor("float32", keep, [1, keep.length]),
    });
    if (described.can_draw) outputs.drawing = await drawBest(name, outputs, described.objects);
    return outputs;
  }

  async function drawBest(name, { scores, poses }, count) {
    const [n, d] = poses.shape;
    const rows = Array.from({ length: n }, (_, row) => Array.from(poses.data.subarray(row * d, (row + 1) * d)));
    const best = Array.from(scores.data.keys()).sort((a, b) => scores.data[b] - scores.data[a]).slice(0, count);
    const drawings = [];
    for (const kind of best) drawings.push(await draw(name, rows, kind));
    if (count === 1) return drawings[0];
    return { shape: [count, ...drawings[0].shape], data: Float32Array.from(drawings.flatMap(({ data }) => Array.from(data))) };
  }

  return {
    networks: async () => ({ first: catalog.first, networks: catalog.networks, digits: catalog.digits }),
    describe: async (name) => catalog.described[name],
    effects: async (name, kind) => catalog.effects[name][kind],
    look,
    draw,
  };
}

globalThis.torchcapsBackend = openBackend();
