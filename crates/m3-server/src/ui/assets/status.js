// The live view: what the server is doing, from its probes, /metrics and /server_info. Asks while the page is visible.

import { ask } from "./api.js";
import { byId, make } from "./dom.js";
import { Plot } from "./plot.js";
import { buckets, parse, quantile, value } from "./prometheus.js";

/** Seconds between two readings, shown in a plot, and over which latencies are gathered. */
const [EVERY, SHOWN, GATHERED] = [2, 300, 30];
const [FIRST, GAP] = ["m3_time_to_first_token_seconds", "m3_inter_token_latency_seconds"];
const readings = [];
/** /metrics is behind another port: what is known without it is the load that routers ask for. */
let elsewhere = false;

const number = (each) => each >= 1000 ? `${(each / 1000).toFixed(each >= 1e4 ? 0 : 1)}k` : each >= 10 || Number.isInteger(each) ? each.toFixed(0) : each.toFixed(1);
const percent = (each) => `${each.toFixed(each < 10 && each > 0 ? 1 : 0)}%`;
const duration = (each) => each >= 1 ? `${each.toFixed(each >= 10 ? 0 : 1)} s` : `${(each * 1000).toFixed(each < 0.01 && each > 0 ? 1 : 0)} ms`;

const PLOTS = [
  [new Plot("Tokens per second", ["written", "read"], number, SHOWN), (point) => [point.written, point.read]],
  [new Plot("Requests", ["running", "waiting"], number, SHOWN), (point) => [point.running, point.waiting]],
  [new Plot("Cache pages", ["in use", "kept"], percent, SHOWN), (point) => [point.used, point.kept]],
  [new Plot("Time to first token", ["median", "95th of 100"], duration, SHOWN), (point) => point.first],
  [new Plot("Gap between tokens", ["median", "95th of 100"], duration, SHOWN), (point) => point.gap],
];

/** Starts reading; `onState` hears the server's state, `onReady` that it has just become ready. */
export function start(onState, onReady) {
  byId("plots").append(...PLOTS.map(([plot]) => plot.node));
  let was = "";
  let busy = false;
  const tick = async () => {
    if (document.hidden || busy) return;
    busy = true;
    const state = await probe();
    onState(state);
    if (state.status === "ready" && was !== "ready") onReady();
    was = state.status;
    await read();
    busy = false;
  };
  document.addEventListener("visibilitychange", tick);
  setInterval(tick, EVERY * 1000);
  tick();
  return tick;
}

async function probe() {
  try {
    const answer = await ask("ready", { anyStatus: true });
    return await answer.json();
  } catch {
    return { status: "away" };
  }
}

async function read() {
  try {
    if (!elsewhere) note(parse(await (await ask("metrics")).text()));
    if (elsewhere) noteLoad((await (await ask("v1/loads")).json()).loads[0]);
    tell(elsewhere ? "Latencies and counts are on the admin's port alone; this is the load of the moment." : "");
  } catch (error) {
    if (!elsewhere && error.status === 404) {
      elsewhere = true;
      return read();
    }
    tell(`No figures: ${error.message}.`);
  }
}

function tell(sentence) {
  byId("status-note").textContent = sentence;
  byId("status-note").hidden = !sentence;
}

/** A reading without /metrics. */
function noteLoad(load) {
  const [used, hits] = [100 * load.token_usage, 100 * load.cache_hit_rate];
  add({
    time: performance.now() / 1000,
    point: {
      written: load.gen_throughput, read: NaN, running: load.num_running_reqs, waiting: load.num_waiting_reqs,
      used, kept: NaN, first: [NaN, NaN], gap: [NaN, NaN],
    },
    facts: { "Cache hits": percent(hits) },
  });
}

/** A reading of /metrics. */
function note(samples) {
  const time = performance.now() / 1000;
  const before = readings.at(-1);
  const counter = (name) => value(samples, name) ?? 0;
  const page = (state) => 100 * (value(samples, "m3_pages", { state }) ?? 0) / Math.max(1, counter("m3_pages_total"));
  const reading = {
    time, written: counter("m3_generation_tokens_total"), read: counter("m3_prompt_tokens_total"),
    firsts: buckets(samples, FIRST), gaps: buckets(samples, GAP),
  };
  // A server that was started again counts from nothing.
  if (before && reading.written < before.written) readings.length = 0;
  const rate = (name) => before && readings.length ? (reading[name] - before[name]) / (time - before.time) : 0;
  const since = readings.find((each) => each.time >= time - GATHERED) ?? reading;
  const quantiles = (name) => [0.5, 0.95].map((share) => quantile(since[name], reading[name], share) ?? NaN);
  reading.point = {
    written: rate("written"), read: rate("read"), running: counter("m3_requests_running"),
    waiting: counter("m3_requests_waiting"), used: page("leased"), kept: page("cached"),
    first: quantiles("firsts"), gap: quantiles("gaps"),
  };
  reading.facts = {
    "Tokens/s read": number(reading.point.read), "Cache hits": percent(100 * counter("m3_cache_hit_rate")),
    "Requests so far": number(counter("m3_requests_total")), "Preemptions": number(counter("m3_preemptions_total")),
  };
  add(reading);
}

function add(reading) {
  readings.push(reading);
  while (readings[0].time < reading.time - SHOWN) readings.shift();
  redraw();
}

/** Draws the last reading where it is seen; also for when the view is opened. */
export function redraw() {
  if (readings.length && !byId("view-status").hidden) show(readings.at(-1));
}

function show({ point, time, facts }) {
  tiles({
    "Running": number(point.running), "Waiting": number(point.waiting), "Tokens/s written": number(point.written),
    "Cache in use": percent(point.used), ...facts,
  });
  for (const [plot, pick] of PLOTS) plot.update(readings.map((each) => ({ time: each.time, values: pick(each.point) })), time);
}

function tiles(facts) {
  const place = byId("tiles");
  for (const [name, text] of Object.entries(facts)) {
    let tile = place.querySelector(`[data-name="${name}"]`);
    if (!tile) {
      tile = make("div", { "data-name": name }, make("dt", {}, name), make("dd"));
      place.append(tile);
    }
    tile.lastChild.textContent = text;
  }
}

/** The tables of what does not change. */
export async function facts() {
  const info = await (await ask("server_info")).json();
  const rows = {
    "Model": info.served_model_name, "Version": info.version, "Backend": info.backend, "Device": info.device,
    "Ranks": `tensor parallel ${info.tp_size}, expert parallel ${info.ep_size}`, "Weights": info.quantization === "none" ? "as in the checkpoint" : info.quantization,
    "Arithmetic": `${info.dtype}, pages ${info.kv_cache_dtype}`, "Context": `${info.context_length} tokens`,
    "Cache": `${info.max_total_num_tokens} tokens in pages of ${info.page_size}`,
    "Step": `at most ${info.chunked_prefill_size} tokens, ${info.max_running_requests} requests`,
    "Prefix cache": info.disable_radix_cache ? "off" : "on",
  };
  table("server-facts", Object.entries(rows).filter(([, text]) => text));
  const paths = info.backend_paths ?? [];
  byId("paths-note").textContent = paths.length ? "" : "This backend names none.";
  table("paths", paths.map((line) => {
    const at = line.indexOf(": ");
    return at < 0 ? [line, ""] : [line.slice(0, at), line.slice(at + 2)];
  }));
}

function table(id, rows) {
  byId(id).tBodies[0].replaceChildren(...rows.map(([name, text]) =>
    make("tr", {}, make("th", { scope: "row" }, name), make("td", {}, String(text)))));
}
