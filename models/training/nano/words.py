"""Word lists of the synthetic data. Small on purpose: a word should become one token and be seen very often."""

import hashlib
import random

ADJECTIVES = (
    "amber ancient bold brave bright broken calm clever cold copper cosy crisp dark distant eager early empty fair fancy fast gentle "
    "giant golden grand green happy hidden hollow honest humble icy jolly kind large late little lonely lucky merry mighty misty narrow "
    "noble odd old pale plain proud quick quiet rapid rare red rich rough round royal rusty sandy sharp shiny short silent silver simple "
    "sleepy slow small smart smooth soft solid spare stale steady stone strong sunny sweet swift tall tame tiny tidy vast velvet warm "
    "white wide wild wise wooden yellow young"
).split()
NOUNS = (
    "anchor apple arrow badge bag ball barn basket bell bird blanket boat book bottle box branch bread bridge brush bucket button cabin "
    "cake camel candle canyon carpet castle cat chair cheese circle clock cloud coat coin comet compass cookie corner cup curtain deer "
    "desk dog door dragon drum eagle engine falcon farm feather fence field fire fish flag flower forest fork fox frog garden gate glass "
    "glove goat hammer harbor hat hill horse house island jacket jar kettle key kite kitten ladder lake lamp lantern leaf lemon letter "
    "lion map market meadow mirror moon mountain needle nest ocean orange otter owl paint panda paper parrot pearl pencil piano pillow "
    "pine planet plate pocket pond potato rabbit radio rain river road robot rocket roof rope rose sail salt scarf school ship shoe snow "
    "spider spoon spring squirrel stair star station stone storm street sugar table tea temple tiger tower train tree tunnel turtle "
    "valley village violin wagon wall watch water whale wheel window wolf"
).split()
NAMES = (
    "Ada Alan Alice Ana Ben Carla Chen Clara Dan David Elena Emil Emma Eric Eva Felix Grace Hana Hugo Ida Iris Ivan Jack Jane Jon Julia "
    "Karl Kim Lea Leo Lin Lucas Lucy Mai Maria Mark Max Mia Nina Noah Nora Olga Oscar Otto Paul Peter Rosa Sam Sara Sofia Tara Tim Tom "
    "Vera Victor Wei Yuki Zoe"
).split()
CITIES = (
    "Athens Bangkok Beijing Berlin Boston Cairo Chicago Delhi Denver Dublin Geneva Hanoi Helsinki Istanbul Jakarta Kyoto Lagos Lima "
    "Lisbon London Madrid Miami Milan Moscow Mumbai Munich Nairobi Oslo Paris Prague Quito Riga Rome Seoul Shanghai Sydney Tokyo Toronto "
    "Vienna Warsaw Zurich"
).split()
VERBS = (
    "add book build cancel check clean close copy count create delete draw find get list load lock make mark measure move open order pack "
    "paint play print read rename reserve reset save search sell send set show sort start stop store test track update watch write"
).split()
THINGS = (
    "account address alarm album archive article backup bill budget calendar camera card contact course device document door event file "
    "flight folder game group heater hotel image invoice job journey lamp letter lesson light list lock meeting menu message model movie "
    "note order package parcel payment photo picture plan player poll price project queue recipe record report request review ride room "
    "route sample schedule score sensor server shelf shop song stock story student table task team ticket timer tour train user vehicle "
    "video visit weather window"
).split()
FILLER_VERBS = "carried cleaned found followed kept left liked lost made met missed opened painted passed saw sold thanked visited wanted watched".split()
FILLER_PLACES = (
    "after dinner|at night|before noon|behind the hill|by the sea|every week|for a while|in spring|in the garden|in the morning|in town|"
    "last summer|near the lake|next to the road|on Monday|on the bridge|under the roof|without a word"
).split("|")
LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ"


def held_out(text: str) -> bool:
    """One name in five is kept out of training, whatever the seed."""
    return hashlib.sha256(text.encode()).digest()[0] % 5 == 0


def code(rng: random.Random) -> str:
    """A short code such as `KX-402`."""
    letters = "".join(rng.choice(LETTERS) for _ in range(rng.randint(1, 3)))
    return letters + rng.choice(["", "-"]) + "".join(rng.choice("0123456789") for _ in range(rng.randint(1, 4)))


def filler_sentence(rng: random.Random) -> str:
    """One line of haystack text, newline included. It never holds the word `code`, and sometimes holds a number."""
    kind = rng.random()
    if kind < 0.4:
        return f"{rng.choice(NAMES)} {rng.choice(FILLER_VERBS)} the {rng.choice(ADJECTIVES)} {rng.choice(NOUNS)} {rng.choice(FILLER_PLACES)}.\n"
    if kind < 0.7:
        return f"The {rng.choice(NOUNS)} of {rng.choice(NAMES)} is {rng.choice(ADJECTIVES)} and {rng.choice(ADJECTIVES)}.\n"
    if kind < 0.85:
        return f"There were {rng.randint(2, 999)} {rng.choice(ADJECTIVES)} things in {rng.choice(CITIES)} {rng.choice(FILLER_PLACES)}.\n"
    return f"{rng.choice(NAMES)} and {rng.choice(NAMES)} went from {rng.choice(CITIES)} to {rng.choice(CITIES)} {rng.choice(FILLER_PLACES)}.\n"
