// Making elements. The one place that sets content, and it sets text: nothing on this page is ever parsed as HTML.

/** The element with this id, which index.html has. */
export const byId = (id) => document.getElementById(id);

/**
 * An element. `properties` are set as properties, except `class`, `data-…`, `aria-…` and `role`, which are attributes,
 * and `on…` functions, which listen. Children are nodes or text.
 */
export function make(name, properties = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (value === undefined || value === null) continue;
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (key === "class" || key === "role" || key.startsWith("aria-") || key.startsWith("data-")) {
      made.setAttribute(key, value);
    } else made[key] = value;
  }
  made.append(...children);
  return made;
}

/** An SVG element with attributes. */
export function draw(name, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

/** Says a sentence to screen readers; `urgent` interrupts. */
export function announce(sentence, urgent = false) {
  const place = byId(urgent ? "alert" : "announce");
  // The same sentence twice is only read again when the text changes in between.
  place.textContent = "";
  setTimeout(() => { place.textContent = sentence; }, 30);
}

/** Copies text and says so on the button. */
export async function copy(text, button) {
  const before = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    button.textContent = "Not allowed";
  }
  announce(button.textContent);
  setTimeout(() => { button.textContent = before; }, 1500);
}
