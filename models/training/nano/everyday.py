"""A dozen everyday tools asked for in plain words, for a model that people will try. Parameter names vary, the meaning does not."""

import random
from collections.abc import Callable
from typing import Any

from .words import CITIES, NAMES, NOUNS, code

Everyday = tuple[str, str, dict[str, Any], dict[str, Any], str]


def string(description: str = "") -> dict[str, Any]:
    return {"type": "string", "description": description} if description else {"type": "string"}


def weather(rng: random.Random) -> Everyday:
    city, key = rng.choice(CITIES), rng.choice(["location", "city", "place"])
    schema: dict[str, Any] = {key: string(rng.choice(["", "City name", "The city"]))}
    values: dict[str, Any] = {key: city}
    ask = rng.choice([f"What is the weather in {city}?", f"What's the weather like in {city}?", f"How is the weather in {city}?", f"Weather in {city}?",
                      f"Is it raining in {city}?", f"What's the weather in {city}?", f"{city} 的天气怎么样?", f"How warm is it in {city}?"])
    if rng.random() < 0.4:
        schema["unit"] = {"type": "string", "enum": ["celsius", "fahrenheit"]}
        if rng.random() < 0.5:
            values["unit"] = rng.choice(["celsius", "fahrenheit"])
            ask += f" In {values['unit']}."
    return rng.choice(["get_weather", "get_current_weather", "weather"]), "Get the current weather.", schema, values, ask


def clock(rng: random.Random) -> Everyday:
    city, key = rng.choice(CITIES), rng.choice(["location", "city", "timezone"])
    ask = rng.choice([f"What time is it in {city}?", f"Tell me the time in {city}.", f"Time in {city}?"])
    return rng.choice(["get_time", "get_current_time"]), "Get the current time.", {key: string()}, {key: city}, ask


def web(rng: random.Random) -> Everyday:
    what = f"{rng.choice(NOUNS)} {rng.choice(NOUNS)}"
    ask = rng.choice([f"Search the web for {what}.", f"Look up {what}.", f"Search for {what}", f"Find pages about {what}."])
    return rng.choice(["search_web", "web_search", "search"]), "Search the web.", {"query": string()}, {"query": what}, ask


def calculator(rng: random.Random) -> Everyday:
    left, right, sign = rng.randrange(1, 999), rng.randrange(1, 999), rng.choice("+-*/")
    expression = f"{left} {sign} {right}"
    ask = rng.choice([f"Use the calculator for {expression}.", f"Calculate {expression} with the tool.", f"Compute {expression} with the calculator."])
    return rng.choice(["calculator", "calculate"]), "Evaluate an expression.", {"expression": string()}, {"expression": expression}, ask


def message(rng: random.Random) -> Everyday:
    name, text = rng.choice(NAMES), f"{rng.choice(['bring', 'buy', 'find', 'keep'])} the {rng.choice(NOUNS)}"
    ask = rng.choice([f"Send a message to {name}: {text}", f"Tell {name} to {text}", f"Message {name}: {text}"])
    return rng.choice(["send_message", "send_email"]), "Send a message.", {"to": string(), "text": string()}, {"to": name, "text": text}, ask


def timer(rng: random.Random) -> Everyday:
    minutes = rng.randrange(1, 90)
    ask = rng.choice([f"Set a timer for {minutes} minutes.", f"Timer, {minutes} minutes please.", f"Wake me in {minutes} minutes."])
    return "set_timer", "Set a timer.", {"minutes": {"type": "integer"}}, {"minutes": minutes}, ask


def flight(rng: random.Random) -> Everyday:
    start, end = rng.sample(CITIES, 2)
    ask = rng.choice([f"Book a flight from {start} to {end}.", f"I want to fly from {start} to {end}.", f"Find a flight from {start} to {end}."])
    keys = rng.choice([("origin", "destination"), ("from", "to")])
    return rng.choice(["book_flight", "search_flights"]), "Book a flight.", {key: string() for key in keys}, dict(zip(keys, (start, end), strict=True)), ask


def stock(rng: random.Random) -> Everyday:
    symbol = code(rng).split("-")[0].rstrip("0123456789") or "AB"
    ask = rng.choice([f"What is the stock price of {symbol}?", f"How is {symbol} trading?", f"Price of {symbol}?"])
    return "get_stock_price", "Get the price of a stock.", {"symbol": string()}, {"symbol": symbol}, ask


def light(rng: random.Random) -> Everyday:
    room, on = rng.choice(["kitchen", "bedroom", "garden", "hall", "office", "bathroom"]), rng.random() < 0.5
    ask = rng.choice([f"Turn {'on' if on else 'off'} the light in the {room}.", f"{room.capitalize()} light {'on' if on else 'off'}, please."])
    return "set_light", "Switch a light.", {"room": string(), "on": {"type": "boolean"}}, {"room": room, "on": on}, ask


def song(rng: random.Random) -> Everyday:
    title = f"{rng.choice(NOUNS)} {rng.choice(NOUNS)}"
    return "play_song", "Play a song.", {"title": string()}, {"title": title}, rng.choice([f"Play {title}.", f"Play the song {title}."])


MAKERS: list[Callable[[random.Random], Everyday]] = [weather, weather, clock, web, calculator, message, timer, flight, stock, light, song]


def everyday(rng: random.Random) -> tuple[dict[str, Any], dict[str, Any], str]:
    """A function, the arguments and the user's words."""
    name, description, properties, values, ask = rng.choice(MAKERS)(rng)
    required = [key for key in properties if key != "unit"]
    return {"name": name, "description": description, "parameters": {"type": "object", "properties": properties, "required": required}}, values, ask
