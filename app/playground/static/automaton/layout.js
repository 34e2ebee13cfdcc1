// Lays out graphs with Graphviz in a worker. It starts with the first graph and is stopped if a layout takes too long.

const LAYOUT_MS_MAX = 10_000;
let worker = null;
let isLoaded = false;  // Graphviz in the worker; over a slow connection that takes longer than a layout may
let lastId = 0;
const requests = new Map();

/** The SVG text of a graph in DOT. Rejects if Graphviz cannot be loaded, fails or takes too long. */
export function layout(dot) {
  worker ??= startWorker();
  lastId += 1;
  const id = lastId;
  return new Promise((resolve, reject) => {
    requests.set(id, { resolve, reject, timer: isLoaded ? startTimer() : null });
    worker.postMessage({ id, dot });
  });
}

function startTimer() {
  return setTimeout(() => stopWorker(new Error("the layout took too long")), LAYOUT_MS_MAX);
}

function startWorker() {
  const newWorker = new Worker(new URL("./layout-worker.js", import.meta.url), { type: "module" });
  newWorker.addEventListener("message", ({ data }) => {
    if (data.isLoaded) {
      isLoaded = true;
      for (const request of requests.values()) request.timer = startTimer();
      return;
    }
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
  isLoaded = false;
  for (const { reject, timer } of requests.values()) {
    clearTimeout(timer);
    reject(error);
  }
  requests.clear();
}
