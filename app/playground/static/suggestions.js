// Corrections of a request: the operations of JSON Patch (RFC 6902) that errors and warnings suggest.

const ROOT = "";  // the name of the request in the object that holds it

/** The request after the edits of a suggestion; null if one of them does not fit. */
export function applySuggestion(request, edits) {
  const holder = { [ROOT]: structuredClone(request) };
  try {
    for (const edit of edits) applyEdit(holder, edit);
  } catch {
    return null;
  }
  return holder[ROOT];
}

function applyEdit(holder, { op, path, from, value, start, end }) {
  if (op === "add") insert(holder, path, structuredClone(value));
  else if (op === "move") insert(holder, path, take(holder, from));
  else if (op === "remove") take(holder, path);
  else if (op === "replace") {
    take(holder, path);
    insert(holder, path, structuredClone(value));
  } else if (op === "splice") {
    const { parent, name } = placeOf(holder, path);
    const characters = [...parent[name]];  // the service counts code points
    characters.splice(start, end - start, value);
    parent[name] = characters.join("");
  } else if (op === "parse") {
    const { parent, name } = placeOf(holder, path);
    parent[name] = JSON.parse(parent[name]);
  } else throw new Error(`no operation ${op}`);
}

/** The object or list around a place, and the place's name there. */
function placeOf(holder, path) {
  const names = path.split("/").map((name) => name.replace(/~1/g, "/").replace(/~0/g, "~"));
  const name = names.pop();
  let parent = holder;
  for (const step of names) {
    if (!Object.hasOwn(parent, step)) throw new Error(`nothing at ${path}`);
    parent = parent[step];
  }
  return { parent, name };
}

function insert(holder, path, value) {
  const { parent, name } = placeOf(holder, path);
  if (!Array.isArray(parent)) parent[name] = value;
  else parent.splice(name === "-" ? parent.length : Number(name), 0, value);
}

function take(holder, path) {
  const { parent, name } = placeOf(holder, path);
  if (!Object.hasOwn(parent, name)) throw new Error(`nothing at ${path}`);
  const value = parent[name];
  if (Array.isArray(parent)) parent.splice(Number(name), 1);
  else delete parent[name];
  return value;
}
