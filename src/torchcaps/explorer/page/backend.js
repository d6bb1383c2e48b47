// Where answers come from. A backend has these functions; a saved page brings another one, without `sample`:
//   networks() -> {first, networks: [{name, network, recipe, test, images}], digits: [{digit, strokes}]}
//   describe(name) -> what `Explored.describe` of explorer/explored.py returns
//   look(name, pixels, off) -> {scores, poses, drawing, "LAYER.couplings", ...}: the outputs of export/traced.py
//   draw(name, poses, kind) -> the image [c h w] of class `kind`; poses is an array of arrays
//   effects(name, kind) -> what each number of a pose does, in words
//   sample(name, number) -> {pixels, labels}: a test image of the data set that the network was trained for
// Pixels are a Uint8Array, channels first. A tensor is {shape, data: Float32Array}.

function decodeTensor({ shape, data }) {
  const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
  return { shape, data: new Float32Array(bytes.buffer) };
}

async function fetchJson(path, options) {
  let response;
  try {
    response = await fetch(path, options);
  } catch {
    throw new Error("the server does not answer: start torchcaps explore again, then reload this page");
  }
  const content = await response.json();
  if (!response.ok) throw new Error(content.error);
  return content;
}

function postJson(path, content) {
  const headers = { "Content-Type": "application/json" };
  return fetchJson(path, { method: "POST", headers, body: JSON.stringify(content) });
}

const localBackend = {
  networks: () => fetchJson("api/networks"),
  describe: (name) => fetchJson(`api/describe?network=${encodeURIComponent(name)}`),
  effects: (name, kind) => fetchJson(`api/effects?network=${encodeURIComponent(name)}&class=${kind}`),
  async look(name, pixels, off = []) {
    const outputs = await postJson("api/look", { network: name, image: Array.from(pixels), off });
    return Object.fromEntries(Object.entries(outputs).map(([key, tensor]) => [key, decodeTensor(tensor)]));
  },
  sample: (name, number) => fetchJson(`api/sample?network=${encodeURIComponent(name)}&number=${number}`),
  async draw(name, poses, kind) {
    return decodeTensor(await postJson("api/draw", { network: name, poses, class: kind }));
  },
};

export function openBackend() {
  return globalThis.torchcapsBackend ?? localBackend;
}
