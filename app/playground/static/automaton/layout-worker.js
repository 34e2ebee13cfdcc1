// Graphviz in a thread of its own: a graph that takes long to lay out does not stop the page.

import { Graphviz } from "../vendor/wasm-graphviz.js";

const loading = Graphviz.load();

self.addEventListener("message", async ({ data: { id, dot } }) => {
  try {
    const graphviz = await loading;
    self.postMessage({ id, svg: graphviz.dot(dot, "svg") });
  } catch (error) {
    self.postMessage({ id, error: String(error) });
  }
});
