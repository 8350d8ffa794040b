// The conversation: what has been said, asking for the next answer, and reading it as it comes.

import { ask } from "./api.js";
import * as attachments from "./attachments.js";
import { announce, byId } from "./dom.js";
import { open as openSettings, requestFields, settings } from "./settings.js";
import { events } from "./sse.js";
import { AnswerTurn, toolTurn, userTurn } from "./turn.js";

let messages = [];
/** The controller of the answer that is coming, else null. */
let running = null;
/** Unknown until the server has said it; it answers with the one it serves until then. */
let model;

/** Connects the message box. */
export function connect() {
  const box = byId("message");
  byId("composer").addEventListener("submit", (event) => {
    event.preventDefault();
    send();
  });
  box.addEventListener("keydown", (event) => {
    // A key of an input method's choice is no Enter.
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      send();
    }
  });
  box.addEventListener("input", grow);
  byId("stop").addEventListener("click", stop);
  byId("new-chat").addEventListener("click", clear);
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && running && !byId("settings").open) stop();
  });
  attachments.connect(hint);
}

/** The model that is asked, as the server names it, and whether it sees images (undefined: not known). */
export function setModel(name, seesImages) {
  model = name;
  byId("attach").hidden = seesImages === false;
}

function hint(sentence) {
  byId("hint").textContent = sentence;
  if (sentence) announce(sentence);
}

function grow() {
  const box = byId("message");
  box.style.height = "auto";
  box.style.height = `${box.scrollHeight}px`;
}

function stop() {
  running?.abort();
}

function clear() {
  stop();
  messages = [];
  attachments.take();
  byId("log").replaceChildren(byId("log").welcome);
  hint("");
  byId("message").focus();
  announce("New conversation");
}

function send() {
  const box = byId("message");
  const text = box.value.trim();
  if (running || (!text && !attachments.count())) return;
  const images = attachments.take();
  box.value = "";
  grow();
  hint("");
  put(userTurn(text, images));
  const parts = images.map((image) => ({ type: "image_url", image_url: { url: image.url } }));
  messages.push({ role: "user", content: parts.length ? [...parts, ...(text ? [{ type: "text", text }] : [])] : text });
  answer();
}

/** Adds a turn at the end and goes there. */
function put(node) {
  const log = byId("log");
  const welcome = byId("welcome");
  if (welcome) {
    log.welcome = welcome;
    welcome.remove();
  }
  log.append(node);
  log.scrollTop = log.scrollHeight;
}

/** Asks for the next turn; `turns` is how many messages it answers. */
async function answer() {
  const turns = messages.length;
  const turn = new AnswerTurn(model ?? "m3");
  put(turn.node);
  busy(true);
  const state = new State(turn);
  const controller = new AbortController();
  running = controller;
  try {
    const system = settings().system.trim();
    const body = {
      model, stream: true, stream_options: { include_usage: true }, ...requestFields(),
      messages: [...(system ? [{ role: "system", content: system }] : []), ...messages],
    };
    const answered = await ask("v1/chat/completions", {
      method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body), signal: controller.signal,
    });
    for await (const data of events(answered.body)) {
      if (data === "[DONE]") break;
      state.take(JSON.parse(data));
    }
  } catch (error) {
    if (error.name === "AbortError") state.finish = "stopped";
    else state.fault = error;
  }
  if (running === controller) running = null;
  busy(running !== null);
  // The conversation was cleared meanwhile: nobody waits for this answer.
  if (messages.length !== turns) return;
  close(state, turn, turns);
}

