// Runs a generation: streams its events into the views, shows the answers, and can be stopped.

import { RequestError } from "./api.js";
import { byId, plural, formatNumber } from "./dom.js";
import { Generation } from "./generation.js";

const REJECTED_TOP_K = 5;

export class Run {
  /** `views` has automaton, lattice, tokens, answers and result; `page` is the Playground. */
  constructor(views, page) {
    Object.assign(this, { views, page, generation: null, response: null, constraint: null, budget: 0, statePaths: null, hash: null });
  }

  /** Generates for {prompt, constraint, options}. */
  async start(request) {
    const { prompt, constraint, options } = request;
    const { page } = this;
    this.constraint = constraint;
    this.budget = options.max_tokens;
    this.#begin(options);
    this.views.result.start(request);
    const body = { prompt, constraint, ...options, trace: true, rejected_top_k: REJECTED_TOP_K };
    const generation = (this.generation = new Generation(body, {
      compiled: (event) => this.#showAutomaton(event),
      step: (event) => this.#showStep(event, options),
      restarted: () => (page.setStatus("The worker failed; another one restarts the request."), this.#clear(options)),
    }));
    try {
      const response = await generation.answer();
      if (this.generation === generation && page.isCurrent(response.automaton)) await page.showAutomaton(response.automaton);
      if (this.generation !== generation) return;
      this.#showResult(response, options);
    } catch (error) {
      if (this.generation !== generation) return;
      if (!(error instanceof RequestError)) throw error;
      this.views.result.fail(generation.stopped ? "(stopped)" : "(no answer)");
      if (generation.stopped) page.setStatus("Stopped.");
      else page.showProblem(error.problem);
    } finally {
      if (this.generation === generation) this.#end();
    }
  }

  /** Stops the generation, and the request for the answer without the constraint. */
  stop() {
    this.generation?.stop();
    this.views.result.stop();
  }

  #begin(options) {
    this.stop();
    this.#clear(options);
    this.response = null;
    this.page.showProblem(null);
    this.page.setStatus("Generating.");
    byId("generate").disabled = true;
    byId("stop").disabled = false;
    Object.assign(byId("progress"), { hidden: false, value: 0, max: options.max_tokens });
    for (const id of ["lattice-hint", "answer-hint", "trace-hint"]) byId(id).hidden = true;
  }

  async #showAutomaton({ automaton }) {
    this.hash = automaton;
    if (this.page.isCurrent(automaton)) await this.page.showAutomaton(automaton);
  }

  #clear(options) {
    this.statePaths = null;
    const { automaton, lattice, tokens, answers } = this.views;
    automaton.mark([], []);
    automaton.path([]);  // removes the path of the previous answer
    lattice.reset({ algorithm: options.algorithm, maxTokens: options.max_tokens });
    tokens.clear();
    answers.clear();
    byId("steps").textContent = byId("figures").textContent = "";
  }

  #showStep(event, options) {
    const { lattice, automaton } = this.views;
    lattice.step(event);
    this.statePaths = event.rows.map((row) => [...(this.statePaths?.[row.parent] ?? []), row.state]);
    const live = event.rows.filter((row) => !row.finished);
    const rows = live.length ? live : event.rows;
    if (rows.length) this.views.result.progress(rows[0].text);
    if (this.page.isShown(this.hash)) automaton.mark([...new Set(rows.map((row) => row.state))], this.statePaths[event.rows.indexOf(rows[0])]);
    byId("progress").value = event.step;
    byId("steps").textContent = `step ${event.step} of at most ${options.max_tokens}, ${plural(live.length, "live beam")}`;
  }

  #showResult(response, options) {
    this.response = response;
    const { usage, timings } = response;
    byId("steps").textContent = byId("steps").textContent.replace(/^step (\d+).*/, "$1 steps");
    this.views.lattice.done(response);
    this.views.answers.show(response.choices, options.algorithm);
    const seed = response.seed === null ? "" : ` · seed ${response.seed}`;
    byId("figures").textContent = `${plural(usage.prompt_tokens, "token")} read, ${formatNumber(usage.completion_tokens)} written${seed} · ${formatNumber(timings.total_ms / 1000)} s`;
    const shortfall = response.choices.length < options.n && options.algorithm !== "sample" ? " The beams hold no further distinct answers." : "";
    const change = this.page.isCurrent(response.automaton) ? "" : " The constraint has changed since.";
    this.page.setStatus(`Done: ${plural(response.choices.length, "answer")} in ${formatNumber(timings.total_ms / 1000)} seconds.${shortfall}${change}`);
  }

  #end() {
    this.generation = null;
    byId("generate").disabled = false;
    byId("stop").disabled = true;
    byId("progress").hidden = true;
  }
}
