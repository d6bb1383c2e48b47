// What the outputs of a network say: scores as shares, who decides a class, the parse tree.

export function confidences(described, scores) {
  const values = Array.from(scores.data);
  if (!described.softmax) return values;
  const top = Math.max(...values);
  const powers = values.map((value) => Math.exp(value - top));
  const sum = powers.reduce((a, b) => a + b, 0);
  return powers.map((power) => power / sum);
}

export function ranking(values) {
  return values.map((_, index) => index).sort((a, b) => values[b] - values[a]);
}

export function poseRows(look) {
  const [n, d] = look.poses.shape;
  return Array.from({ length: n }, (_, row) => Array.from(look.poses.data.subarray(row * d, (row + 1) * d)));
}

// Couplings [i] of one parent j at position p after iteration t.
export function couplingOf(couplings, t, p, j) {
  const [, positions, n, m] = couplings.shape;
  const start = (t * positions + p) * n * m;
  return Array.from({ length: n }, (_, i) => couplings.data[start + i * m + j]);
}

// Shares of all children below a layer in parent `kind` at position `place`; they sum to one.
function sharesOfParent(layer, look, place, kind) {
  const strength = look[`${layer.name}.strength`];
  const [, slots, parents] = strength.shape;
  const shares = new Float64Array(layer.below[0] * layer.below[1] * layer.below[2]);
  let sum = 0;
  for (let slot = 0; slot < slots; slot++) {
    const child = layer.child[place][slot];
    if (child < 0) continue;
    const value = strength.data[(place * slots + slot) * parents + kind];
    shares[child] += value;
    sum += value;
  }
  return shares.map((share) => share / Math.max(sum, 1e-30));
}

// Share of every primary capsule in a class, along all branches.
export function relevance(described, look, kind) {
  let above = new Map([[kind, 1]]);
  for (const layer of [...described.layers].reverse()) {
    const [rows, columns, types] = layer.above;
    const positions = rows * columns > 1 ? types : Infinity;
    const below = new Float64Array(layer.below[0] * layer.below[1] * layer.below[2]);
    for (const [parent, weight] of above) {
      const place = positions === Infinity ? 0 : Math.floor(parent / types);
      const shares = sharesOfParent(layer, look, place, positions === Infinity ? parent : parent % types);
      shares.forEach((share, child) => { below[child] += weight * share; });
    }
    above = new Map([...below.entries()].filter(([, weight]) => weight > 1e-6));
    if (layer === described.layers[0]) return below;
  }
  return new Float64Array();
}

const BRANCHES = 6; // of a node at most
const NODES = 9; // of a level at most

// The strongest branches under a class: [{level, place: [row, column], type, share, weight, parent}].
// A node's weight is the product of the shares above it; a level keeps the heaviest nodes.
export function parseTree(described, look, kind) {
  const nodes = [{ level: 0, place: [0, 0], type: kind, share: 1, weight: 1, parent: -1 }];
  let first = 0;
  [...described.layers].reverse().forEach((layer, index) => {
    const stop = nodes.length;
    const below = [];
    const [rows, columns, types] = layer.above;
    for (let parent = first; parent < stop; parent++) {
      const node = nodes[parent];
      const place = rows * columns > 1 ? node.place[0] * columns + node.place[1] : 0;
      const shares = sharesOfParent(layer, look, place, node.type % types);
      for (const child of ranking(Array.from(shares)).slice(0, BRANCHES)) {
        if (shares[child] <= 0) continue;
        const [, width, kinds] = layer.below;
        const spot = Math.floor(child / kinds);
        below.push({
          level: index + 1, place: [Math.floor(spot / width), spot % width], type: child % kinds,
          share: shares[child], weight: node.weight * shares[child], parent,
        });
      }
    }
    const least = below.map((node) => node.weight).sort((a, b) => b - a)[NODES - 1] ?? 0;
    nodes.push(...below.filter((node) => node.weight >= least).slice(0, NODES));
    first = stop;
  });
  return nodes;
}

// Sum over types: a value per place of the grid.
export function byPlace(values, [rows, columns, types]) {
  const sums = new Float64Array(rows * columns);
  values.forEach((value, child) => { sums[Math.floor(child / types)] += value; });
  return sums;
}

// Couplings of the class layer as a value per child, for class `kind` after iteration t.
export function couplingsOfChildren(described, look, t, kind) {
  const layer = described.layers.at(-1);
  const couplings = look[`${layer.name}.couplings`];
  const [, positions, n] = couplings.shape;
  const values = new Float64Array(layer.below[0] * layer.below[1] * layer.below[2]);
  for (let place = 0; place < positions; place++) {
    const column = couplingOf(couplings, t, place, kind);
    const slots = layer.child[place];
    slots.forEach((child, slot) => {
      if (child >= 0) values[child] += column[Math.floor((slot * n) / slots.length)] / positions;
    });
  }
  return values;
}
