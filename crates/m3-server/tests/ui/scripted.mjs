// `m3 serve` with a model whose answer is known (the scripted backend behind the bundled tokenizer and template), and a
// page of headless Chromium on it that fails the test on whatever the browser complains of.
//
// Needs M3_BINARY, with the plugins beside it, M3_MODELS, the folder of the tests' random model, and CHROMIUM.

import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { mkdtempSync, readFileSync, readdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { chromium } from "playwright-core";

const BUNDLED = join(process.env.M3_MODELS, "m3-nano");
const NAMESPACE = "]<]minimax[>[";
/** Ends a turn in the bundled vocabulary. */
const END_OF_TURN = 980;

/** A call of a tool in the model's own markup. */
export function call(tool, fields) {
  const inner = Object.entries(fields).map(([key, value]) => `${NAMESPACE}<${key}>${value}${NAMESPACE}</${key}>`).join("");
  return `${NAMESPACE}<tool_call>\n${NAMESPACE}<invoke name="${tool}">${inner}${NAMESPACE}</invoke>\n${NAMESPACE}</tool_call>`;
}

function modelFolder(text, more) {
  const folder = mkdtempSync(join(tmpdir(), "m3-page-"));
  for (const name of readdirSync(BUNDLED).filter((name) => name !== "config.json")) symlinkSync(join(BUNDLED, name), join(folder, name));
  const config = JSON.parse(readFileSync(join(BUNDLED, "config.json"), "utf8"));
  const ids = JSON.parse(execFileSync(process.env.M3_BINARY, ["tokenize", BUNDLED, "--text", text], { encoding: "utf8" }));
  config.m3_null = { script: ids.tokens, eos: END_OF_TURN, ...more };
  writeFileSync(join(folder, "config.json"), JSON.stringify(config));
  return folder;
}

/** A ready server that says `text` to everything, for the time of `use(base, server)`. */
export async function serving(text, use, { flags = [], more = {} } = {}) {
  const folder = modelFolder(text, more);
  const fixed = ["serve", folder, "--backend", "null", "--port", "0", "--served-model-name", "scripted"];
  const server = spawn(process.env.M3_BINARY, [...fixed, ...flags], { stdio: ["ignore", "pipe", process.env.M3_SERVER_LOG ? "inherit" : "ignore"] });
  try {
    let base = "";
    for await (const line of createInterface({ input: server.stdout })) {
      base = line.split(" ").find((word) => word.startsWith("http://")) ?? "";
      if (base) break;
    }
    await until(async () => (await fetch(`${base}/ready`)).ok, "the server is ready", 120);
    await use(base, server);
  } finally {
    server.kill("SIGKILL");
    rmSync(folder, { recursive: true });
  }
}

/** Waits for something to become true. */
export async function until(condition, what, seconds = 15) {
  const deadline = Date.now() + seconds * 1000;
  for (;;) {
    if (await condition()) return;
    assert.ok(Date.now() < deadline, `not within ${seconds} s: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

/** A sample of the server's /metrics. */
export async function metric(base, name) {
  const line = (await (await fetch(`${base}/metrics`)).text()).split("\n").find((line) => line.startsWith(`${name}{`));
  return Number(line.split(" ").at(-1));
}

let browser = null;

/** Starts the browser once. */
export async function launch() {
  browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: ["--no-sandbox", "--disable-gpu"] });
  return browser;
}

/**
 * A page on `base` for the time of `use(page, sent)`; `sent` gathers the bodies of chat requests. The test fails on
 * anything the browser writes to its console as an error, except the statuses in `expected`, and on any request to
 * another place.
 */
export async function paged(base, use, { expected = [], ...options } = {}) {
  const context = await browser.newContext({ viewport: { width: 1100, height: 800 }, ...options });
  const page = await context.newPage();
  const [complaints, sent] = [[], []];
  const complain = (text) => {
    if (!expected.some((part) => text.includes(part))) complaints.push(text);
  };
  page.on("pageerror", (error) => complain(String(error)));
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) complain(message.text());
  });
  page.on("request", (request) => {
    if (!/^(data:|blob:)/.test(request.url()) && !request.url().startsWith(base)) complain(`asked ${request.url()}`);
    if (request.url().endsWith("/v1/chat/completions")) sent.push(JSON.parse(request.postData()));
  });
  page.setDefaultTimeout(15_000);
  try {
    if (process.env.M3_UI_SOURCES) await fromSources(page, process.env.M3_UI_SOURCES);
    await page.goto(base);
    await use(page, sent);
    assert.deepEqual(complaints, []);
  } catch (error) {
    if (process.env.SHOTS) await page.screenshot({ path: join(process.env.SHOTS, "failed.png") });
    throw error;
  } finally {
    await context.close();
  }
}

/** The files of a source tree in place of those built into the program, under the same headers: to work on the page. */
async function fromSources(page, folder) {
  await page.route(/\/(ui\/[^/]+)?$/, async (route) => {
    const name = new URL(route.request().url()).pathname.split("/").at(-1) || "index.html";
    const answer = await route.fetch();
    await route.fulfill({ response: answer, status: 200, body: readFileSync(join(folder, name), "utf8") });
  });
}

/** Keeps a picture where SHOTS names a folder. */
export async function shot(page, name) {
  if (process.env.SHOTS) await page.screenshot({ path: join(process.env.SHOTS, `${name}.png`) });
}
