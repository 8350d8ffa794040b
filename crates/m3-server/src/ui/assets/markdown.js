// What a model writes, as nodes: headings, lists, quotes, tables, code, emphasis, links. Text becomes text nodes and
// nothing else, so markup in it is shown and never run. Images are not loaded: a model could leak what it knows by one.

import { copy, make } from "./dom.js";

const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})\s+(.*?)\s*#*\s*$/;
const ITEM = /^( *)([-*+]|\d{1,9}[.)])\s+(.*)$/;
const RULE = /^ {0,3}([-*_])( *\1){2,}\s*$/;

/** Shows `text` in `place`; blocks that did not change since the last call stay as they are. */
export function show(place, text) {
  const blocks = split(text);
  const shown = place.blocks ?? [];
  let at = 0;
  while (at < shown.length && at < blocks.length && shown[at].source === blocks[at]) at++;
  shown.splice(at).forEach((block) => block.node.remove());
  for (const source of blocks.slice(at)) {
    const node = block(source);
    place.append(node);
    shown.push({ source, node });
  }
  place.blocks = shown;
}

/** The sources of the blocks of a text. */
export function split(text) {
  const blocks = [];
  let lines = [];
  let fence = null;
  const end = () => {
    if (lines.some((line) => line.trim())) blocks.push(lines.join("\n"));
    lines = [];
  };
  for (const line of text.split("\n")) {
    const mark = FENCE.exec(line);
    if (fence) {
      lines.push(line);
      if (mark && mark[1].startsWith(fence) && !mark[2].trim()) {
        fence = null;
        end();
      }
    } else if (mark) {
      end();
      fence = mark[1];
      lines.push(line);
    } else if (!line.trim()) {
      // A list goes on over empty lines while what follows is indented or another item.
      if (lines.length && ITEM.test(lines[0])) lines.push(line);
      else end();
    } else {
      const inList = lines.length && ITEM.test(lines[0]);
      const loose = inList && !lines[lines.length - 1].trim();
      if (HEADING.test(line) || (loose && !ITEM.test(line) && !/^ {2,}/.test(line))) end();
      else if (lines.length && HEADING.test(lines[0])) end();
      else if (lines.length && !inList && ITEM.test(line) && !lines[0].startsWith(">")) end();
      lines.push(line);
    }
  }
  end();
  return blocks;
}

function block(source) {
  const lines = source.split("\n");
  const fence = FENCE.exec(lines[0]);
  if (fence) return code(lines, fence);
  const heading = HEADING.exec(lines[0]);
  // The page has two levels of its own above.
  if (heading && lines.length === 1) return inline(make(`h${Math.min(6, heading[1].length + 2)}`), heading[2]);
  if (lines.length === 1 && RULE.test(lines[0])) return make("hr");
  if (lines.every((line) => /^ {0,3}>/.test(line))) {
    const quote = make("blockquote");
    split(lines.map((line) => line.replace(/^ {0,3}> ?/, "")).join("\n")).forEach((part) => quote.append(block(part)));
    return quote;
  }
  if (ITEM.test(lines[0])) return list(lines);
  if (lines.length > 1 && lines[0].includes("|") && /^[\s|:-]*-[\s|:-]*$/.test(lines[1])) return table(lines);
  return paragraph(lines);
}

function code(lines, fence) {
  const closed = lines.length > 1 && lines[lines.length - 1].trim().startsWith(fence[1]);
  const text = lines.slice(1, closed ? -1 : undefined).join("\n");
  const button = make("button", { type: "button", class: "small", onclick: () => copy(text, button) }, "Copy");
  const name = fence[2].trim();
  const pre = make("pre", { tabIndex: 0, role: "region", "aria-label": name ? `Code, ${name}` : "Code" }, make("code", {}, text));
  return make("div", { class: "code" }, pre, button);
}

function paragraph(lines) {
  const made = make("p");
  lines.forEach((line, at) => {
    inline(made, line.trim());
    if (at + 1 < lines.length) made.append(/ {2,}$|\\$/.test(line) ? make("br") : "\n");
  });
  return made;
}

function list(lines) {
  const [, indent, mark] = ITEM.exec(lines[0]);
  const ordered = /\d/.test(mark);
  const made = make(ordered ? "ol" : "ul", ordered ? { start: Number.parseInt(mark, 10) } : {});
  let item = [];
  const end = () => {
    if (!item.length) return;
    const entry = make("li");
    const parts = split(item.join("\n"));
    parts.forEach((part) => {
      const node = block(part);
      // A short item needs no paragraph of its own.
      entry.append(...(node.localName === "p" && part === parts[0] ? node.childNodes : [node]));
    });
    made.append(entry);
    item = [];
  };
  for (const line of lines) {
    const found = ITEM.exec(line);
    if (found && found[1].length <= indent.length + 1) {
      end();
      item = [found[3]];
    } else {
      item.push(line.slice(Math.min(line.length - line.trimStart().length, indent.length + mark.length + 1)));
    }
  }
  end();
  return made;
}

function table(lines) {
  const cells = (line) => line.trim().replace(/^\||\|$/g, "").split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll("\\|", "|"));
  const row = (line, name) => make("tr", {}, ...cells(line).map((cell) => inline(make(name), cell)));
  return make("table", { tabIndex: 0 }, make("thead", {}, row(lines[0], "th")), make("tbody", {}, ...lines.slice(2).map((line) => row(line, "td"))));
}

const SPANS = /(`+)([\s\S]*?[^`])\1(?!`)|!?\[([^\]\n]*)\]\(([^)\s]+)(?:\s+"[^"]*")?\)|(https?:\/\/[^\s<>()]*[^\s<>().,;:!?'"])|(\*\*|__)(?=\S)([\s\S]*?\S)\6|(\*|_)(?=\S)([\s\S]*?\S)\8(?!\w)|~~(?=\S)([\s\S]*?\S)~~|\\([\\`*_{}[\]()#+\-.!|~>])/g;

function inline(place, text) {
  let from = 0;
  for (const found of text.matchAll(SPANS)) {
    const [all, , code, words, target, bare, , strong, mark, weak, gone, escaped] = found;
    // snake_case is no emphasis.
    if (mark === "_" && /\w/.test(text[found.index - 1] ?? "")) continue;
    if (found.index < from) continue;
    place.append(text.slice(from, found.index));
    from = found.index + all.length;
    if (code !== undefined) place.append(make("code", {}, code.trim() || code));
    else if (target !== undefined) place.append(link(target, words || target));
    else if (bare !== undefined) place.append(link(bare, bare));
    else if (strong !== undefined) place.append(inline(make("strong"), strong));
    else if (weak !== undefined) place.append(inline(make("em"), weak));
    else if (gone !== undefined) place.append(inline(make("del"), gone));
    else place.append(escaped);
  }
  place.append(text.slice(from));
  return place;
}

/** Only to the web and by mail; whatever else was meant stays text. */
function link(target, words) {
  if (!/^(https?:\/\/|mailto:)/i.test(target)) return document.createTextNode(words === target ? words : `${words} (${target})`);
  return make("a", { href: target, target: "_blank", rel: "noopener noreferrer nofollow" }, words);
}
