// Graphviz in a worker, so that a long layout does not block the page.

import { Graphviz } from "../vendor/wasm-graphviz.js";

const graphvizPromise = Graphviz.load();
graphvizPromise.then(() => self.postMessage({ isLoaded: true }), () => {});  // a failure answers each request

self.addEventListener("message", async ({ data: { id, dot } }) => {
  try {
    const graphviz = await graphvizPromise;
    self.postMessage({ id, svg: graphviz.dot(dot, "svg") });
  } catch (error) {
    self.postMessage({ id, error: String(error) });
  }
});
