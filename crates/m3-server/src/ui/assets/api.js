// Asking the server: addresses beside this page, the key where there is one, and errors as sentences.

import { settings } from "./settings.js";

/** A refusal of the server or of the network; `status` is 0 for the latter. */
export class Refusal extends Error {
  constructor(sentence, status) {
    super(sentence);
    this.status = status;
  }
}

/** `fetch` with the key. Paths have no leading slash: the server may stand behind a proxy's prefix. */
export async function ask(path, options = {}) {
  const headers = { ...options.headers };
  const key = settings().key;
  if (key) headers.authorization = `Bearer ${key}`;
  let answer;
  try {
    answer = await fetch(path, { ...options, headers, cache: "no-store", credentials: "same-origin" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refusal("the server cannot be reached", 0);
  }
  if (!answer.ok && !options.anyStatus) throw new Refusal(await sentence(answer), answer.status);
  return answer;
}

async function sentence(answer) {
  try {
    const text = await answer.text();
    return JSON.parse(text).error.message;
  } catch {
    return `the server answered with ${answer.status}`;
  }
}
