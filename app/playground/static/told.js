// Constraints in a few words, as lists of parts and reasons show them.

const CHARS_MAX = 64;
const short = (text) => (text.length > CHARS_MAX ? `${text.slice(0, CHARS_MAX - 1)}…` : text);

function concept(item) {
  const forms = typeof item === "string" ? [item] : [item.forms ?? item].flat();
  return forms.length > 3 ? `${forms.slice(0, 3).join("/")}/…` : forms.join("/");
}

const LENGTHS = {
  min_words: (value) => `at least ${value} words`,
  max_words: (value) => `at most ${value} words`,
  max_chars: (value) => `at most ${value} characters`,
  sentences: (value) => {
    if (typeof value === "number") return `${value} sentence${value === 1 ? "" : "s"}`;
    return [value.min && `at least ${value.min}`, value.max != null && `at most ${value.max}`].filter(Boolean).join(", ") + " sentences";
  },
};

/** A constraint as people would name it: “F(dog)”, “keywords dog, ball in order”, “not (keywords cat)”. */
export function told(constraint) {
  if (constraint.ltlf !== undefined) return short(constraint.ltlf);
  if (constraint.regex !== undefined) return short(`regex ${constraint.regex}`);
  if (constraint.keywords) return short(`keywords ${constraint.keywords.map(concept).join(", ")}${constraint.ordered ? " in order" : ""}`);
  if (constraint.infill !== undefined) return short(`the template ${constraint.infill}`);
  if (constraint.json_schema !== undefined) return "the JSON schema";
  if (constraint.choice) return short(`one of ${constraint.choice.join(", ")}`);
  if (constraint.dfa) return "the given automaton";
  if (constraint.not) return short(`not (${told(constraint.not)})`);
  if (constraint.all) return short(`all of: ${constraint.all.map(told).join("; ")}`);
  if (constraint.any) return short(`any of: ${constraint.any.map(told).join("; ")}`);
  const bounds = Object.keys(LENGTHS).filter((name) => constraint[name] !== undefined && constraint[name] !== null);
  return bounds.map((name) => LENGTHS[name](constraint[name])).join(", ") || "the constraint";
}
