// The forward pass of a built transformer. Numbers are float64, as in its certificate.
const dot = (a, b) => a.reduce((sum, x, i) => sum + x * b[i], 0);
const activate = {
  linear: (scores) => scores,
  relu: (scores) => scores.map((s) => Math.max(s, 0)),
  softmax: (scores) => {
    const top = Math.max(...scores), powers = scores.map((s) => Math.exp(s - top));
    const whole = powers.reduce((a, b) => a + b, 0);
    return powers.map((p) => p / whole);
  },
};
function attend(stream, {heads, targets, kind, mask, normalisation}, n) {
  const out = stream.map((token) => token.slice());
  for (const {query, key, value} of heads) {
    const [q, k, v] = [query, key, value].map((w) => stream.map((h) => w.map((row) => dot(row, h))));
    stream.forEach((_, i) => {
      const keys = {all: stream.length, context: n, causal: i + 1}[mask];
      const scale = {"1": 1, "1/n": 1 / n, "1/N": 1 / stream.length, "1/i": 1 / (i + 1)}[normalisation];
      const weights = activate[kind](k.slice(0, keys).map((kj) => dot(q[i], kj)));
      targets.forEach((place, r) => { out[i][place] += scale * dot(weights, v.slice(0, keys).map((vj) => vj[r])); });
    });
  }
  return out;
}
function think(stream, {inner, bias, outer, targets}) {
  return stream.map((token) => {
    const hidden = inner.map((row, u) => Math.max(dot(row, token) + bias[u], 0)), out = token.slice();
    targets.forEach((place, r) => { out[place] += dot(outer[r], hidden); });
    return out;
  });
}
const run = (blocks, stream, n) => blocks.reduce((h, {attention, mlp}) => {
  const attended = attention ? attend(h, attention, n) : h;
  return mlp ? think(attended, mlp) : attended;
}, stream);
// The output stream after 0, 1, …, all steps; the first n tokens are the context.
function forward(model, tokens, n) {
  let stream = run(model.prologue, tokens, n);
  const outputs = [run(model.epilogue, stream, n)];
  for (let step = 0; step < model.steps; step++) {
    stream = run(model.body[step % model.body.length], stream, n);
    outputs.push(run(model.epilogue, stream, n));
  }
  return outputs;
}
