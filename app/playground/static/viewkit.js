// Shared by the views: elements, number and token formats, and the two colour scales.
// Texts come from callers, so they become text nodes only.

const SVG = "http://www.w3.org/2000/svg";

/** An element with attributes (null and false are left out), listeners (functions) and children. */
export function el(name, attributes = {}, ...children) {
  return addAttributes(document.createElement(name), attributes, children);
}

export function svg(name, attributes = {}, ...children) {
  return addAttributes(document.createElementNS(SVG, name), attributes, children);
}

function addAttributes(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value !== null && value !== false && value !== undefined) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** A number with a minus sign, without "-0.0", and with a sign for infinity. */
export function formatFigure(value, digits = 1) {
  if (value === -Infinity) return "−∞";
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const text = value.toFixed(digits);
  return Number(text) === 0 ? text.replace("-", "") : text.replace("-", "−");
}

/** A log-probability as a probability: "12 %", "0.3 %", "1 in 20,000". */
export function formatProbability(logProb) {
  const p = Math.exp(logProb);
  if (p >= 0.0995) return `${Math.round(p * 100)} %`;
  if (p >= 0.001) return `${(p * 100).toPrecision(2).replace(/\.0$/, "")} %`;
  const odds = 1 / p;
  return Number.isFinite(odds) && odds < 1e9 ? `1 in ${Number(odds.toPrecision(2)).toLocaleString("en")}` : "almost never";
}

const WHITESPACE_SIGNS = { " ": "␣", "\n": "⏎", "\t": "⇥", "\r": "␍" };

/** A token with visible white space; an empty token ends the text. */
export function tokenName(text) {
  if (text === "") return "end";
  return text.replace(/^ +| +$|[\n\t\r]/g, (spaces) => [...spaces].map((sign) => WHITESPACE_SIGNS[sign]).join(""))
    .replace(/[\u0000-\u001f\u007f-\u009f\u2028-\u202e\u2066-\u2069]/g, (sign) => `\\u${sign.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

export function plural(count, singular, many = `${singular}s`) {
  return `${count.toLocaleString("en")} ${count === 1 ? singular : many}`;
}

export const DISTANCE_BINS = 7;

/** The colour class of a distance: d0 at the end of the text, d6 at the furthest, "dead" for null. */
export function distanceClass(distance, furthest) {
  if (distance === null) return "dead";
  if (distance <= 1) return "d0";
  const share = (distance - 1) / Math.max(1, furthest - 1);
  return `d${Math.max(1, Math.min(DISTANCE_BINS - 1, Math.ceil(share * (DISTANCE_BINS - 1))))}`;
}

/** The range of distances of each class, for the legend: [class, "3–4"] in order. */
export function distanceLegend(distances) {
  const sorted = [...new Set(distances.filter((distance) => distance !== null))].sort((a, b) => a - b);
  const furthest = sorted.at(-1) ?? 1;
  const bins = new Map();
  for (const distance of sorted) {
    const name = distanceClass(distance, furthest);
    bins.set(name, [bins.get(name)?.[0] ?? distance, distance]);
  }
  return [...bins].map(([name, [from, to]]) => [name, from === to ? `${from}` : `${from}–${to}`]);
}

/** The colour classes of probabilities, from high to low. */
export const PROBABILITY_BANDS = [
  { name: "p0", least: 0.5, label: "over 50 %" },
  { name: "p1", least: 0.1, label: "10–50 %" },
  { name: "p2", least: 0.01, label: "1–10 %" },
  { name: "p3", least: 0.001, label: "0.1–1 %" },
  { name: "p4", least: 0, label: "under 0.1 %" },
];

export function probabilityClass(logProb) {
  const p = Math.exp(logProb);
  return PROBABILITY_BANDS.find((band) => p >= band.least).name;
}

/** A legend: swatches of classes with their meaning, and an explanation in a tooltip. */
export function legend(title, entries) {
  const items = entries.map(([name, label, title = null]) => el("li", { title }, el("span", { class: `swatch ${name}`, "aria-hidden": "true" }), label));
  return el("ul", { class: "legend", "aria-label": title }, ...items);
}

let ids = 0;

/** An id that is unique in the page. */
export function uniqueId(word) {
  ids += 1;
  return `${word}-${ids}`;
}

export function prefersReducedMotion() {
  return matchMedia("(prefers-reduced-motion: reduce)").matches;
}
