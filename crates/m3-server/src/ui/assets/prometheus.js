// The text of /metrics as numbers, and quantiles of what a histogram has gained between two readings.

/** Samples by name; each is `{labels, value}`. Lines that are no sample are skipped. */
export function parse(text) {
  const samples = new Map();
  for (const line of text.split("\n")) {
    const found = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)/.exec(line);
    if (!found) continue;
    const labels = {};
    for (const [, name, value] of (found[2] ?? "").matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)) labels[name] = value;
    const value = found[3] === "+Inf" ? Infinity : Number(found[3]);
    if (!samples.has(found[1])) samples.set(found[1], []);
    samples.get(found[1]).push({ labels, value });
  }
  return samples;
}

/** The first sample of a name whose labels have all of `wanted`; `undefined` when there is none. */
export function value(samples, name, wanted = {}) {
  const matches = ({ labels }) => Object.entries(wanted).every(([key, each]) => labels[key] === each);
  return samples.get(name)?.find(matches)?.value;
}

/** Cumulative counts of a histogram by upper bound, ascending. */
export function buckets(samples, name) {
  const all = (samples.get(`${name}_bucket`) ?? []).map(({ labels, value: count }) => ({
    bound: labels.le === "+Inf" ? Infinity : Number(labels.le), count,
  }));
  return all.sort((a, b) => a.bound - b.bound);
}

/** The quantile of what came between two readings, linear within a bucket; `null` when nothing did. */
export function quantile(before, after, share) {
  const gained = after.map(({ bound, count }, at) => ({ bound, count: count - (before[at]?.count ?? 0) }));
  const total = gained.at(-1)?.count ?? 0;
  if (total <= 0) return null;
  const rank = share * total;
  let [low, seen] = [0, 0];
  for (const { bound, count } of gained) {
    if (count >= rank && count > seen) {
      return bound === Infinity ? low : low + (bound - low) * (rank - seen) / (count - seen);
    }
    [low, seen] = [bound, count];
  }
  return low;
}
