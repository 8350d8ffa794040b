// A line plot over time as SVG, with its latest values in words beside it. One or two lines; gaps where there is no value.

import { draw, make } from "./dom.js";

const [WIDTH, HEIGHT, LEFT, BOTTOM, TOP] = [420, 140, 46, 18, 8];

/** A figure; `lines` names the series, `format` makes a text of a value. */
export class Plot {
  constructor(title, lines, format, seconds) {
    Object.assign(this, { title, lines, format, seconds });
    this.svg = draw("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img" });
    this.legend = make("span", { class: "legend" });
    this.node = make("figure", {}, make("figcaption", {}, make("span", {}, title), this.legend), this.svg);
  }

  /** `points` are `{time, values}`, times in seconds, ascending. */
  update(points, now) {
    const values = points.flatMap((point) => point.values).filter(Number.isFinite);
    const top = ceiling(Math.max(0, ...values));
    const x = (time) => LEFT + (WIDTH - LEFT - 4) * (1 - (now - time) / this.seconds);
    const y = (value) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / top);
    const label = (text, at, anchor) => draw("text", { ...at, "text-anchor": anchor }, text);
    const parts = [0, 0.5, 1].flatMap((share) => [
      draw("line", { class: "grid", x1: LEFT, x2: WIDTH - 4, y1: y(top * share), y2: y(top * share) }),
      label(this.format(top * share), { x: LEFT - 5, y: y(top * share) + 4 }, "end"),
    ]);
    parts.push(label(`${Math.round(this.seconds / 60)} min ago`, { x: LEFT, y: HEIGHT - 4 }, "start"), label("now", { x: WIDTH - 4, y: HEIGHT - 4 }, "end"));
    this.lines.forEach((_, line) => parts.push(draw("path", { class: `line ${line ? "second" : "first"}`, d: path(points, line, x, y) })));
    this.svg.replaceChildren(...parts);
    this.#words(points.at(-1)?.values ?? [], values);
  }

  #words(last, values) {
    const shown = this.lines.map((name, at) => [name, Number.isFinite(last[at]) ? this.format(last[at]) : "–"]);
    this.legend.replaceChildren(...shown.flatMap(([name, text], at) => [
      make("span", { class: at ? "key second" : "key", "aria-hidden": "true" }), `${name} ${text}`,
    ]));
    const most = values.length ? `; highest in the last minutes ${this.format(Math.max(...values))}` : "";
    this.svg.setAttribute("aria-label", `${this.title}: ${shown.map((pair) => pair.join(" ")).join(", ")}${most}`);
  }
}

function path(points, line, x, y) {
  let [text, pen] = ["", "M"];
  for (const { time, values } of points) {
    if (!Number.isFinite(values[line])) {
      pen = "M";
      continue;
    }
    text += `${pen}${x(time).toFixed(1)} ${y(values[line]).toFixed(1)}`;
    pen = "L";
  }
  return text;
}

/** The next of 1, 2, 5 times a power of ten. */
function ceiling(value) {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= value * 0.999);
}
