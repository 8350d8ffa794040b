// Puts the page together: views, theme, the server's state, the model's name.

import { ask } from "./api.js";
import * as chat from "./chat.js";
import { announce, byId } from "./dom.js";
import * as settings from "./settings.js";
import * as status from "./status.js";

const THEMES = ["system", "light", "dark"];
const TABS = ["chat", "status"];

function theme() {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  let chosen = "system";
  try { chosen = localStorage.getItem("m3-theme") ?? "system"; } catch { /* no storage: the system's */ }
  const apply = () => {
    document.documentElement.dataset.theme = chosen === "system" ? (dark.matches ? "dark" : "light") : chosen;
    byId("theme").textContent = `Theme: ${chosen}`;
  };
  byId("theme").addEventListener("click", () => {
    chosen = THEMES[(THEMES.indexOf(chosen) + 1) % THEMES.length];
    try { localStorage.setItem("m3-theme", chosen); } catch { /* as above */ }
    apply();
    announce(`Theme: ${chosen}`);
  });
  dark.addEventListener("change", apply);
  apply();
}

function select(name, focus) {
  for (const each of TABS) {
    const [tab, view] = [byId(`tab-${each}`), byId(`view-${each}`)];
    const chosen = each === name;
    tab.setAttribute("aria-selected", String(chosen));
    tab.tabIndex = chosen ? 0 : -1;
    view.hidden = !chosen;
    if (chosen && focus) tab.focus();
  }
  if (name === "status") status.redraw();
}

function tabs() {
  for (const [at, name] of TABS.entries()) {
    const tab = byId(`tab-${name}`);
    tab.addEventListener("click", () => select(name, false));
    tab.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (step) select(TABS[(at + step + TABS.length) % TABS.length], true);
    });
  }
}

function showState(state) {
  const place = byId("state");
  if (place.dataset.state !== state.status) announce(`The server is ${state.status}`);
  place.dataset.state = state.status;
  const more = state.status === "loading" ? `: ${state.phase}, ${state.percent}%` : "";
  byId("state-text").textContent = (state.status === "away" ? "not reachable" : state.status) + more;
}

/** What the served model is called and can do. */
async function model() {
  try {
    const card = (await (await ask("v1/models")).json()).data[0];
    byId("model").textContent = card.id;
    document.title = `${card.id} – m3`;
    chat.setModel(card.id, card.capabilities?.input_modalities?.includes("image"));
    await status.facts();
  } catch (error) {
    if (error.status === 401) {
      await settings.open("key", "This server asks for a key.");
      if (byId("settings").returnValue === "save") await model();
    }
  }
}

theme();
tabs();
settings.connect();
chat.connect();
byId("open-settings").addEventListener("click", async () => {
  await settings.open();
  if (byId("settings").returnValue === "save") model();
});
status.start(showState, model);
byId("message").focus();
