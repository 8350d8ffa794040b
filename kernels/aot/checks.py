"""Holds a compiled instance against what its row promises. No GPU: resources and machine instructions only."""

SHARED_LIMIT = 227 * 1024  # Bytes a block may use on Hopper.
REGISTER_FILE = 65536
INSTRUCTIONS = {
    "wgmma": ["HGMMA", "QGMMA", "IGMMA"],
    "mma": ["HMMA", "QMMA", "IMMA"],
    "tma": ["UTMALDG", "UTMASTG", "UBLKCP"],
    "cp_async": ["LDGSTS"],
    "ldmatrix": ["LDSM"],
}


def breaches(row, facts):
    """One sentence for each promise that is not kept."""
    found = []
    shared = facts["shared"] + facts["static_shared"]
    if shared > SHARED_LIMIT:
        found.append(f"uses {shared} bytes of shared memory; a block may use {SHARED_LIMIT}")
    if facts["registers"] * facts["threads"] > REGISTER_FILE:
        found.append(f"{facts['threads']} threads of {facts['registers']} registers; a processor has {REGISTER_FILE}")
    promises = row.promises
    for promise, fact in (("max_shared", shared), ("max_registers", facts["registers"])):
        if promise in promises and fact > promises[promise]:
            found.append(f"{promise} is {promises[promise]}, but it needs {fact}")
    spilled = facts["stack"] + facts["local"]
    if "spills" in promises and spilled > promises["spills"]:
        found.append(f"spills {spilled} bytes a thread; the row promises {promises['spills']}")
    for wanted in promises.get("expect", []):
        absent = wanted.startswith("!")
        name = wanted.lstrip("!")
        count = sum(facts["opcodes"].get(opcode, 0) for opcode in INSTRUCTIONS.get(name, [name]))
        if absent and count:
            found.append(f"has {count} {name} instructions; the row forbids them")
        if not absent and not count:
            found.append(f"has no {name} instruction ({' or '.join(INSTRUCTIONS.get(name, [name]))})")
    return found
