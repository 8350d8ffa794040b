// The web page as a user meets it, in headless Chromium, against the real server: what is said, shown, sent, stopped,
// reached by keyboard and read by screen readers. `cargo xtask ui` runs it.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { call, launch, metric, paged, serving, shot, until } from "./scripted.mjs";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==";
const THOUGHT = "Two things to say.";
const SAID = [
  "# Result", "", "Some **bold** and `code_with_underscores` text, see https://example.org/a_b.", "",
  "- one", "- two", "  1. inner", "", "```rust", "let x = 1 < 2;", "```", "", "| a | b |", "| - | - |", "| 1 | 2 |",
].join("\n");

async function say(page, text) {
  await page.getByLabel("Message", { exact: true }).fill(text);
  await page.keyboard.press("Enter");
}

/** The page knows the model. */
const named = (page) => page.locator("#model", { hasText: "scripted" }).waitFor();
const answered = (page, nth = 0) => page.locator('article.assistant[aria-busy="false"]').nth(nth).waitFor();

const tests = {
  async "an answer streams, its thinking is folded, its markup becomes structure"() {
    await serving(`<mm:think>${THOUGHT}</mm:think>${SAID}`, (base) => paged(base, async (page, sent) => {
      await named(page);
      await say(page, "Hello\nthere");
      await answered(page);
      const turn = page.locator("article.assistant");
      const words = turn.locator(".thinking .words");
      assert.equal(await words.isVisible(), false);
      await turn.getByText(/Thought for/).click();
      assert.equal(await words.textContent(), THOUGHT);
      const answer = turn.locator(".answer");
      assert.equal(await answer.locator("h3").textContent(), "Result");
      assert.equal(await answer.locator("strong").textContent(), "bold");
      assert.equal(await answer.locator("p code").textContent(), "code_with_underscores");
      assert.equal(await answer.locator("a").getAttribute("href"), "https://example.org/a_b");
      assert.equal(await answer.locator("a").getAttribute("rel"), "noopener noreferrer nofollow");
      assert.equal(await answer.locator("ul > li").count(), 2);
      assert.equal(await answer.locator("ul ol > li").textContent(), "inner");
      assert.equal(await answer.locator("pre").textContent(), "let x = 1 < 2;");
      assert.equal(await answer.locator("td").nth(1).textContent(), "2");
      assert.match(await turn.locator(".foot").textContent(), /first token after [\d.]+ s · \d+ tokens · .*prompt \d+/);
      assert.deepEqual(sent[0].messages, [{ role: "user", content: "Hello\nthere" }]);
      await shot(page, "chat-light");
      await say(page, "More");
      await answered(page, 1);
      assert.equal(sent[1].messages.length, 3);
      assert.deepEqual(sent[1].messages[1], { role: "assistant", content: SAID, reasoning_content: THOUGHT });
      await turn.nth(1).getByRole("button", { name: "Try again" }).click();
      await until(() => sent.length === 3, "the last turn is asked for again");
      assert.deepEqual(sent[2].messages, sent[1].messages);
      await answered(page, 1);
      await page.getByRole("button", { name: "New chat" }).click();
      assert.equal(await page.locator("article").count(), 0);
    }));
  },

  async "what a model writes is text, never markup"() {
    const evil = `<img src=x onerror="window.ran=1"><script>window.ran=1</script> [go](javascript:window.ran=1) ![see](https://example.org/leak.png) **<b id=evil>x</b>**`;
    await serving(`<mm:think><i id=evil>y</i></mm:think>${evil}`, (base) => paged(base, async (page) => {
      await say(page, '<img src=x onerror="window.ran=1">');
      await answered(page);
      const turns = page.locator("#log article");
      assert.equal(await turns.locator("img, script, #evil").count(), 0);
      assert.equal(await turns.locator('a[href^="javascript"]').count(), 0);
      assert.equal(await page.evaluate("window.ran"), undefined);
      assert.match(await page.locator("article.assistant .answer").textContent(), /<script>window\.ran=1<\/script>/);
      // The policy holds even against a script that tries.
      const refused = await page.evaluate(() => new Promise((resolve) => {
        document.addEventListener("securitypolicyviolation", (event) => resolve(event.effectiveDirective));
        document.body.append(Object.assign(document.createElement("img"), { src: "http://127.0.0.1:9/x.png" }));
      }));
      assert.equal(refused, "img-src");
    }, { expected: ["Content Security Policy", "asked http://127.0.0.1:9"] }));
  },

  async "a call is shown, answered by hand, and goes back to the model"() {
    const tools = [{ type: "function", function: { name: "get_weather", parameters: { type: "object", properties: { city: { type: "string" }, days: { type: "integer" } } } } }];
    await serving(`Looking. ${call("get_weather", { city: "Köln", days: 3 })}`, (base) => paged(base, async (page, sent) => {
      await page.getByRole("button", { name: "Settings" }).click();
      await page.getByLabel("Tools, as a JSON list").fill("{");
      await page.getByRole("button", { name: "Save" }).click();
      assert.match(await page.locator("#settings-error").textContent(), /Tools are no JSON/);
      await page.getByLabel("Tools, as a JSON list").fill(JSON.stringify(tools));
      await page.getByRole("button", { name: "Save" }).click();
      await say(page, "Weather?");
      const card = page.getByRole("region", { name: "Call of get_weather" });
      await card.getByLabel("Result of get_weather").fill("18 °C");
      assert.equal(await card.locator("pre").textContent(), JSON.stringify({ city: "Köln", days: 3 }, null, 2));
      await shot(page, "call");
      await page.getByRole("button", { name: "Send result" }).click();
      await answered(page, 1);
      assert.deepEqual(sent[0].tools, tools);
      const [, asked, told] = sent[1].messages;
      assert.deepEqual(told, { role: "tool", tool_call_id: asked.tool_calls[0].id, content: "18 °C" });
      assert.deepEqual(JSON.parse(asked.tool_calls[0].function.arguments), { city: "Köln", days: 3 });
      assert.equal(await page.locator("article.tool .body").textContent(), "18 °C");
    }));
  },

  async "stop ends the request on the server and keeps what was said"() {
    await serving("Again and again. ", (base) => paged(base, async (page) => {
      await say(page, "Go on");
      await page.getByText(/Again and again/).first().waitFor();
      await page.getByRole("button", { name: "Stop" }).click();
      await answered(page);
      await until(async () => await metric(base, "m3_requests_running") === 0, "nothing runs");
      assert.match(await page.locator(".foot").textContent(), /stopped/);
      assert.match(await page.locator("article.assistant .answer").textContent(), /Again and again/);
      assert.equal(await page.getByRole("button", { name: "Send" }).isVisible(), true);
    }), { more: { eos: null, step_us: 30_000 } });
  },

  async "settings reach the request and last; bad values do not"() {
    await serving("ok", (base) => paged(base, async (page, sent) => {
      await page.getByRole("button", { name: "Settings" }).click();
      await page.getByLabel("Thinking", { exact: true }).selectOption("disabled");
      await page.getByLabel("Temperature").fill("3");
      await page.getByRole("button", { name: "Save" }).click();
      assert.equal(await page.getByRole("dialog").isVisible(), true);
      await page.getByLabel("Temperature").fill("0.5");
      await page.getByLabel("Most tokens").fill("7");
      await page.getByLabel("System message").fill("Be brief.");
      await page.getByRole("button", { name: "Save" }).click();
      await page.reload();
      await say(page, "Hi");
      await answered(page);
      const { temperature, max_completion_tokens: most, thinking, messages } = sent[0];
      assert.deepEqual([temperature, most, thinking], [0.5, 7, { type: "disabled" }]);
      assert.deepEqual(messages[0], { role: "system", content: "Be brief." });
    }));
  },

  async "images are dropped, shown, sent as data and can be taken back"() {
    await serving("I see.", (base) => paged(base, async (page, sent) => {
      await page.route("**/v1/models", async (route) => {
        const answer = await route.fetch();
        const models = await answer.json();
        models.data[0].capabilities.input_modalities = ["text", "image"];
        await route.fulfill({ response: answer, json: models });
      });
      await page.reload();
      const drop = (names) => page.evaluate(([names, bytes]) => {
        const data = new DataTransfer();
        for (const name of names) {
          const type = name.endsWith("png") ? "image/png" : "text/plain";
          data.items.add(new File([Uint8Array.from(atob(bytes), (each) => each.charCodeAt(0))], name, { type }));
        }
        const view = document.getElementById("view-chat");
        view.dispatchEvent(new DragEvent("dragover", { dataTransfer: data, bubbles: true, cancelable: true }));
        view.dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true }));
      }, [names, PIXEL]);
      await page.getByRole("button", { name: "Add image" }).waitFor();
      await drop(["a.png", "b.png", "c.txt"]);
      await page.getByRole("button", { name: "Remove a.png" }).click();
      assert.match(await page.locator("#hint").textContent(), /c\.txt is no PNG/);
      await say(page, "What is this?");
      await until(() => sent.length === 1, "the request");
      assert.deepEqual(sent[0].messages[0].content, [
        { type: "image_url", image_url: { url: `data:image/png;base64,${PIXEL}` } }, { type: "text", text: "What is this?" },
      ]);
      await page.getByRole("img", { name: "b.png" }).waitFor();
      await answered(page);
    }, { expected: ["status of 400"] }));
  },

  async "a server that takes no images does not ask for any"() {
    await serving("ok", (base) => paged(base, async (page) => {
      const seen = (await (await fetch(`${base}/v1/models`)).json()).data[0].capabilities.input_modalities.includes("image");
      await named(page);
      await until(async () => await page.getByRole("button", { name: "Add image" }).isVisible() === seen, "the button follows the server");
    }));
  },

  async "a key is asked for, a wrong one again, and never written to disk"() {
    await serving("ok", (base) => paged(base, async (page) => {
      const key = page.getByLabel("API key");
      for (const guess of ["wrong", "right-key"]) {
        await key.waitFor();
        assert.equal(await key.evaluate((field) => field === document.activeElement), true);
        await key.fill(guess);
        await page.getByRole("button", { name: "Save" }).click();
      }
      await named(page);
      await say(page, "Hi");
      await answered(page);
      assert.equal(await page.locator(".answer").textContent(), "ok");
      assert.equal(await page.evaluate(() => JSON.stringify(localStorage).includes("right-key")), false);
    }, { expected: ["status of 401"] }), { flags: ["--api-key", "right-key"] });
  },

  async "the status view follows the load and names the paths"() {
    await serving("Again and again. ", (base) => paged(base, async (page) => {
      await say(page, "Go on");
      await page.getByText(/Again/).first().waitFor();
      await page.getByRole("tab", { name: "Status" }).click();
      await until(async () => await page.locator('[data-name="Running"] dd').textContent() === "1", "one request runs");
      await until(async () => Number(await page.locator('[data-name="Tokens/s written"] dd').textContent()) > 5, "tokens are counted");
      assert.equal(await page.getByRole("img").count(), 5);
      const label = await page.getByRole("img", { name: /^Gap between tokens: median [\d.]+ m?s/ }).getAttribute("aria-label");
      assert.match(label, /highest in the last minutes/);
      assert.equal(await page.locator("#server-facts").getByRole("row", { name: /^Backend null/ }).count(), 1);
      const info = await (await fetch(`${base}/server_info`)).json();
      assert.equal(await page.locator("#paths tr").count(), info.backend_paths.length);
      if (process.env.SHOTS) await page.waitForTimeout(8000);
      await shot(page, "status-light");
      await page.emulateMedia({ colorScheme: "dark" });
      await shot(page, "status-dark");
    }), { more: { eos: null, step_us: 20_000 } });
  },

  async "with the metrics on another port the status view says so and shows the load"() {
    await serving("Again and again. ", (base) => paged(base, async (page) => {
      await say(page, "Go on");
      await page.getByText(/Again/).first().waitFor();
      await page.getByRole("tab", { name: "Status" }).click();
      await until(async () => await page.locator('[data-name="Running"] dd').textContent() === "1", "one request runs");
      assert.match(await page.locator("#status-note").textContent(), /on the admin's port alone/);
      assert.equal(await page.locator('[data-name="Requests so far"]').count(), 0, "what is not known is not shown");
      assert.equal(await page.locator("#server-facts").getByRole("row", { name: /^Backend null/ }).count(), 1);
      // Asked for once, not every two seconds.
      await page.waitForTimeout(5000);
      const asked = await page.evaluate(() => performance.getEntriesByType("resource").filter((each) => each.name.endsWith("/metrics")).length);
      assert.equal(asked, 1);
    }, { expected: ["status of 404"] }), { flags: ["--admin-port", "0"], more: { eos: null, step_us: 20_000 } });
  },

  async "a server that goes away is said to be away"() {
    await serving("Again and again. ", (base, server) => paged(base, async (page) => {
      await page.getByText("ready", { exact: true }).waitFor();
      await say(page, "Go on");
      await page.getByText(/Again/).first().waitFor();
      server.kill("SIGKILL");
      await page.locator(".fault").waitFor();
      await page.getByText("not reachable", { exact: true }).waitFor();
      assert.match(await page.locator("article.assistant .answer").textContent(), /Again/);
    }, { expected: ["ERR_", "Failed to load"] }), { more: { eos: null, step_us: 30_000 } });
  },

  async "everything is reached by keyboard"() {
    await serving("ok", (base) => paged(base, async (page) => {
      const focused = () => page.evaluate(() => document.activeElement.id || document.activeElement.className);
      await named(page);
      assert.equal(await focused(), "message");
      await page.getByRole("tab", { name: "Chat" }).focus();
      await page.keyboard.press("ArrowRight");
      assert.equal(await focused(), "tab-status");
      assert.equal(await page.locator("#view-status").isVisible(), true);
      await page.keyboard.press("ArrowRight");
      assert.equal(await page.locator("#view-chat").isVisible(), true);
      const seen = [];
      for (let at = 0; at < 3; at++) {
        await page.keyboard.press("Tab");
        seen.push(await focused());
      }
      assert.deepEqual(seen, ["new-chat", "open-settings", "theme"]);
      await page.keyboard.press("Shift+Tab");
      await page.keyboard.press("Enter");
      assert.equal(await focused(), "set-thinking");
      await page.keyboard.press("Escape");
      assert.equal(await page.getByRole("dialog").isVisible(), false);
      assert.equal(await focused(), "open-settings");
      await page.getByLabel("Message", { exact: true }).focus();
      await page.keyboard.type("one");
      await page.keyboard.press("Shift+Enter");
      await page.keyboard.type("two");
      await page.keyboard.press("Enter");
      await answered(page);
      assert.equal(await page.locator("article.user .body").textContent(), "one\ntwo");
      assert.equal(await focused(), "message");
      await until(async () => (await page.locator("#announce").textContent()) === "Answer finished: ok", "the answer is announced");
    }));
  },

  async "no accessibility rule is broken, in light and dark, wide and narrow"() {
    const said = `<mm:think>${THOUGHT}</mm:think>${SAID}\n\n${call("get_weather", { city: "Köln" })}`;
    await serving(said, async (base) => {
      for (const [colorScheme, width] of [["light", 1100], ["dark", 380]]) {
        await paged(base, async (page) => {
          await named(page);
          await page.evaluate(AXE);
          await broken(page, `empty ${colorScheme}`);
          await shot(page, `empty-${colorScheme}`);
          await say(page, "Hello");
          await answered(page);
          await page.getByText(/Thought for/).click();
          await broken(page, `chat ${colorScheme}`);
          await shot(page, `chat-${colorScheme}-${width}`);
          await page.getByRole("button", { name: "Settings" }).click();
          await broken(page, `settings ${colorScheme}`);
          await shot(page, `settings-${colorScheme}`);
          await page.keyboard.press("Escape");
          await page.getByRole("tab", { name: "Status" }).click();
          await page.locator(".tiles dd").first().waitFor();
          await broken(page, `status ${colorScheme}`);
          await shot(page, `status-${colorScheme}-${width}`);
          const sideways = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
          assert.equal(sideways, 0, "the page does not scroll sideways");
        }, { colorScheme, viewport: { width, height: 800 } });
      }
    });
  },

  async "without the page there is no page"() {
    await serving("ok", async (base) => {
      for (const path of ["/", "/ui/app.js", "/ui/style.css"]) assert.equal((await fetch(base + path)).status, 404, path);
      assert.equal((await fetch(`${base}/v1/models`)).status, 200);
    }, { flags: ["--no-ui"] });
  },
};

/** Fails with the rules that axe finds broken and where. */
async function broken(page, place) {
  const found = await page.evaluate(async () => {
    const result = await window.axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"] });
    return result.violations.map((rule) => `${rule.id}: ${rule.nodes.map((node) => node.html.slice(0, 160)).join(" | ")}`);
  });
  assert.deepEqual(found, [], place);
}

const browser = await launch();
const only = process.argv[2];
let [passed, failed] = [0, 0];
for (const [name, test] of Object.entries(tests)) {
  if (only && !name.includes(only)) continue;
  const start = Date.now();
  try {
    await test();
    passed++;
    console.log(`ok      ${name} (${((Date.now() - start) / 1000).toFixed(1)} s)`);
  } catch (error) {
    failed++;
    console.log(`FAILED  ${name}\n${error.stack}`);
  }
}
await browser.close();
console.log(`${passed} passed, ${failed} failed in Chromium ${browser.version()}`);
process.exit(failed || !passed ? 1 : 0);
