// What the user has set: kept in this browser, the key only until the tab is closed.

import { byId } from "./dom.js";

const STORE = "m3-settings";
const KEY = "m3-key";
const FIELDS = ["thinking", "temperature", "maxTokens", "system", "tools"];
let current = null;

// Storage may be turned off; then settings last as long as the page.
const stored = (storage, name) => { try { return storage().getItem(name); } catch { return null; } };
const keep = (storage, name, value) => { try { storage().setItem(name, value); } catch { /* as above */ } };

/** All settings; texts as typed. */
export function settings() {
  if (current) return current;
  let saved = {};
  try { saved = JSON.parse(stored(() => localStorage, STORE) ?? "{}") ?? {}; } catch { /* damaged: start anew */ }
  current = { key: stored(() => sessionStorage, KEY) ?? "" };
  for (const name of FIELDS) current[name] = typeof saved[name] === "string" ? saved[name] : "";
  return current;
}

/** The fields of a request that the settings ask for. */
export function requestFields() {
  const set = settings();
  const fields = {};
  if (set.temperature !== "") fields.temperature = Number(set.temperature);
  if (set.maxTokens !== "") fields.max_completion_tokens = Number(set.maxTokens);
  if (set.thinking !== "") fields.thinking = { type: set.thinking };
  if (set.tools.trim()) fields.tools = JSON.parse(set.tools);
  return fields;
}

/** Opens the dialog; `field` gets the focus. Resolves when it is closed. */
export function open(field = "thinking", error = "") {
  const [dialog, form] = [byId("settings"), byId("settings-form")];
  for (const name of [...FIELDS, "key"]) form.elements[name].value = settings()[name];
  byId("settings-error").textContent = error;
  // Escape leaves the value as it is, and must not look like an earlier Save.
  dialog.returnValue = "";
  if (!dialog.open) dialog.showModal();
  form.elements[field].focus();
  return new Promise((resolve) => dialog.addEventListener("close", resolve, { once: true }));
}

/** Connects the dialog. */
export function connect() {
  const [dialog, form] = [byId("settings"), byId("settings-form")];
  form.addEventListener("submit", (event) => {
    if (event.submitter?.value === "cancel") return;
    const wrong = toolsFault(form.elements.tools.value);
    if (wrong) {
      event.preventDefault();
      byId("settings-error").textContent = wrong;
      form.elements.tools.focus();
      return;
    }
    for (const name of [...FIELDS, "key"]) current[name] = form.elements[name].value;
    const { key, ...rest } = current;
    keep(() => localStorage, STORE, JSON.stringify(rest));
    keep(() => sessionStorage, KEY, key);
    dialog.returnValue = "save";
  });
}

function toolsFault(text) {
  if (!text.trim()) return "";
  try {
    return Array.isArray(JSON.parse(text)) ? "" : "Tools are a JSON list, in square brackets.";
  } catch (error) {
    return `Tools are no JSON: ${error.message}`;
  }
}
