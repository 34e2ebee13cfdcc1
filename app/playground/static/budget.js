// The budget: a slider over max_tokens, whose track shows which budgets are impossible, tight and free.

import { el, formatNumber, plural, uniqueId } from "./dom.js";
import { legend } from "./viewkit.js";

const TOKENS_MAX = 64;  // of the slider, unless the constraint or the entered budget needs more
const TIGHT_FACTOR = 2;  // below this multiple of the least budget, the constraint decides most of the text

const MEANINGS = {
  impossible: "no text that satisfies the constraint fits: this is proven",
  undecided: "whether a text that satisfies the constraint fits was not decided",
  tight: "less than twice the least budget: the constraint decides most of the text",
  free: "at least twice the least budget: the model decides most of the text",
};

/** The regions of budgets for the figures of a compilation: [{ name, from }], each up to the next one's start. */
function regionsOf({ min_tokens, min_tokens_at_least = min_tokens }) {
  return [
    { name: "impossible", from: 1 }, { name: "undecided", from: min_tokens_at_least }, { name: "tight", from: min_tokens },
    { name: "free", from: TIGHT_FACTOR * min_tokens },
  ].filter(({ from }, index, all) => index === all.length - 1 || from < all[index + 1].from);
}

/** The name of the region that holds a budget. */
const regionOf = (regions, tokens) => regions.findLast(({ from }) => from <= tokens)?.name ?? regions[0].name;

export class Budget {
  /** `options` are the Options, whose max_tokens stands in `container`; the slider follows it and sets it. */
  constructor(container, options) {
    Object.assign(this, { options, regions: null, contextTokens: Infinity });
    const id = uniqueId("budget");
    this.slider = el("input", { type: "range", id, min: 1, max: TOKENS_MAX, step: 1, class: "budget-slider", input: () => options.set("max_tokens", this.slider.value) });
    this.words = el("output", { for: id, class: "budget-words" });
    this.key = el("div", { class: "budget-key" });
    container.prepend(el("div", { class: "budget-head" }, el("label", { for: id }, "Budget"), this.words), this.slider, this.key);
    this.update();
  }

  /** Shows the regions of a compilation. */
  show(answer) {
    this.regions = regionsOf(answer);
    this.update();
  }

  /** Shows no regions: no constraint compiles. */
  clear() {
    this.regions = null;
    this.update();
  }

  /** Follows max_tokens. */
  update() {
    const tokens = this.options.read().max_tokens;
    const least = this.regions?.find(({ name }) => name === "tight")?.from ?? 1;
    const end = Math.min(this.contextTokens, Math.max(TOKENS_MAX, 2 * TIGHT_FACTOR * least, tokens));
    Object.assign(this.slider, { max: end, value: tokens });
    const starts = Object.fromEntries((this.regions ?? []).map(({ name, from }) => [name, from]));
    const { tight = 1, undecided = tight, free = 1 } = starts;
    for (const [name, from] of Object.entries({ undecided, tight, free })) this.slider.style.setProperty(`--${name}-at`, edgeOf(from, end));
    this.slider.classList.toggle("unknown", !this.regions);
    const region = this.regions ? regionOf(this.regions, tokens) : "";
    this.words.textContent = region ? `${plural(tokens, "token")}: ${region}` : plural(tokens, "token");
    this.words.className = `budget-words ${region}`;
    this.words.title = MEANINGS[region] ?? "";
    this.slider.setAttribute("aria-valuetext", this.words.textContent);
    this.key.replaceChildren(this.regions ? legend("Regions of the budget", this.regions.map(entryOf)) : "");
  }
}

/** Where on the track the region begins whose first budget is `from`: half a token before its thumb. */
function edgeOf(from, end) {
  return from <= 1 ? "0px" : `calc(9px + (100% - 18px) * ${Math.min(1, (from - 1.5) / (end - 1))})`;
}

function entryOf({ name, from }, index, regions) {
  const next = regions[index + 1]?.from;
  const range = next === undefined ? `from ${formatNumber(from)}` : next === from + 1 ? formatNumber(from) : `${formatNumber(from)}–${formatNumber(next - 1)}`;
  return [`swatch-${name}`, `${range} ${name}${name === "impossible" ? " (proven)" : ""}`, MEANINGS[name]];
}
