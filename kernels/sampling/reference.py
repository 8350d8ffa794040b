"""The sampling specification (crates/m3-model/src/sampling.rs) in numpy, for the tests of the device's sampler."""

import numpy as np

NONE = 0xFFFFFFFF
FAULT_NAN, FAULT_EMPTY_MASK = 1, 2
IN_PROMPT = 0x80000000
GREEDY_TEMPERATURE = np.float32(1e-5)

POSITION = np.dtype([(name, "<u4") for name in (
    "row", "target", "mask", "output_index", "draft", "num_drafts", "slot", "flags")])
ROW = np.dtype(
    [("seed_low", "<u4"), ("seed_high", "<u4")]
    + [(name, "<f4") for name in ("temperature", "top_p", "min_p")] + [("top_k", "<u4")]
    + [(name, "<f4") for name in ("repetition", "presence", "frequency")]
    + [(name, "<u4") for name in ("num_logprobs", "bias", "num_biases", "counts")] + [("reserved", "<u4", 3)]
)
BIAS = np.dtype([("token", "<u4"), ("value", "<f4")])


def philox(counter, key):
    counter, key = list(counter), list(key)
    for _ in range(10):
        left, right = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = [
            (right >> 32) ^ counter[1] ^ key[0], right & NONE, (left >> 32) ^ counter[3] ^ key[1], left & NONE,
        ]
        key = [(key[0] + 0x9E3779B9) & NONE, (key[1] + 0xBB67AE85) & NONE]
    return counter


def uniform(low, high, output_index):
    return (philox([output_index, 0, 0, 0], [low, high])[0] + 0.5) / 4294967296.0


def has_fault(logits):
    return bool(np.isnan(logits).any() or (logits == np.inf).any() or (logits == -np.inf).all())


def adjust(logits, row, counts, biases, drafts):
    logits = logits.copy()
    for bias in biases[row["bias"] : row["bias"] + row["num_biases"]]:
        logits[bias["token"]] += bias["value"]
    if row["counts"] == NONE:
        return logits
    mine = counts[row["counts"]].copy()
    output = (mine & 0x7FFFFFFF).astype(np.int64)
    np.add.at(output, np.asarray(drafts, dtype=np.int64), 1)
    seen = ((mine & IN_PROMPT) != 0) | (output > 0)
    repetition = row["repetition"]
    scaled = np.where(logits > 0, logits / repetition, logits * repetition)
    logits = np.where(seen, scaled, logits).astype(np.float32)
    lowered = (logits - row["frequency"] * output.astype(np.float32)).astype(np.float32) - row["presence"]
    return np.where(output > 0, lowered, logits).astype(np.float32)


def draw(logits, row, output_index):
    """(token, whether float error might choose another one), or None when everything is minus infinity."""
    logits = logits + np.float32(0)
    order = np.lexsort((np.arange(len(logits)), -logits))
    highest = logits[order[0]]
    if highest == -np.inf:
        return None
    if row["temperature"] < GREEDY_TEMPERATURE or row["top_k"] == 1 or row["top_p"] == 0:
        return int(order[0]), False
    weight = np.exp((logits - highest) / row["temperature"], dtype=np.float32)
    order = order[weight[order] > 0]
    if row["top_k"] > 0:
        order = order[: row["top_k"]]
    near = False
    if row["min_p"] > 0:
        near |= bool((np.abs(weight[order] - row["min_p"]) < 1e-6).any())
        order = order[weight[order] >= row["min_p"]]
    if row["top_p"] < 1:
        sums = np.cumsum(weight[order].astype(np.float64))
        wanted = float(row["top_p"]) * sums[-1]
        last = int(np.argmax(sums >= wanted))
        near |= abs(sums[last] - wanted) < 1e-6 * sums[-1] or (last > 0 and abs(sums[last - 1] - wanted) < 1e-6 * sums[-1])
        order = order[: last + 1]
    ids = np.sort(order)
    sums = np.cumsum(weight[ids].astype(np.float64))
    wanted = uniform(int(row["seed_low"]), int(row["seed_high"]), output_index) * sums[-1]
    place = min(int(np.argmax(sums > wanted)), len(ids) - 1)
    near |= bool((np.abs(sums - wanted) < 1e-6 * sums[-1]).any())
    return int(ids[place]), near


