// Short functions that create elements, and numbers in a readable form.

type Child = Node | string | number | null | undefined | false | Child[];
type Attributes = Record<string, unknown>;

/** Creates an element. Attributes that begin with `on` are event handlers; those that are false or null are omitted. */
export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === false || value === null || value === undefined) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value as EventListener);
    else if (value === true) element.setAttribute(name, "");
    else element.setAttribute(name, String(value));
  }
  append(element, children);
  return element;
}

export function append(element: Element, children: Child[]): void {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    if (Array.isArray(child)) append(element, child);
    else element.append(child instanceof Node ? child : String(child));
  }
}

export function replace(element: Element, ...children: Child[]): void {
  element.replaceChildren();
  append(element, children);
}

export function byId(id: string): HTMLElement {
  const found = document.getElementById(id);
  if (!found) throw new Error(`the page has no #${id}`);
  return found;
}

/** Announces an event to users of screen readers. */
export function tell(text: string): void {
  byId("told").textContent = text;
}

/** Notes that the fabric is shown, as a mark of the browser's clock, the first time. */
export function markDrawn(): void {
  if (!performance.getEntriesByName("fabric drawn").length) performance.mark("fabric drawn");
}

/** Size of the text of the page, and of that in pictures, in pixels. */
export const rootSize = (): number => parseFloat(getComputedStyle(document.documentElement).fontSize);
export const textSize = (): number => rootSize() * 0.78;

const scaled = (value: number, units: [number, string][]): string => {
  const [size, unit] = units.find(([size]) => Math.abs(value) >= size) ?? units[units.length - 1]!;
  const number = value / size;
  return `${number >= 100 ? number.toFixed(0) : number >= 10 ? number.toFixed(1) : number.toFixed(2)} ${unit}`;
};

/** Returns a function that formats a number at an axis, without trailing zeros. */
export const short = (text: (value: number) => string) => (value: number): string =>
  value === 0 ? "0" : text(value).replace(/(\.\d*?)0+(?= )/, "$1").replace(/\.(?= )/, "");

export const rate = (bps: number | null | undefined): string =>
  bps === null || bps === undefined ? "–" : scaled(bps, [[1e9, "Gbit/s"], [1e6, "Mbit/s"], [1e3, "kbit/s"], [1, "bit/s"]]);

export const bytes = (count: number | null | undefined): string =>
  count === null || count === undefined ? "–" : scaled(count, [[1e9, "GB"], [1e6, "MB"], [1e3, "kB"], [1, "B"]]);

export const seconds = (value: number | null | undefined): string =>
  value === null || value === undefined
    ? "–"
    : value === 0 ? "0 s" : scaled(value, [[1, "s"], [1e-3, "ms"], [1e-6, "µs"]]);

export const share = (perMille: number | undefined): string =>
  perMille === undefined || perMille === UNKNOWN ? "–" : `${(perMille / 10).toFixed(perMille < 100 ? 1 : 0)} %`;

export const count = (value: number | null | undefined): string =>
  value === null || value === undefined ? "–" : value.toLocaleString("en");

/** Value of an unknown utilisation. */
export const UNKNOWN = 65535;

/** Creates a list of names and values. */
export function facts(rows: [string, Child][]): HTMLElement {
  return h("dl", { class: "facts" }, rows.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
}
