// Compiles the constraint after each pause in typing, and shows errors at their position.

import { RequestError, askJson } from "./api.js";
import { el, debounce, plural } from "./dom.js";
import { IncompleteForm } from "./forms/basic.js";
import { sentence } from "./problems.js";
import { applySuggestion } from "./suggestions.js";

const PAUSE_MS = 250;
const IDLE_MS = 600;
const RETRY_MS = 3000;  // until a service that is away is asked again
const PREVIEW_CHARS_MAX = 90;  // of a corrected constraint
const UNENFORCED_MAX = 5;  // of the keywords without effect, and of warnings, that are shown
const CODES_WITH_POSITION = ["constraint_syntax", "unsupported"];

function unenforced(pointers) {
  const more = pointers.length > UNENFORCED_MAX ? ", …" : "";
  return `These have no effect: ${pointers.slice(0, UNENFORCED_MAX).join(", ")}${more}`;
}

/** What is probably a mistake in a constraint that is accepted. */
function warningText({ line, column, message }) {
  const text = `${message.charAt(0).toUpperCase()}${message.slice(1)}.`;
  return line === undefined ? text : `Line ${line}, column ${column}: ${text}`;
}

/** A button that applies a suggestion of the service; null if there is none that fits the request of the page. */
export function correctionButton(suggestion, { request, apply }) {
  const corrected = suggestion?.length ? applySuggestion(request(), suggestion) : null;
  if (!corrected) return null;
  const preview = JSON.stringify(corrected.constraint);
  const shown = preview.length > PREVIEW_CHARS_MAX ? `${preview.slice(0, PREVIEW_CHARS_MAX)}…` : preview;
  return el("button", { type: "button", class: "correction", click: () => apply(corrected) }, "Correct it to ", el("code", {}, shown));
}

export class LiveCompiler {
  /**
   * `form` is the ConstraintForm, `meaning` the Meaning. Callbacks: `onCompiled(answer)` after a compilation,
   * `onIdle(answer)` after a longer pause in typing, `onError()` if there is no automaton. A suggestion edits the
   * request that `request()` returns, and `apply(request)` writes it.
   */
  constructor(container, { form, meaning, ...callbacks }) {
    Object.assign(this, { form, meaning, callbacks, answer: null, constraint: null, problem: null, control: null });
    this.line = el("p", { class: "live-line", role: "status" });
    this.notes = el("div", { class: "notes" });
    container.append(this.line, this.notes);
    this.compileLater = debounce(PAUSE_MS, () => this.compile());
    this.explainLater = debounce(IDLE_MS, () => this.#explain());
    this.retryTimer = null;
  }

  /** Called after each edit. */
  onEdit() {
    this.#cancelRequests();
    this.compileLater();
  }

  /** Compiles the current constraint; resolves to the answer, or null if there is none. */
  async compile() {
    this.#cancelRequests();
    this.form.clear();
    this.notes.replaceChildren();
    this.problem = null;
    let constraint;
    try {
      constraint = this.form.read();
    } catch (error) {
      if (!(error instanceof IncompleteForm)) throw error;
      this.callbacks.onError();
      this.#setStatus(error.message, "incomplete");
      return null;
    }
    return await this.#send(constraint);
  }

  /** Shows an error of the constraint at its position; returns whether it is one. */
  locate(problem) {
    if (!CODES_WITH_POSITION.includes(problem.code)) return false;
    this.form.show(problem.field ?? "", sentence(problem), problem.position ?? null);
    return true;
  }

  async #send(constraint) {
    this.control = new AbortController();
    const { signal } = this.control;
    this.line.classList.add("busy");
    try {
      const answer = await askJson("POST", "/compile", { body: { constraint, explain: false }, signal });
      if (signal.aborted) return null;
      Object.assign(this, { answer, constraint });
      this.#setStatus(`Compiles: ${plural(answer.states, "state")}, ${plural(answer.letters, "letter")}.`, "good");
      this.#showWarnings(answer);
      this.callbacks.onCompiled(answer);
      this.explainLater();
      return answer;
    } catch (error) {
      if (signal.aborted) return null;
      if (!(error instanceof RequestError)) throw error;
      this.#showError(error.problem);
      return null;
    }
  }

  #showWarnings({ warnings = [], not_enforced, approximate }) {
    const pointers = [...not_enforced, ...approximate];
    this.notes.replaceChildren(
      pointers.length ? el("p", { class: "warning" }, unenforced(pointers)) : "",
      ...warnings.slice(0, UNENFORCED_MAX).flatMap((warning) => [
        el("p", { class: "warning" }, warningText(warning)), correctionButton(warning.suggestion, this.callbacks) ?? "",
      ]));
  }

  #showError(problem) {
    const hasPosition = this.locate(problem);
    this.problem = hasPosition ? null : problem;  // an error without a position is also shown beside the button
    this.callbacks.onError();
    this.meaning.hide();
    this.#setStatus(hasPosition ? "It does not compile yet." : sentence(problem), "bad");
    this.notes.replaceChildren(correctionButton(problem.suggestion, this.callbacks) ?? "");
    const retryMs = problem.code === "unreachable" ? RETRY_MS : problem.retry_after_s * 1000;
    if (!Number.isNaN(retryMs)) this.retryTimer = setTimeout(() => this.compile(), retryMs);
  }

  #explain() {
    this.callbacks.onIdle(this.answer);
    return this.meaning.explain(this.constraint, this.answer, this.control.signal);
  }

  #setStatus(text, kind) {
    this.line.textContent = text;
    this.line.className = `live-line ${kind}`;
  }

  /** Cancels the requests of the previous constraint. */
  #cancelRequests() {
    this.control?.abort();
    this.compileLater.cancel();
    this.explainLater.cancel();
    clearTimeout(this.retryTimer);
  }
}
