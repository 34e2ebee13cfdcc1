// Lays out graphs with Graphviz in a worker. It starts with the first graph and is stopped if a layout takes too long.

const LAYOUT_MS_MAX = 10_000;
let worker = null;
let lastId = 0;
const requests = new Map();

/** The SVG text of a graph in DOT. Rejects if Graphviz cannot be loaded, fails or takes too long. */
export function layout(dot) {
  worker ??= startWorker();
  lastId += 1;
  const id = lastId;
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => stopWorker(new Error("the layout took too long")), LAYOUT_MS_MAX);
    requests.set(id, { resolve, reject, timer });
    worker.postMessage({ id, dot });
  });
}

function startWorker() {
  const newWorker = new Worker(new URL("./layout-worker.js", import.meta.url), { type: "module" });
  newWorker.addEventListener("message", ({ data }) => {
    const request = requests.get(data.id);
    if (!request) return;
    requests.delete(data.id);
    clearTimeout(request.timer);
    if (data.error) request.reject(new Error(data.error));
    else request.resolve(data.svg);
  });
  newWorker.addEventListener("error", () => stopWorker(new Error("Graphviz could not be loaded")));
  return newWorker;
}

/** Terminates the worker and rejects all pending layouts; the next layout starts a new worker. */
function stopWorker(error) {
  worker?.terminate();
  worker = null;
  for (const { reject, timer } of requests.values()) {
    clearTimeout(timer);
    reject(error);
  }
  requests.clear();
}
