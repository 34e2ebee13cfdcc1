// The page: creates its parts and connects them.

import { Answers, TokensView } from "./answers/answers.js";
import { RequestError, askJson, hasKey } from "./api.js";
import { AutomatonView } from "./automaton/automaton.js";
import { Budget } from "./budget.js";
import { Checker } from "./answers/checker.js";
import { CodePanel } from "./answers/code-panel.js";
import { Comparison } from "./answers/compare.js";
import { byId, copy, el, plural, formatNumber } from "./dom.js";
import { explainer } from "./explain.js";
import { GALLERY, fillGallery } from "./gallery.js";
import { IncompleteForm } from "./forms/basic.js";
import { ConstraintForm } from "./forms/forms.js";
import { LatticeView } from "./lattice/lattice.js";
import { LiveCompiler, correctionButton } from "./live.js";
import { Meaning } from "./meaning.js";
import { chosenModel, preferModel, showModels, withModel } from "./models.js";
import { Options } from "./options.js";
import { initKeyForm, initThemeButton } from "./page-shell.js";
import { isLink, linkOf, readLink } from "./permalink.js";
import { PRESETS } from "./presets.js";
import { sentence } from "./problems.js";
import { Result } from "./answers/result.js";
import { Run } from "./run.js";
import { Tabs } from "./tabs.js";

