// The utilisation of all cables between two tiers, as a table.

import { note } from "./address";
import { scale, stepOf } from "./colours";
import { h, markDrawn, replace, share, UNKNOWN } from "./dom";
import type { Unfolded } from "./fold";
import { tables, type Cable, type Row, type Table } from "./matrix";
import { linkName, type Fabric, type Frame, type LinkState } from "./model";

/** Time between two updates of the table, in ms. */
const EVERY_MS = 100;
/** A table with at most this many columns has wide ones. */
const WIDE = 24;
const WAYS = [["both", "fuller direction"], ["up", "up, from the hosts"], ["down", "down, to the hosts"]] as const;

type Way = (typeof WAYS)[number][0];

interface Cell {
  cables: Cable[];
  button: HTMLButtonElement;
  text: string;
}

export class MatrixView {
  readonly element: HTMLElement;
  private readonly tables: Table[];
  private table: Table;
  private way: Way = "both";
  private cells = new Map<HTMLElement, Cell>();
  private frame: Frame | null = null;
  private states: (link: number) => LinkState = () => "up";
  private due = 0;
  private stale = true;
  private readonly tiers: HTMLSelectElement;
  private readonly ways: HTMLSelectElement;
  private readonly grid = h("table", { class: "matrix" });

  constructor(private readonly fabric: Fabric, private readonly unfolded: Unfolded, private readonly onlink: (link: number) => void) {
    this.tables = tables(fabric, unfolded);
    this.table = this.tables[0] ?? { key: "", title: "no cables", numbered: null, columns: [], rows: [] };
    const select = (label: string, options: readonly (readonly [string, string])[]) =>
      h("select", { "aria-label": label, onchange: () => this.chosen() }, options.map(([value, text]) => h("option", { value }, text)));
    this.tiers = select("Cables", this.tables.map(({ key, title }) => [key, title]));
    this.ways = select("Direction", WAYS);
    this.element = h("section", { class: "matrix-view", "aria-label": "Matrix" },
      h("div", { class: "row" }, this.tiers, this.ways,
        h("p", { class: "hint" }, `Utilisation in per cent. ${unfolded.foldable ? "A pod has the value of its fullest cable; choose it to see its switches. " : ""}Choose a cable to see its flows.`)),
      h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Table of utilisations" }, this.grid));
    this.grid.addEventListener("click", (event) => this.click(event.target as HTMLElement));
    this.grid.addEventListener("keydown", (event) => this.key(event));
    this.grid.addEventListener("mouseover", (event) => this.tip(event.target as HTMLElement));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.rebuild());
  }

  /** Takes tiers and direction from the address. */
  take(shown: URLSearchParams): void {
    const table = this.tables.find(({ key }) => key === shown.get("tiers"));
    const way = WAYS.find(([key]) => key === shown.get("direction"))?.[0];
    if ((table && table !== this.table) || (way && way !== this.way)) this.stale = true;
    [this.table, this.way] = [table ?? this.table, way ?? this.way];
    [this.tiers.value, this.ways.value] = [this.table.key, this.way];
  }

  setFrame(frame: Frame | null, states: (link: number) => LinkState): void {
    this.states = states;
    if (frame) this.frame = frame;
    if (this.due === 0) this.due = window.setTimeout(() => this.render(), this.stale ? 0 : EVERY_MS);
  }

  /** Shows the rows of the pods that are unfolded. */
  rebuild(): void {
    this.stale = true;
    this.setFrame(null, this.states);
  }

  private chosen(): void {
    note({ tiers: this.tiers.value, direction: this.ways.value });
    this.take(new URLSearchParams({ tiers: this.tiers.value, direction: this.ways.value }));
    this.rebuild();
  }

  private render(): void {
    this.due = 0;
    if (!this.element.isConnected) return;
    if (this.stale) this.build();
    for (const cell of this.cells.values()) this.update(cell);
    markDrawn();
  }

  private build(): void {
    this.stale = false;
    const active = (document.activeElement as HTMLElement | null)?.dataset["unit"];
    this.cells = new Map();
    const { title, numbered, columns, rows } = this.table;
    const shown = rows.filter(({ isPod, unit }) => isPod || this.unfolded.has(unit));
    const number = numbered && h("span", { class: "unseen" }, `${numbered} `);
    const head = h("tr", {}, h("td"), columns.map((name) => h("th", { scope: "col" }, number && number.cloneNode(true), name)));
    this.grid.classList.toggle("wide", columns.length <= WIDE);
    replace(this.grid, h("caption", { class: "unseen" }, `Utilisation of the cables: ${title}, in per cent`), h("thead", {}, head), h("tbody", {}, shown.map((row) => this.rowOf(row))));
    this.cells.values().next().value?.button.setAttribute("tabindex", "0");
    if (active) this.grid.querySelector<HTMLElement>(`[data-unit="${active}"]`)?.focus();
  }

