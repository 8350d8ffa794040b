"""What a training or evaluation example is, and how M3's message format writes it. Mirrors `chat_template.jinja`; a test compares them."""

import json
from dataclasses import dataclass, field
from typing import Any

NS = "]<]minimax[>["
BEGIN, END = "]~b]", "[e~["
THINK, UNTHINK = "<mm:think>", "</mm:think>"
IMAGE, VIDEO = "]<]image[>[", "]<]video[>["
START_IMAGE, END_IMAGE = "]<]start of image[>[", "]<]end of image[>["
#: Tokens of a 112x112 picture, and of one pair of frames: 8x8 patches merged 2x2.
SLOTS = 16
PROMPT_WEIGHT = 0.1

IDENTITY = "You are m3-nano, a miniature of MiniMax-M3."
ADAPTIVE = f"Decide for yourself whether a reply needs reasoning; without it, begin with {UNTHINK}."
MODES = {"adaptive": ADAPTIVE, "enabled": "Reason before every reply.", "disabled": "Reply without reasoning."}


@dataclass
class Example:
    """A conversation whose assistant turns are to be learned. `pictures` and `videos` hold drawing specifications, in prompt order."""

    kind: str
    messages: list[dict[str, Any]]
    mode: str = "adaptive"
    tools: list[dict[str, Any]] = field(default_factory=list)
    pictures: list[list[list[float]]] = field(default_factory=list)
    videos: list[list[list[list[float]]]] = field(default_factory=list)
    #: Instead of a conversation: token ids and the index from which they are learned.
    raw: list[int] | None = None
    raw_from: int = 0


def value_of(value: Any) -> str:
    """An argument in M3's nested markup."""
    if isinstance(value, dict):
        return "".join(f"{NS}<{key}>{value_of(inner)}{NS}</{key}>" for key, inner in value.items() if inner is not None)
    if isinstance(value, list):
        return "".join(f"{NS}<item>{value_of(inner)}{NS}</item>" for inner in value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)


def calls_text(calls: list[dict[str, Any]]) -> str:
    body = "".join(f'{NS}<invoke name="{call["name"]}">{value_of(call["arguments"])}{NS}</invoke>\n' for call in calls)
    return f"{NS}<tool_call>\n{body}{NS}</tool_call>"


def system_text(mode: str, tools: list[dict[str, Any]], developer: str | None) -> str:
    """The two blocks before the first message."""
    text = f"]~!b[{BEGIN}system\n{IDENTITY}\n\n<thinking_instructions>\n"
    text += f"Private reasoning goes between {THINK} and {UNTHINK}; the answer follows it.\n{MODES[mode]}\n</thinking_instructions>{END}\n"
    text += f"{BEGIN}developer\n{developer or 'You are a helpful assistant.'}"
    if tools:
        lines = "".join(f"<tool>{json.dumps(tool, ensure_ascii=False)}</tool>\n" for tool in tools)
        text += "\n\n# Tools\nThese functions may be called. Each line describes one as JSON.\n\n<tools>\n" + lines
        text += "</tools>\n\nA call is written so, every tag after the mark:\n"
        text += f'{NS}<tool_call>\n{NS}<invoke name="function">{NS}<parameter>value{NS}</parameter>{NS}</invoke>\n{NS}</tool_call>'
    return text + f"{END}\n"


def segments(example: Example) -> list[tuple[str, float]]:
    """Text pieces with the loss weight of their tokens. Pieces end at added tokens, so each may be encoded alone."""
    messages = list(example.messages)
    developer = messages.pop(0)["content"] if messages[0]["role"] == "system" else None
    pieces = [(system_text(example.mode, example.tools, developer), PROMPT_WEIGHT)]
    in_tool = False
    for message in messages:
        role = message["role"]
        if in_tool and role != "tool":
            pieces.append((f"{END}\n", PROMPT_WEIGHT))
            in_tool = False
        if role == "user":
            pieces.append((f"{BEGIN}user\n{message['content']}{END}\n", PROMPT_WEIGHT))
        elif role == "tool":
            pieces.append((("" if in_tool else f"{BEGIN}tool") + f"\n<response>{message['content']}</response>", PROMPT_WEIGHT))
            in_tool = True
        else:
            pieces += assistant(message, example.mode)
    return joined(pieces)


def assistant(message: dict[str, Any], mode: str) -> list[tuple[str, float]]:
    reasoning = message.get("reasoning_content")
    opener = THINK if reasoning else UNTHINK
    given = mode == "disabled" and not reasoning or mode == "enabled" and bool(reasoning)
    answer = (f"{reasoning}{UNTHINK}" if reasoning else "") + (message.get("content") or "")
    if message.get("tool_calls"):
        answer += calls_text(message["tool_calls"])
    head = f"{BEGIN}ai\n"
    if given:
        return [(head + opener, PROMPT_WEIGHT), (f"{answer}{END}", 1.0), ("\n", PROMPT_WEIGHT)]
    return [(head, PROMPT_WEIGHT), (f"{opener}{answer}{END}", 1.0), ("\n", PROMPT_WEIGHT)]


def joined(pieces: list[tuple[str, float]]) -> list[tuple[str, float]]:
    """Neighbours of one weight become one piece: text between two added tokens must be encoded whole."""
    result: list[tuple[str, float]] = []
    for text, weight in pieces:
        if result and result[-1][1] == weight:
            result[-1] = (result[-1][0] + text, weight)
        else:
            result.append((text, weight))
    return result


def expanded(text: str, videos: int, frame_times: list[float] | None = None) -> str:
    """Media placeholders as the server expands them: frames of the image tokens, a time before each pair of a video's frames."""
    text = text.replace(IMAGE, START_IMAGE + IMAGE * SLOTS + END_IMAGE)
    if videos:
        times = frame_times or [0.0, 2.0, 4.0, 6.0]
        clip = "".join(f"]<]{time:.1f} seconds[>[{START_IMAGE}{VIDEO * SLOTS}{END_IMAGE}" for time in times)
        text = text.replace(VIDEO, clip)
    return text
