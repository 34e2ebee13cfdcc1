// Asks Graphviz for pictures. It is loaded when the first one is needed, and given up where one takes too long.

const LAYOUT_MS_MAX = 10_000;
let worker = null;
let asked = 0;
const waiting = new Map();

/** The SVG text of a graph in DOT. Rejects where Graphviz cannot be had, fails or takes too long. */
export function layout(dot) {
  worker ??= hire();
  asked += 1;
  const id = asked;
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => dismiss(new Error("the picture took too long to lay out")), LAYOUT_MS_MAX);
    waiting.set(id, { resolve, reject, timer });
    worker.postMessage({ id, dot });
  });
}

function hire() {
  const hired = new Worker(new URL("./layout-worker.js", import.meta.url), { type: "module" });
  hired.addEventListener("message", ({ data }) => {
    const one = waiting.get(data.id);
    if (!one) return;
    waiting.delete(data.id);
    clearTimeout(one.timer);
    if (data.error) one.reject(new Error(data.error));
    else one.resolve(data.svg);
  });
  hired.addEventListener("error", () => dismiss(new Error("Graphviz could not be loaded")));
  return hired;
}

/** End the thread: whoever waits is told why, and the next picture starts a new one. */
function dismiss(error) {
  worker?.terminate();
  worker = null;
  for (const { reject, timer } of waiting.values()) {
    clearTimeout(timer);
    reject(error);
  }
  waiting.clear();
}