  private rowOf({ name, unit, isPod, cells }: Row): HTMLElement {
    const open = this.unfolded.has(unit);
    const head = isPod
      ? h("button", { type: "button", class: "fold", "aria-expanded": String(open), "data-unit": unit, onclick: () => this.unfolded.set(unit!, !open) }, `${open ? "▾" : "▸"} ${name}`)
      : name;
    return h("tr", { class: isPod ? "pod" : false }, h("th", { scope: "row" }, head), cells.map((cables) => {
      if (cables.length === 0) return h("td");
      const button = h("button", { type: "button", tabindex: -1, class: "cell" });
      const cell = h("td", {}, button);
      this.cells.set(button, { cables, button, text: "" });
      if (isPod) button.dataset["pod"] = unit!;
      return cell;
    }));
  }

  /** The link of a cell that is the fullest in the chosen direction, and how many of its cables are down. */
  private fullest({ cables }: Cell): { link: number; value: number; down: number } {
    let [link, value, down] = [cables[0]!.up, UNKNOWN, 0];
    for (const cable of cables) {
      const links = this.way === "both" ? [cable.up, cable.down] : [cable[this.way]];
      const up = links.filter((one) => this.states(one) !== "down");
      if (up.length < links.length) down++;
      for (const one of up) {
        const known = this.frame?.[one] ?? (this.frame ? 0 : UNKNOWN);
        if (known !== UNKNOWN && (value === UNKNOWN || known > value)) [link, value] = [one, known];
      }
    }
    return { link, value, down };
  }

  private update(cell: Cell): void {
    const { value, down } = this.fullest(cell);
    const broken = down > 0 ? (down < cell.cables.length ? `, ${down} of ${cell.cables.length} down` : "down") : "";
    const number = down === cell.cables.length ? "" : value === UNKNOWN ? "–" : String(Math.round(value / 10));
    if (cell.text === number + broken) return;
    cell.text = number + broken;
    const { button } = cell;
    button.classList.toggle("broken", down > 0);
    replace(button, number, broken && [number === "" && h("span", { "aria-hidden": "true" }, "×"), h("span", { class: "unseen" }, broken)]);
    const colour = scale()[stepOf(value)]!;
    button.style.background = number === "" ? "" : colour;
    button.style.color = number === "" ? "" : inkOn(colour);
  }

  private click(target: HTMLElement): void {
    const button = target.closest<HTMLElement>("button.cell");
    const cell = button && this.cells.get(button);
    if (!cell) return;
    const { pod } = button.dataset;
    if (pod && cell.cables.length > 1) this.unfolded.set(pod, true);
    else this.onlink(this.fullest(cell).link);
  }

  /** Arrow keys move from cell to cell. One cell at a time is in the order of the tab key. */
  private key(event: KeyboardEvent): void {
    const steps: Record<string, [number, number]> = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
    const step = steps[event.key];
    const from = (event.target as HTMLElement).closest<HTMLTableCellElement>("td");
    if (!step || !from) return;
    event.preventDefault();
    event.stopPropagation();
    const rows = [...this.grid.rows];
    let [row, column] = [(from.parentElement as HTMLTableRowElement).rowIndex + step[0], from.cellIndex + step[1]];
    for (; rows[row]?.cells[column]; row += step[0], column += step[1]) {
      const next = rows[row]!.cells[column]!.querySelector<HTMLElement>("button.cell");
      if (!next) continue;
      this.grid.querySelector('button.cell[tabindex="0"]')?.setAttribute("tabindex", "-1");
      next.setAttribute("tabindex", "0");
      return next.focus();
    }
  }

  private tip(target: HTMLElement): void {
    const button = target.closest<HTMLElement>("button.cell");
    const cell = button && this.cells.get(button);
    if (!cell) return;
    const { link, value, down } = this.fullest(cell);
    button.title = `${linkName(this.fabric, link)}: ${down === cell.cables.length ? "down" : share(value)}${cell.cables.length > 1 ? `, the fullest of ${cell.cables.length} cables` : ""}`;
  }
}

/** Black or white, whichever can be read better on a colour. */
function inkOn(colour: string): string {
  const channels = [1, 3, 5].map((at) => (parseInt(colour.slice(at, at + 2), 16) / 255) ** 2.2);
  const luminance = 0.2126 * channels[0]! + 0.7152 * channels[1]! + 0.0722 * channels[2]!;
  return luminance > 0.18 ? "#000" : "#fff";
}