class Playground {
  constructor() {
    this.model = "";
    this.automatonHash = "";
    this.automaton = null;
    this.prompt = byId("prompt");
    this.form = new ConstraintForm(byId("constraint"), () => this.#onEdit());
    this.options = new Options(byId("options"), byId("budget"), () => this.#onOptions());
    this.budget = new Budget(byId("budget"), this.options);
    this.live = new LiveCompiler(byId("live"), {
      form: this.form, meaning: new Meaning(byId("explanation"), (text) => this.#checkText(text)),
      onCompiled: (answer) => this.#showCompilation(answer),
      request: () => this.#currentRequest(), apply: (request) => this.#correct(request),
      onIdle: (answer) => this.showAutomaton(answer.automaton),
      onError: () => this.#markOutdated(),
    });
    this.checker = new Checker(byId("checker"), () => this.live.constraint);
    const automaton = new AutomatonView(byId("automaton"));
    const lattice = new LatticeView(byId("lattice"), {
      onSelect: (row) => this.#isRunAutomaton() && automaton.mark([row.state]),
      explain: explainer(() => this.run.constraint),
    });
    const answers = new Answers(byId("choices"), (choice, number) => this.#showChoice(choice, number));
    this.views = { automaton, lattice, tokens: new TokensView(byId("tokens")), answers, result: new Result(byId("result")) };
    this.run = new Run(this.views, this);
    new Comparison(byId("comparison"), byId("compare"), () => this.request());
    this.code = new CodePanel(byId("code"), (text) => this.setStatus(text));
    this.tabs = new Tabs(byId("view-tabs"), (id) => this.#onTab(id));
    this.#listen();
  }

  async start() {
    if (!await this.#followLink()) this.#load(GALLERY[0]);
    await this.#loadModel();
  }

  /** The request of the page; null, after showing the reason, if it is incomplete. */
  async request() {
    const answer = await this.live.compile();
    if (answer) return { prompt: this.prompt.value, constraint: this.live.constraint, options: this.options.read() };
    if (this.live.problem) this.showProblem(this.live.problem);
    else this.setStatus("The constraint does not compile yet.");
    document.querySelector("[aria-invalid=true]")?.focus();
    return null;
  }

  generate() {
    if (!byId("generate").disabled) this.#send();
  }

  /** Generates an answer in place of one that is being written; returns whether the request was sent. */
  async #send() {
    const request = await this.request();
    if (!request) return false;
    history.replaceState(null, "", await linkOf({ ...request, options: this.options.changes(), model: chosenModel() }));
    await this.run.start(request);
    return true;
  }

  /** Whether the current constraint may have this hash. */
  isCurrent(hash) { return !this.live.answer || this.live.answer.automaton === hash; }

  isShown(hash) { return this.automaton !== null && this.automatonHash === hash; }

  /** Shows the automaton of a hash, if it is not shown already. */
  async showAutomaton(hash) {
    if (hash === this.automatonHash) return;
    this.automatonHash = hash;
    if (this.live.constraint?.grammar !== undefined) {
      this.#showNoAutomaton("A grammar has no picture: with its stack it has states without end. An answer shows the stack.");
      return;
    }
    try {
      const automaton = await askJson("GET", `/automata/${hash}`);
      if (hash !== this.automatonHash) return;
      this.automaton = automaton;
      this.#hint("");
      await this.views.automaton.show(automaton);
    } catch (error) {
      if (!(error instanceof RequestError)) throw error;
      this.#showNoAutomaton(sentence(error.problem));
    }
  }

  #showNoAutomaton(reason) {
    this.automatonHash = "";
    this.automaton = null;
    this.views.automaton.clear();
    this.#hint(reason);
  }

  setStatus(text) { byId("status").textContent = text; }

  /** Shows an error beside the button, and at its position in the constraint if it has one; null hides it. */
  showProblem(problem) {
    byId("problem").hidden = !problem;
    if (!problem) return;
    this.live.locate(problem);
    const parts = [el("p", {}, sentence(problem))];
    if (["budget_too_small", "undecided"].includes(problem.code) && problem.min_tokens !== undefined) {
      parts.push(el("button", { type: "button", click: () => this.#useBudget(problem.min_tokens) }, `Use ${formatNumber(problem.min_tokens)}`));
    }
    const correction = correctionButton(problem.suggestion, { request: () => this.#currentRequest(), apply: (request) => this.#correct(request) });
    if (correction) parts.push(correction);
    const id = problem.request_id ? ` · ${problem.request_id}` : "";
    parts.push(el("p", { class: "small soft mono" }, `${problem.code}${id}`));
    byId("problem").replaceChildren(...parts);
    this.setStatus("");
  }

  #listen() {
    initThemeButton(byId("theme"));
    const preset = byId("preset");
    this.markExample = fillGallery(byId("gallery"), (example) => this.#runExample(example));
    preset.append(el("option", { value: "" }, "More examples…"), ...PRESETS.map(({ name }, number) => el("option", { value: number }, name)));
    preset.addEventListener("change", () => preset.value && (this.markExample(null), this.#write(PRESETS[preset.value]), this.views.result.outdate()));
    this.prompt.addEventListener("input", () => (this.showProblem(null), this.views.result.outdate(), this.#updateCode()));
    byId("generate").addEventListener("click", () => this.generate());
    byId("stop").addEventListener("click", () => this.run.stop());
    byId("share").addEventListener("click", () => this.#share());
    byId("copy-as").addEventListener("click", () => this.#open("request-panel"));
    document.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
      event.preventDefault();
      this.generate();
    });
    window.addEventListener("hashchange", () => this.#followLink());
    initKeyForm((problem) => this.showProblem(problem), () => this.#useKey());
  }

  #onEdit() {
    this.#forgetExample();
    this.showProblem(null);
    this.views.result.outdate();
    this.live.onEdit();
    this.#updateCode();
  }

  /** Writes a corrected request; it is not sent. */
  #correct({ prompt, constraint, ...options }) {
    this.#write({ prompt, constraint, options });
    this.views.result.outdate();
    this.#forgetExample();
  }

  /** Writes an example of the gallery. */
  #load(example) {
    this.#write(example);
    this.markExample(example);
    byId("preset").value = "";
  }

  async #runExample(example) {
    this.#load(example);
    if (!await this.#send()) this.views.result.outdate();
  }

  #forgetExample() {
    this.markExample(null);
    byId("preset").value = "";
  }

  #onOptions() {
    this.views.result.outdate();
    this.budget.update();
    this.#checkBudget();
    this.#updateCode();
  }

  /** Views that were hidden take their measures when they appear. */
  #onTab(id) {
    if (id === "automaton-panel") this.views.automaton.settle();
    else if (id === "lattice-panel") this.views.lattice.settle();
    else if (id === "request-panel") this.#showCode();
  }

  /** Opens a tab and brings it into view. */
  #open(id) {
    this.tabs.show(id);
    byId("views").scrollIntoView({ block: "start" });
  }

  #checkText(text) {
    this.#open("checker-panel");
    this.checker.write(text);
    this.checker.area.focus();
  }

  /** The current constraint has no automaton; the one shown belongs to the last that compiled. */
  #markOutdated() {
    byId("sizes").textContent = "";
    this.budget.clear();
    if (this.automaton) this.#hint("Of the last constraint that compiled:");
  }

  #hint(text) {
    byId("automaton-hint").textContent = text;
    byId("automaton-hint").hidden = !text;
    byId("automaton").classList.toggle("outdated", text !== "");
  }

  #showCompilation(answer) {
    if (!this.model) this.#loadModel();  // the service was away when the page opened
    if (this.automaton) this.#hint("");
    byId("sizes").textContent = `${plural(answer.states, "state")} · ${plural(answer.letters, "letter")} · over tokens ${formatNumber(answer.token_states)} × ${formatNumber(answer.token_classes)}`;
    this.budget.show(answer);
    this.#checkBudget();
    this.checker.check();
  }

  /** Warns about a budget that is too small before the request is sent. */
  #checkBudget() {
    const { min_tokens = 0, min_tokens_at_least } = this.live.answer ?? {};
    const budget = this.options.read().max_tokens;
    const code = budget < (min_tokens_at_least ?? min_tokens) ? "budget_too_small" : "undecided";
    if (budget < min_tokens) this.showProblem({ code, min_tokens, min_tokens_at_least });
    else this.showProblem(null);
  }

  #useBudget(tokens) {
    this.options.set("max_tokens", tokens);
    this.showProblem(null);
    byId("generate").focus();
  }

  #isRunAutomaton() { return this.run.response?.automaton === this.automatonHash; }

  #showChoice(choice, number) {
    const start = this.#isRunAutomaton() && this.automaton ? this.automaton.start : null;
    const leastBudget = this.isCurrent(this.run.response.automaton) ? this.live.answer?.min_tokens ?? null : null;
    this.views.result.show(choice, { budget: this.run.budget, leastBudget });
    this.views.tokens.show(choice, { start, budget: this.run.budget });
    this.views.lattice.choose(number);
    if (this.#isRunAutomaton() && this.automaton) {
      const trace = choice.trace ?? [];
      const states = trace.map((step) => step.state);
      this.views.automaton.mark(states.slice(-1));
      this.views.automaton.path([this.automaton.start, ...states], trace.map((step) => step.text));
    }
    this.checker.write(choice.text);
  }

  #write({ prompt, constraint, options }) {
    this.prompt.value = prompt;
    this.form.write(constraint);
    this.options.write(options);
    this.budget.update();
    this.showProblem(null);
    this.#updateCode();
    this.live.compile();
  }

