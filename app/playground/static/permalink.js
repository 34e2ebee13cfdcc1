// The state of the page as a URL fragment, which browsers never send to a server: "#v1.z." and deflated JSON, or "#v1.j."
// and JSON if the browser cannot deflate; both in base64url.

const LINK_START = /^#v(\d+)\./;
const LINK = /^#v1\.([jz])\.([A-Za-z0-9_-]+)$/;
const CHARS_MAX = 65_536;
const BYTES_MAX = 1_048_576;  // decompressed: a short link must not fill the memory

/** Whether a fragment looks like such a link, broken or not. */
export const isLink = (fragment) => LINK_START.test(fragment);

/** The fragment of {prompt, constraint, options, model}; the model is null for the default. */
export async function linkOf({ prompt, constraint, options, model = null }) {
  const state = { p: prompt, c: constraint, o: options, ...(model === null ? {} : { m: model }) };
  const content = new TextEncoder().encode(JSON.stringify(state));
  if (!("CompressionStream" in window)) return `#v1.j.${toBase64(content)}`;
  return `#v1.z.${toBase64(await transform(content, new CompressionStream("deflate-raw"), Infinity))}`;
}

/** The state in a link. Raises an Error if it is broken or of another version. */
export async function readLink(fragment) {
  const match = LINK.exec(fragment);
  if (!match || fragment.length > CHARS_MAX) throw new Error("not a link of this version");
  const bytes = fromBase64(match[2]);
  const content = match[1] === "j" ? bytes : await transform(bytes, new DecompressionStream("deflate-raw"), BYTES_MAX);
  const { p: prompt, c: constraint, o: options = {}, m: model = null } = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(content));
  const objects = [constraint, options].every((object) => typeof object === "object" && object !== null && !Array.isArray(object));
  const isNamed = model === null || typeof model === "string";
  if (typeof prompt !== "string" || !objects || !isNamed) throw new Error("not what a link holds");
  return { prompt, constraint, options, model };
}

async function transform(bytes, stream, bytesMax) {
  const chunks = [];
  let size = 0;
  for (const reader = new Blob([bytes]).stream().pipeThrough(stream).getReader(); ;) {
    const { done, value } = await reader.read();
    if (done) return new Uint8Array(await new Blob(chunks).arrayBuffer());
    chunks.push(value);
    size += value.length;
    if (size > bytesMax) {
      reader.cancel().catch(() => {});
      throw new Error("too much for a link");
    }
  }
}

function toBase64(bytes) {
  const text = Array.from(bytes, (byte) => String.fromCharCode(byte)).join("");
  return btoa(text).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
}

const fromBase64 = (text) =>
  Uint8Array.from(atob(text.replace(/-/g, "+").replace(/_/g, "/")), (character) => character.charCodeAt(0));
