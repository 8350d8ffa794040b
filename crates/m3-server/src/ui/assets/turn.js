// How one turn of the conversation looks. An answer grows while it streams: its thinking is folded, its text is shown
// block by block, its tool calls are cards that wait for a result.

import { copy, make } from "./dom.js";
import { show } from "./markdown.js";

/** What the user has said. */
export function userTurn(text, images) {
  const turn = make("article", { class: "turn user", "aria-label": "You" }, make("h2", {}, "You"));
  if (images.length) {
    turn.append(make("div", { class: "images" }, ...images.map((image) => make("img", { src: image.url, alt: image.name }))));
  }
  if (text) turn.append(make("div", { class: "body" }, text));
  return turn;
}

/** The result of a tool. */
export function toolTurn(name, text) {
  return make("article", { class: "turn tool", "aria-label": `Result of ${name}` }, make("h2", {}, `Result of ${name}`), make("div", { class: "body" }, text));
}

/** An answer that grows. Its node is `node`. */
export class AnswerTurn {
  constructor(title) {
    this.words = make("div", { class: "words" });
    this.summary = make("summary", {}, "Thinking");
    this.thinking = make("details", { class: "thinking", hidden: true }, this.summary, this.words);
    this.answer = make("div", { class: "answer" });
    this.calls = make("div", { class: "calls" });
    this.caret = make("span", { class: "caret", "aria-hidden": "true" });
    this.foot = make("div", { class: "foot" });
    this.node = make("article", { class: "turn assistant", "aria-label": title, "aria-busy": "true" },
      make("h2", {}, title), this.thinking, this.answer, this.calls, this.caret, this.foot);
  }

  /** Shows a message as far as it has come; `seconds` is how long it has thought. */
  update(message, seconds, still) {
    if (message.reasoning_content) {
      this.thinking.hidden = false;
      this.words.textContent = message.reasoning_content;
      const thinks = still && !message.content && !message.tool_calls?.length;
      this.summary.textContent = thinks ? `Thinking, ${seconds.toFixed(0)} s` : `Thought for ${seconds.toFixed(1)} s`;
    }
    show(this.answer, message.content ?? "");
    (message.tool_calls ?? []).forEach((call, at) => this.#call(call, at));
  }

  #call(call, at) {
    let card = this.calls.children[at];
    if (!card) {
      card = make("section", { class: "call", "aria-label": `Call of ${call.function.name}` },
        make("h3", {}, `Calls ${call.function.name}`), make("pre", { tabIndex: 0, role: "region", "aria-label": `Arguments of ${call.function.name}` }));
      this.calls.append(card);
    }
    card.querySelector("pre").textContent = pretty(call.function.arguments);
  }

  /** Fields for the results of its calls; `send` gets them in the calls' order. */
  askForResults(calls, send) {
    const fields = calls.map((call, at) => {
      const field = make("textarea", { rows: 2, id: `result-${call.id}` });
      this.calls.children[at].append(make("label", { htmlFor: field.id }, `Result of ${call.function.name}`), field);
      return field;
    });
    const button = make("button", { type: "button", class: "primary", onclick: () => {
      fields.forEach((field) => { field.readOnly = true; });
      button.remove();
      send(fields.map((field) => field.value));
    } }, calls.length > 1 ? "Send results" : "Send result");
    this.calls.append(button);
    fields[0].focus();
  }

  /** No more is coming. `facts` stand under the answer, `retry` asks again. */
  end(message, facts, retry) {
    this.caret.remove();
    this.node.setAttribute("aria-busy", "false");
    const button = make("button", { type: "button", class: "small quiet", onclick: () => copy(message.content ?? "", button) }, "Copy");
    this.foot.replaceChildren(
      ...(message.content ? [button] : []),
      make("button", { type: "button", class: "small quiet retry", onclick: retry }, "Try again"),
      make("span", {}, facts));
  }

  /** Why it broke off. */
  fail(sentence) {
    this.caret.remove();
    this.node.setAttribute("aria-busy", "false");
    this.node.insertBefore(make("p", { class: "fault" }, sentence), this.foot);
  }
}

/** Arguments with line breaks once they are whole. */
function pretty(text) {
  try { return JSON.stringify(JSON.parse(text), null, 2); } catch { return text; }
}