/** Notes what was said and what can be done next. */
function close(state, turn, turns) {
  state.draw(false);
  const again = () => {
    messages.length = turns;
    const log = byId("log");
    while (log.lastChild !== turn.node) log.lastChild.remove();
    turn.node.remove();
    if (!running) answer();
  };
  turn.end(state.message, state.facts(), again);
  if (state.fault) {
    turn.fail(state.fault.message);
    announce(state.fault.message, true);
    if (state.fault.status === 401) openSettings("key", "This server asks for a key.");
  }
  const said = state.message;
  if (said.content || said.tool_calls || said.reasoning_content) messages.push(said);
  // What is cut in the middle of a call has no arguments to answer.
  if (said.tool_calls && !state.fault && state.finish === "tool_calls") {
    turn.askForResults(said.tool_calls, (results) => {
      said.tool_calls.forEach((call, at) => {
        messages.push({ role: "tool", tool_call_id: call.id, content: results[at] });
        put(toolTurn(call.function.name, results[at]));
      });
      answer();
    });
    byId("log").scrollTop = byId("log").scrollHeight;
    announce(`The answer calls ${said.tool_calls.map((call) => call.function.name).join(", ")} and waits for results`);
  } else if (!state.fault) {
    if (said.tool_calls) delete said.tool_calls;
    announce(state.finish === "stopped" ? "Stopped" : `Answer finished: ${(said.content ?? "").slice(0, 300)}`);
  }
}

function busy(now) {
  const [stopButton, sendButton] = [byId("stop"), byId("send")];
  const hadFocus = document.activeElement === stopButton || document.activeElement === sendButton;
  stopButton.hidden = !now;
  sendButton.hidden = now;
  if (hadFocus) (now ? stopButton : byId("message")).focus();
  if (now) announce("Generating");
}

/** An answer as it comes together from the pieces of a stream. */
class State {
  constructor(turn) {
    this.turn = turn;
    this.message = { role: "assistant", content: "" };
    this.finish = null;
    this.usage = null;
    this.fault = null;
    this.start = performance.now();
    this.first = 0;
    this.thought = 0;
    this.frame = 0;
  }

  take(chunk) {
    if (chunk.error) throw new Error(chunk.error.message);
    if (chunk.usage) this.usage = chunk.usage;
    const choice = chunk.choices?.[0];
    if (!choice) return;
    if (choice.finish_reason) this.finish = choice.finish_reason;
    const delta = choice.delta ?? {};
    const [message, now] = [this.message, performance.now()];
    const reasoning = delta.reasoning_content ?? delta.reasoning;
    if (reasoning) {
      message.reasoning_content = (message.reasoning_content ?? "") + reasoning;
      this.thought = now;
    }
    if (delta.content) message.content += delta.content;
    for (const piece of delta.tool_calls ?? []) {
      message.tool_calls ??= [];
      message.tool_calls[piece.index] ??= { id: piece.id, type: "function", function: { name: "", arguments: "" } };
      const into = message.tool_calls[piece.index].function;
      into.name += piece.function?.name ?? "";
      into.arguments += piece.function?.arguments ?? "";
    }
    if (!this.first && (reasoning || delta.content || delta.tool_calls)) this.first = now;
    // One drawing for a screen's frame, however many pieces came in it.
    this.frame ||= requestAnimationFrame(() => this.draw(true));
  }

  draw(still) {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    const log = byId("log");
    const follows = log.scrollHeight - log.scrollTop - log.clientHeight < 80;
    this.turn.update(this.message, (this.thought - this.start) / 1000, still);
    // Whoever has scrolled up reads there.
    if (follows) log.scrollTop = log.scrollHeight;
  }

  /** The line under the answer. */
  facts() {
    const parts = [];
    const end = performance.now();
    const tokens = this.usage?.completion_tokens;
    if (this.finish === "length") parts.push("cut at the token limit");
    if (this.finish === "stopped") parts.push("stopped");
    if (this.first) parts.push(`first token after ${((this.first - this.start) / 1000).toFixed(2)} s`);
    if (tokens) parts.push(`${tokens} tokens`);
    // Over less than that the clock of a page says nothing.
    if (tokens > 1 && end > this.first + 200) parts.push(`${((tokens - 1) / ((end - this.first) / 1000)).toFixed(1)} tokens/s`);
    const cached = this.usage?.prompt_tokens_details?.cached_tokens;
    if (this.usage) parts.push(`prompt ${this.usage.prompt_tokens}${cached ? `, ${cached} cached` : ""}`);
    return parts.join(" · ");
  }
}
