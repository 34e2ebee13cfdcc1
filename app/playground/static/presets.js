// Further examples, of forms and of the paper; gallery.js has those by task.

const COFFEE = { ltlf: "(!cat & !toy) U (coffee & X(!toy U (cat & X(F(toy)))))" };

export const PRESETS = [
  { name: "Coffee, cat, toy: in this order", prompt: "sentence:", constraint: COFFEE, options: {} },
  {
    name: "Coffee, cat, toy: by the paper's search", prompt: "sentence:", constraint: COFFEE,
    options: { algorithm: "abs", alpha_min: 0.25, beams: 4, max_tokens: 14 },
  },
  {
    name: "Negation: no person in it, whatever the model prefers", prompt: "sentence:",
    constraint: {
      all: [
        { not: { keywords: ["man"], inflect: true } },
        { ltlf: "G(!human) & F(dot)", propositions: { human: ["woman", "women", "people", "person", "boy", "girl", "someone", "group"] } },
        { min_words: 6 },
      ],
    },
    options: { max_tokens: 20 },
  },
  {
    name: "Sequence: free text of a few tokens, then JSON", prompt: "sentence:",
    constraint: {
      sequence: [
        "A ", { capture: "who", part: { choice: ["dog", "cat", "man"] } },
        { capture: "what", part: { free: { until: ["."], max_tokens: 6 } } },
        " ", { capture: "data", part: { json_schema: { type: "object", properties: { animals: { type: "integer", minimum: 0, maximum: 9 } }, required: ["animals"], additionalProperties: false } } },
      ],
    },
    options: { max_tokens: 24 },
  },
  {
    name: "Grammar: brackets of any depth, closed in time", prompt: "sentence:",
    constraint: { grammar: 'root ::= item+\nitem ::= list | noun\nlist ::= "(" root ")"\nnoun ::= "a dog " | "a man "', syntax: "gbnf" },
    options: { max_tokens: 16, algorithm: "sample", seed: 3 },
  },
  {
    name: "Combination: shape, order, absence and length", prompt: "sentence:",
    constraint: { all: [{ regex: "[A-Z][a-z ,]+\\." }, { ltlf: "F(dog & X(F(ball)))" }, { not: { keywords: ["man"] } }, { max_chars: 60 }] },
    options: {},
  },
  {
    name: "Response: each man is followed by a dog", prompt: "sentence:",
    constraint: { ltlf: "F(man) & G(man -> X(F(dog))) & F(dot)" }, options: {},
  },
  {
    name: "Choice: one of three", prompt: "concepts: dog, snow\nsentence:",
    constraint: { choice: ["A dog runs through the snow.", "A cat sleeps on the sofa.", "Two men play chess."] }, options: {},
  },
  { name: "Length: two sentences, at most 16 words", prompt: "sentence:", constraint: { sentences: 2, max_words: 16 }, options: { max_tokens: 28 } },
];
