// Where in a JSON text its parts stand, so that a fault in one can be shown under a caret. The text itself must be JSON.

const SPACE = /[ \t\n\r]*/y;
const WORD = /[^\s,:\]}"[{]+/y;
const STRING = /"(?:[^"\\]|\\.)*"/y;
const ESCAPE = /\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})/y;
const STEP = /\\u[0-9a-fA-F]{4}|\\.|[^]/gy;

export class JsonFault extends Error {
  /** `place` is where in the text the fault is. */
  constructor(message, place) {
    super(message);
    this.place = place;
  }
}

/** Parses `text`. Raises JsonFault, whose message is a sentence, wherever the browser's own words and places differ. */
export function parseJson(text, what = "This") {
  try {
    return JSON.parse(text);
  } catch {
    const { place, wanted } = faultOf(text);
    throw new JsonFault(`${what} is not JSON yet: expected ${wanted}.`, place);
  }
}

/** The first place where a text stops being JSON, and what would go on there. */
function faultOf(text) {
  try {
    const end = skip(SPACE, text, readValue(text, skip(SPACE, text, 0)));
    return { place: end, wanted: "nothing more" };
  } catch (fault) {
    if (!("wanted" in fault)) throw fault;
    return fault;
  }
}

function readValue(text, at) {
  if (text[at] === "{") return readItems(text, at, "}", readMember);
  if (text[at] === "[") return readItems(text, at, "]", readValue);
  if (text[at] === '"') return readString(text, at);
  const end = skip(WORD, text, at);
  try {
    JSON.parse(text.slice(at, end));
    return end;
  } catch {
    throw { place: at, wanted: "a value: text in double quotes, a number, true, false, null, { or [" };
  }
}

function readItems(text, at, close, readItem) {
  let place = skip(SPACE, text, at + 1);
  if (text[place] === close) return place + 1;
  for (;;) {
    place = skip(SPACE, text, readItem(text, place));
    if (text[place] === close) return place + 1;
    if (text[place] !== ",") throw { place, wanted: `“,” or “${close}”` };
    place = skip(SPACE, text, place + 1);
  }
}

function readMember(text, at) {
  if (text[at] !== '"') throw { place: at, wanted: "a name in double quotes" };
  const colon = skip(SPACE, text, readString(text, at));
  if (text[colon] !== ":") throw { place: colon, wanted: "“:”" };
  return readValue(text, skip(SPACE, text, colon + 1));
}

function readString(text, at) {
  for (let place = at + 1; ; place += 1) {
    if (text[place] === '"') return place + 1;
    if (place >= text.length || text[place] < " ") throw { place, wanted: "the closing quote" };
    if (text[place] === "\\") {
      if (skip(ESCAPE, text, place) === place) throw { place, wanted: "an escape such as \\n, \\\" or \\u00e9" };
      place = skip(ESCAPE, text, place) - 1;
    }
  }
}

/**
 * The place of the part that a path leads to ("json_schema.properties.age.type"), as far as the path goes, and the
 * function from a character of a string there to its place in the text. Null where not even its first name is there.
 */
export function placeInJson(text, path) {
  const names = path.split(".");
  let at = skip(SPACE, text, 0);
  let depth = 0;
  let named = null;
  while (depth < names.length) {
    const found = childOf(text, at, names[depth]);
    if (!found) break;
    ({ value: at, name: named } = found);
    depth += 1;
  }
  if (depth === 0) return null;
  return { whole: depth === names.length, place: depth === names.length ? at : named, inString: (units) => inside(text, at, units) };
}

function skip(pattern, text, at) {
  pattern.lastIndex = at;
  return pattern.test(text) ? pattern.lastIndex : at;
}

/** The member `name` of the object, or item of the array, that begins at `at`: where it is named, and where its value is. */
function childOf(text, at, name) {
  const isObject = text[at] === "{";
  if (!isObject && text[at] !== "[") return null;
  let place = skip(SPACE, text, at + 1);
  for (let number = 0; text[place] !== "}" && text[place] !== "]" && place < text.length; number += 1) {
    const start = place;
    let key = String(number);
    if (isObject) {
      const end = skip(STRING, text, place);
      key = JSON.parse(text.slice(place, end));
      place = skip(SPACE, text, skip(SPACE, text, end) + 1);
    }
    if (key === name) return { name: start, value: place };
    place = skip(SPACE, text, pastValue(text, place));
    if (text[place] === ",") place = skip(SPACE, text, place + 1);
  }
  return null;
}

function pastValue(text, at) {
  if (text[at] === '"') return skip(STRING, text, at);
  if (text[at] !== "{" && text[at] !== "[") return skip(WORD, text, at);
  let depth = 0;
  for (let place = at; place < text.length; place += 1) {
    if (text[place] === '"') place = skip(STRING, text, place) - 1;
    else if ("{[".includes(text[place])) depth += 1;
    else if ("}]".includes(text[place]) && (depth -= 1) === 0) return place + 1;
  }
  return text.length;
}

/** The place in the text of a UTF-16 unit of the string that begins at `at`. */
function inside(text, at, units) {
  if (text[at] !== '"') return at;
  STEP.lastIndex = at + 1;
  for (let left = units; left > 0 && text[STEP.lastIndex] !== '"'; left -= 1) STEP.exec(text);
  return STEP.lastIndex;
}
