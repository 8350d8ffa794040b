// Images that go with the next message: chosen, pasted or dropped, kept as data URIs, which the server decodes itself.

import { announce, byId, make } from "./dom.js";

const TYPES = ["image/png", "image/jpeg", "image/webp", "image/gif"];
/** Bytes of one file; the server has limits of its own and says so. */
const MOST_BYTES = 20 * 1024 * 1024;
const list = [];

/** Connects button, paste and drop; `say` shows a hint. */
export function connect(say) {
  byId("attach").addEventListener("click", () => byId("files").click());
  byId("files").addEventListener("change", (event) => {
    add([...event.target.files], say);
    event.target.value = "";
  });
  byId("message").addEventListener("paste", (event) => {
    const files = [...(event.clipboardData?.files ?? [])];
    if (files.length) {
      event.preventDefault();
      add(files, say);
    }
  });
  connectDrop(say);
}

function connectDrop(say) {
  const [view, veil] = [byId("view-chat"), byId("drop")];
  const hasFiles = (event) => [...(event.dataTransfer?.types ?? [])].includes("Files");
  view.addEventListener("dragover", (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    veil.hidden = false;
  });
  view.addEventListener("dragleave", (event) => {
    if (!view.contains(event.relatedTarget)) veil.hidden = true;
  });
  view.addEventListener("drop", (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    veil.hidden = true;
    add([...event.dataTransfer.files], say);
  });
}

/** Takes what waits; the list is empty afterwards. */
export function take() {
  const taken = list.splice(0);
  show();
  return taken;
}

/** How many wait. */
export const count = () => list.length;

async function add(files, say) {
  for (const file of files) {
    if (!TYPES.includes(file.type)) say(`${file.name} is no PNG, JPEG, WebP or GIF image`);
    else if (file.size > MOST_BYTES) say(`${file.name} has ${file.size} bytes; at most ${MOST_BYTES} are sent`);
    else {
      list.push({ name: file.name || "image", url: await dataUri(file) });
      announce(`${file.name || "image"} attached`);
    }
  }
  show();
  byId("message").focus();
}

const dataUri = (file) => new Promise((resolve, reject) => {
  const reader = new FileReader();
  reader.onload = () => resolve(reader.result);
  reader.onerror = () => reject(reader.error);
  reader.readAsDataURL(file);
});

function show() {
  const place = byId("attachments");
  place.hidden = !list.length;
  place.replaceChildren(...list.map((image) => make("li", {},
    make("img", { src: image.url, alt: "" }),
    make("span", {}, image.name),
    make("button", { type: "button", class: "small quiet", "aria-label": `Remove ${image.name}`, onclick: () => {
      list.splice(list.indexOf(image), 1);
      show();
      byId("message").focus();
    } }, "Remove"))));
}