  async #followLink() {
    if (!isLink(location.hash)) return false;
    try {
      const state = await readLink(location.hash);
      preferModel(state.model);
      this.#write(state);
      this.views.result.outdate();
      this.#forgetExample();
      byId("notice").hidden = true;
      if (this.model) await this.#loadModel();
      return true;
    } catch {
      this.#notify(sentence({ code: "bad_link" }));
      return false;
    }
  }

  #notify(text) {
    const notice = byId("notice");
    notice.replaceChildren(el("p", {}, text),
      el("button", { type: "button", class: "plain", "aria-label": "Dismiss", click: () => (notice.hidden = true) }, "✕"));
    notice.hidden = false;
  }

  async #share() {
    let link;
    try {
      link = await linkOf({ ...this.#currentRequest(), options: this.options.changes(), model: chosenModel() });
    } catch (error) {
      if (!(error instanceof IncompleteForm)) throw error;
      return this.setStatus(error.message);
    }
    history.replaceState(null, "", link);
    await copy(location.href);
    this.setStatus("The link is on the clipboard. What it holds stays in the fragment, which is not sent to the service.");
  }

  #updateCode() {
    if (this.tabs?.shown === "request-panel") this.#showCode();
  }

  #showCode() {
    try {
      this.code.show({ base: location.origin, body: withModel("/generate", this.#currentRequest()), model: this.model, withKey: hasKey() });
    } catch (error) {
      if (!(error instanceof IncompleteForm)) throw error;
      this.code.explain(error.message);
    }
  }

  /** The body of the current request, compiled or not. Raises IncompleteForm without a constraint. */
  #currentRequest() { return { prompt: this.prompt.value, constraint: this.form.read(), ...this.options.read() }; }

  /** Requests the served models; their response also shows whether a key is needed. */
  async #loadModel() {
    try {
      const { data } = await askJson("GET", "/v1/models");
      const wanted = chosenModel();
      showModels(byId("served"), data, (card) => this.#useModel(card));
      if (wanted === null || wanted === this.model) return;
      this.#notify(sentence({ code: "unserved_model", wanted, used: this.model }));
      this.live.compile();
    } catch (error) {
      if (!(error instanceof RequestError)) throw error;
      this.showProblem(error.problem);
    }
  }

  /** Constraints are compiled for the vocabulary of a model, and least budgets differ. */
  #useModel(card) {
    const changed = this.model && this.model !== card.id;
    this.model = card.id;
    if (card.context_tokens) this.budget.contextTokens = card.context_tokens;
    if (!changed) return;
    this.showProblem(null);
    this.views.result.outdate();
    this.#updateCode();
    this.live.onEdit();
  }

  async #useKey() {
    this.showProblem(null);
    this.setStatus("The key is used for this tab.");
    await this.#loadModel();
    await this.live.compile();
  }
}

const playground = new Playground();
await playground.start();
document.documentElement.dataset.ready = "yes";  // all listeners are set
