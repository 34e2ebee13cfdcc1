// A generation as the page shows it: streams into the views, fills the answers, can be stopped.

import { Refusal } from "./api.js";
import { byId, plural, shown } from "./dom.js";
import { Generation } from "./generation.js";

const REFUSALS = 5;

export class Run {
  /** `views` has automaton, lattice, tokens, answers, checker; `page` the means to say things. */
  constructor(views, page) {
    Object.assign(this, { views, page, now: null, response: null, constraint: null });
  }

  /** Generate for {prompt, constraint, options}. */
  async start({ prompt, constraint, options }) {
    const { page } = this;
    this.constraint = constraint;
    this.#begin(options);
    const body = { prompt, constraint, ...options, trace: true, refusals: REFUSALS };
    const mine = (this.now = new Generation(body, {
      compiled: (event) => page.showAutomaton(event.automaton),
      step: (event) => this.#step(event, options),
      restart: () => (page.say("A worker died; another begins anew."), this.#clear(options)),
    }));
    try {
      const response = await mine.answer();
      if (this.now !== mine) return;
      await page.showAutomaton(response.automaton);
      this.#done(response, options);
    } catch (error) {
      if (this.now !== mine) return;
      if (!(error instanceof Refusal)) throw error;
      if (mine.stopped) page.say("Stopped.");
      else page.refuse(error.problem);
    } finally {
      if (this.now === mine) this.#end();
    }
  }

  stop() { this.now?.stop(); }

  #begin(options) {
    this.stop();
    this.#clear(options);
    this.response = null;
    this.page.refuse(null);
    this.page.say("Generating.");
    byId("generate").disabled = true;
    byId("stop").disabled = false;
    Object.assign(byId("progress"), { hidden: false, value: 0, max: options.max_tokens });
    for (const id of ["lattice-hint", "answer-hint"]) byId(id).hidden = true;
  }

  #clear(options) {
    const { lattice, tokens, answers } = this.views;
    lattice.reset({ algorithm: options.algorithm, maxTokens: options.max_tokens });
    tokens.clear();
    answers.clear();
    byId("steps").textContent = byId("figures").textContent = "";
  }

  #step(event, options) {
    const { lattice, automaton } = this.views;
    lattice.step(event);
    const live = event.rows.filter((row) => !row.finished);
    automaton.mark([...new Set((live.length ? live : event.rows).map((row) => row.state))]);
    byId("progress").value = event.step;
    byId("steps").textContent = `step ${event.step} of at most ${options.max_tokens}, ${plural(live.length, "text")} alive`;
  }

  #done(response, options) {
    this.response = response;
    const { usage, timings } = response;
    byId("steps").textContent = byId("steps").textContent.replace(/^step (\d+).*/, "$1 steps");
    this.views.lattice.done(response);
    this.views.answers.show(response.choices);
    const seed = response.seed === null ? "" : ` · seed ${response.seed}`;
    byId("figures").textContent = `${plural(usage.prompt_tokens, "token")} read, ${shown(usage.completion_tokens)} written${seed} · ${shown(timings.total_ms / 1000)} s`;
    const few = response.choices.length < options.n && options.algorithm !== "sample" ? " There are no further ones among the beams." : "";
    this.page.say(`Done: ${plural(response.choices.length, "answer")} in ${shown(timings.total_ms / 1000)} seconds.${few}`);
  }

  #end() {
    this.now = null;
    byId("generate").disabled = false;
    byId("stop").disabled = true;
    byId("progress").hidden = true;
  }
}