def choose(logits, position, row, counts, biases, masks, drafts):
    """(token or NONE, fault, near)."""
    if has_fault(logits):
        return NONE, FAULT_NAN, False
    if position["target"] != NONE:
        return int(position["target"]), 0, False
    taken = drafts[position["draft"] : position["draft"] + position["num_drafts"]]
    adjusted = adjust(logits, row, counts, biases, taken)
    if np.isnan(adjusted).any() or (adjusted == np.inf).any():
        return NONE, FAULT_NAN, False
    if position["mask"] != NONE:
        words = masks[position["mask"] :][: (len(logits) + 31) // 32]
        allowed = np.unpackbits(words.view(np.uint8), bitorder="little")[: len(logits)].astype(bool)
        adjusted = np.where(allowed, adjusted, -np.inf).astype(np.float32)
    drawn = draw(adjusted, row, int(position["output_index"]))
    return (NONE, FAULT_EMPTY_MASK, False) if drawn is None else (drawn[0], 0, drawn[1])


def logprobs(logits, token, count):
    """(log-probability, rank, ids, their log-probabilities)."""
    highest = logits.max()
    log_sum = np.float32(float(highest) + np.log(np.exp((logits - highest).astype(np.float64)).sum()))
    order = np.lexsort((np.arange(len(logits)), -(logits + np.float32(0))))
    rank = int(np.flatnonzero(order == token)[0])
    return logits[token] - log_sum, rank, order[:count], logits[order[:count]] - log_sum


def random_case(random, vocab, positions, rows):
    """Arrays of one launch: (logits, positions, rows, counts, biases, masks, drafts), every feature in some row."""
    words = (vocab + 31) // 32
    table = np.zeros(rows, ROW)
    biases, masks, drafts = [], [], []
    for index in range(rows):
        row = table[index]
        row["seed_low"], row["seed_high"] = random.integers(0, 1 << 32, 2)
        row["temperature"] = random.choice([0.0, 0.3, 1.0, 1.7])
        row["top_p"] = random.choice([1.0, 0.95, 0.5, 0.0], p=[0.4, 0.3, 0.2, 0.1])
        row["min_p"] = random.choice([0.0, 0.02], p=[0.7, 0.3])
        row["top_k"] = random.choice([0, 1, 5, 40, vocab + 3], p=[0.5, 0.1, 0.15, 0.15, 0.1])
        row["repetition"], row["presence"], row["frequency"] = 1, 0, 0
        row["num_logprobs"] = random.choice([NONE, 0, 3], p=[0.4, 0.2, 0.4])
        row["counts"] = NONE
        row["bias"] = len(biases)
        if random.random() < 0.4:
            row["repetition"], row["presence"], row["frequency"] = 1.3, 0.4, 0.25
            row["counts"] = index
        if random.random() < 0.4:
            row["num_biases"] = 5
            biases += [(token, value) for token, value in zip(random.integers(0, vocab, 5), random.normal(0, 3, 5))]
            biases[-1] = (biases[-2][0], -np.inf)
    counts = np.zeros((rows, vocab), np.uint32)
    for index in range(rows):
        for token in random.integers(0, vocab, 40):
            counts[index, token] += random.integers(0, 3)
        counts[index, random.integers(0, vocab, 40)] |= np.uint32(IN_PROMPT)
    places = np.zeros(positions, POSITION)
    logits = (random.standard_normal((positions, vocab)) * random.choice([0.01, 1, 4], (positions, 1))).astype(np.float32)
    logits[:, random.integers(0, vocab, vocab // 8)] = np.float32(1.5)  # Ties.
    for index in range(positions):
        position = places[index]
        position["row"], position["slot"] = index % rows, positions - 1 - index
        position["target"], position["mask"] = NONE, NONE
        position["output_index"] = random.integers(0, 5000)
        position["flags"] = 1
        position["draft"] = len(drafts)
        if random.random() < 0.3:
            position["num_drafts"] = 3
            drafts += list(random.integers(0, vocab, 3))
        kind = random.random()
        if kind < 0.15:
            position["target"] = random.integers(0, vocab)
        elif kind < 0.5:
            position["mask"] = len(masks) * words
            masks.append(random.integers(0, 1 << 32, words, dtype=np.uint32) & random.integers(0, 1 << 32, words, dtype=np.uint32))
    faults = random.permutation(positions)[:3]
    logits[faults[0], vocab // 2], logits[faults[1], 3], logits[faults[2]] = np.nan, np.inf, -np.inf
    places[random.integers(0, positions)]["row"] = NONE
    empty = random.integers(0, positions)
    places[empty]["mask"] = len(masks) * words
    masks.append(np.zeros(words, np.uint32))
    return logits, places, table, counts, np.array(biases, BIAS), np.concatenate(masks), np.array(drafts, np.int32)


def check_outputs(case, outputs, before_counts, top_capacity):
    """Holds what the kernels wrote against the specification. Returns the number of positions that were near a limit.

    `outputs`: dict of tokens, faults, logprobs, ranks, top_ids, top_logprobs, last_tokens, counts.
    """
    logits, places, rows, counts, biases, masks, drafts = case
    num_near = 0
    expected_counts = before_counts.copy()
    for index, position in enumerate(places):
        if position["row"] == NONE:
            continue
        row, slot = rows[position["row"]], position["slot"]
        token, fault, near = choose(logits[index], position, row, before_counts, biases, masks, drafts)
        assert outputs["faults"][slot] == fault, f"position {index}: fault {outputs['faults'][slot]}, not {fault}"
        got = int(outputs["tokens"][slot])
        if near and got != token:
            num_near += 1
            token = got
        assert got == token, f"position {index}: token {got}, not {token}; {row} {position}"
        if position["target"] == NONE and not fault and row["counts"] != NONE:
            expected_counts[row["counts"], token] += 1
        if fault or (position["target"] == NONE and row["num_logprobs"] == NONE):
            continue
        count = 0 if row["num_logprobs"] == NONE else min(int(row["num_logprobs"]), top_capacity)
        logprob, rank, ids, alternatives = logprobs(logits[index], token, count)
        assert abs(outputs["logprobs"][slot] - logprob) < 1e-5, f"position {index}: logprob"
        assert outputs["ranks"][slot] == rank, f"position {index}: rank {outputs['ranks'][slot]}, not {rank}"
        assert (outputs["top_ids"][slot, :count] == ids).all(), f"position {index}: alternatives"
        assert (outputs["top_ids"][slot, count:] == NONE).all(), f"position {index}: unused alternatives"
        assert np.allclose(outputs["top_logprobs"][slot, :count], alternatives, atol=1e-5), f"position {index}: log-probabilities"
    assert (outputs["counts"] == expected_counts).all(), "counts"
    return num_near
