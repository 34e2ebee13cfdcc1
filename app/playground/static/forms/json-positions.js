// Positions of values in a JSON text, to show an error under a caret.

const SPACE = /[ \t\n\r]*/y;
const WORD = /[^\s,:\]}"[{]+/y;
const STRING = /"(?:[^"\\]|\\.)*"/y;
const ESCAPE = /\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})/y;
const STEP = /\\u[0-9a-fA-F]{4}|\\.|[^]/gy;

export class JsonSyntaxError extends Error {
  /** `offset` is the position of the error in the text. */
  constructor(message, offset) {
    super(message);
    this.offset = offset;
  }
}

/** Parses `text`. Raises JsonSyntaxError, with the same message and position in every browser. */
export function parseJson(text, subject = "This") {
  try {
    return JSON.parse(text);
  } catch {
    const { offset, expected } = firstError(text);
    throw new JsonSyntaxError(`${subject} is not JSON yet: expected ${expected}.`, offset);
  }
}

/** The offset of the first JSON error, and what is expected there. */
function firstError(text) {
  try {
    const end = skip(SPACE, text, readValue(text, skip(SPACE, text, 0)));
    return { offset: end, expected: "nothing more" };
  } catch (error) {
    if (!("expected" in error)) throw error;
    return error;
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
    throw { offset: at, expected: "a value: text in double quotes, a number, true, false, null, { or [" };
  }
}

function readItems(text, at, close, readItem) {
  let offset = skip(SPACE, text, at + 1);
  if (text[offset] === close) return offset + 1;
  for (;;) {
    offset = skip(SPACE, text, readItem(text, offset));
    if (text[offset] === close) return offset + 1;
    if (text[offset] !== ",") throw { offset, expected: `“,” or “${close}”` };
    offset = skip(SPACE, text, offset + 1);
  }
}

function readMember(text, at) {
  if (text[at] !== '"') throw { offset: at, expected: "a name in double quotes" };
  const colon = skip(SPACE, text, readString(text, at));
  if (text[colon] !== ":") throw { offset: colon, expected: "“:”" };
  return readValue(text, skip(SPACE, text, colon + 1));
}

function readString(text, at) {
  for (let offset = at + 1; ; offset += 1) {
    if (text[offset] === '"') return offset + 1;
    if (offset >= text.length || text[offset] < " ") throw { offset, expected: "the closing quote" };
    if (text[offset] === "\\") {
      if (skip(ESCAPE, text, offset) === offset) throw { offset, expected: "an escape such as \\n, \\\" or \\u00e9" };
      offset = skip(ESCAPE, text, offset) - 1;
    }
  }
}

/**
 * The offset of the value at a path ("json_schema.properties.age.type"), or of its deepest existing ancestor, and a
 * function from a character of a string there to its offset in the text. Null if the first name does not exist.
 */
export function findInJson(text, path) {
  const names = path.split(".");
  let at = skip(SPACE, text, 0);
  let depth = 0;
  let nameOffset = null;
  while (depth < names.length) {
    const child = childOf(text, at, names[depth]);
    if (!child) break;
    ({ value: at, name: nameOffset } = child);
    depth += 1;
  }
  if (depth === 0) return null;
  return { complete: depth === names.length, offset: depth === names.length ? at : nameOffset, inString: (units) => stringOffset(text, at, units) };
}

function skip(pattern, text, at) {
  pattern.lastIndex = at;
  return pattern.test(text) ? pattern.lastIndex : at;
}

/** The offsets of the name and the value of a member of the object, or item of the array, that starts at `at`. */
function childOf(text, at, name) {
  const isObject = text[at] === "{";
  if (!isObject && text[at] !== "[") return null;
  let offset = skip(SPACE, text, at + 1);
  for (let number = 0; text[offset] !== "}" && text[offset] !== "]" && offset < text.length; number += 1) {
    const start = offset;
    let key = String(number);
    if (isObject) {
      const end = skip(STRING, text, offset);
      key = JSON.parse(text.slice(offset, end));
      offset = skip(SPACE, text, skip(SPACE, text, end) + 1);
    }
    if (key === name) return { name: start, value: offset };
    offset = skip(SPACE, text, skipValue(text, offset));
    if (text[offset] === ",") offset = skip(SPACE, text, offset + 1);
  }
  return null;
}

function skipValue(text, at) {
  if (text[at] === '"') return skip(STRING, text, at);
  if (text[at] !== "{" && text[at] !== "[") return skip(WORD, text, at);
  let depth = 0;
  for (let offset = at; offset < text.length; offset += 1) {
    if (text[offset] === '"') offset = skip(STRING, text, offset) - 1;
    else if ("{[".includes(text[offset])) depth += 1;
    else if ("}]".includes(text[offset]) && (depth -= 1) === 0) return offset + 1;
  }
  return text.length;
}

/** The offset in the text of a UTF-16 unit of the string that starts at `at`. */
function stringOffset(text, at, units) {
  if (text[at] !== '"') return at;
  STEP.lastIndex = at + 1;
  for (let left = units; left > 0 && text[STEP.lastIndex] !== '"'; left -= 1) STEP.exec(text);
  return STEP.lastIndex;
}
