// The gallery: ten examples by task, each written and run by one click. All of them are satisfied with the built-in model captions.

import { el } from "./dom.js";

const WORDS = (count) => `( [a-z]+)${count}`;
const STEP = "(login|order|pay|pack|ship|logout)";
const CALL = "(search|confirm|delete|reply)";
const QUERIES = `root ::= "SELECT " column (", " column)* " FROM photos WHERE " test (" AND " test)* order? limit ";"
column ::= "caption" | "animal" | "place" | "year"
test ::= "animal = '" animal "'" | "place = '" place "'" | "year > 20" [0-2] [0-9]
animal ::= "dog" | "cat" | "horse"
place ::= "beach" | "park" | "street"
order ::= " ORDER BY " column
limit ::= " LIMIT " [1-9] [0-9]?`;
const object = (properties) => ({ type: "object", additionalProperties: false, required: Object.keys(properties), properties });

export const GALLERY = [
  {
    name: "Caption", about: "Three words in this order, each in one of its forms", prompt: "concepts: dog, frisbee, catch\nsentence:",
    constraint: { keywords: ["dog", ["catch", "catches", "caught"], "frisbee"], ordered: true }, options: {},
  },
  {
    name: "Form", about: "Fields with fixed choices, and a sentence that has all the words", prompt: "concepts: dog, run, snow\nsentence:",
    constraint: {
      sequence: [
        "Animal: ", { choice: ["dog", "cat", "horse", "bird"] }, "\nPlace: ", { choice: ["beach", "park", "snow", "street"] }, "\nCaption: ",
        { all: [{ regex: `A [a-z]+${WORDS("{3,9}")}\\.` }, { keywords: ["dog", ["run", "runs", "running"], "snow"], ordered: true }] },
      ],
    },
    options: { max_tokens: 48 },
  },
  {
    name: "JSON", about: "An object of a schema, whose caption matches a pattern", prompt: "concepts: dog, run, snow\nsentence:",
    constraint: {
      json_schema: object({
        caption: { type: "string", constraint: { regex: `A dog [a-z]+${WORDS("{2,6}")}\\.` } },
        place: { enum: ["beach", "park", "snow", "street"] },
        animals: { type: "integer", minimum: 1, maximum: 9 },
      }),
    },
    options: { max_tokens: 56 },
  },
  {
    name: "Tool call", about: "A call with its arguments, closed before the budget ends", prompt: "concepts: dog, run, beach\nsentence:",
    constraint: {
      json_schema: object({
        name: { const: "search_photos" },
        arguments: object({
          query: { type: "string", constraint: { regex: `a (dog|cat)${WORDS("{1,4}")} (beach|park)` } },
          limit: { type: "integer", minimum: 1, maximum: 20 },
        }),
      }),
    },
    options: { max_tokens: 64 },
  },
  {
    name: "Policy", about: "Search first, delete only after confirm, reply after every delete", prompt: "sentence:",
    constraint: {
      all: [
        { regex: `${CALL}( > ${CALL}){2,6}` },
        { ltlf: "(!confirm U search) & (!delete U confirm) & F(delete) & G(delete -> X(F(reply)))" },
      ],
    },
    options: { max_tokens: 32 },
  },
  {
    name: "SQL", about: "A query of a grammar that asks for dogs and a year", prompt: "concepts: dog, beach\nsentence:",
    constraint: { all: [{ grammar: QUERIES, syntax: "gbnf" }, { keywords: ["dog", "year"] }] }, options: { max_tokens: 64 },
  },
  {
    name: "Infill", about: "A sentence with two gaps of one word each", prompt: "sentence:",
    constraint: { infill: "A man is <|infill_word|> a <|infill_word|> on the street." }, options: {},
  },
  {
    name: "Poem", about: "Two verses with a refrain, about a surfer and a beach", prompt: "concepts: wave, ride, surfer\nsentence:",
    constraint: {
      all: [
        { regex: "A [a-z ]{12,30},\nand the waves roll in\\.\nThe [a-z ]{12,30},\nand the waves roll in\\." },
        { keywords: ["surfer", "beach"] },
      ],
    },
    options: { max_tokens: 60 },
  },
  {
    name: "Date", about: "A sentence that ends in a day which exists, also in leap years", prompt: "concepts: train, station, arrive\nsentence:",
    constraint: {
      regex: `[A-Z][a-z]+${WORDS("{4,9}")} on (([1-9]|[12][0-9]|30) (April|June) 20[0-2][0-9]|([1-9]|[12][0-9]) February 20(0[048]|1[26]|2[048]))\\.`,
    },
    options: { max_tokens: 36 },
  },
  {
    name: "Process log", about: "Order, pay and ship in this sequence, and nothing after the logout", prompt: "sentence:",
    constraint: {
      all: [
        { regex: `1 login\n${[2, 3, 4, 5].map((step) => `${step} ${STEP}\n`).join("")}` },
        { ltlf: "F(ship) & (!ship U pay) & (!pay U order) & F(logout & !X(F(order | pay | pack | ship | login | logout))) & !F(login & X(F(login)))" },
      ],
    },
    options: { max_tokens: 48 },
  },
];

/** Fills a list with a button for each example. `onChoose(example)` is called by a click; returns `mark(example)`. */
export function fillGallery(list, onChoose) {
  const buttons = GALLERY.map((example) => el("button", {
    type: "button", title: example.about, "aria-pressed": "false", click: () => onChoose(example),
  }, example.name));
  list.replaceChildren(...buttons.map((button) => el("li", {}, button)));
  return (chosen) => buttons.forEach((button, index) => button.setAttribute("aria-pressed", String(GALLERY[index] === chosen)));
}
