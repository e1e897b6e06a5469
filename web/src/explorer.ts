// A fabric beside a panel. The panel describes the selection, and the fabric highlights it.

import { FabricCanvas, legend } from "./fabric-canvas";
import { append, h, rate, replace, share, tell } from "./dom";
import { linkName, Names, type Fabric, type Frame, type LinkState, type Selection, type Way } from "./model";

export interface Told {
  title: string;
  content: Node[];
  ways?: Way[];
}

/** Details of links and flows from a source of data. */
export interface Details {
  overview(): Promise<Told>;
  link(link: number): Promise<Node[]>;
  flow(flow: string): Promise<Told>;
}

export type Shown = { kind: "overview" } | Selection | { kind: "flow"; flow: string };

const MOST_FOUND = 12;

export class Explorer {
  readonly element: HTMLElement;
  readonly canvas: FabricCanvas;
  readonly names: Names;
  /** Called when something else is shown. */
  onshown: (shown: Shown) => void = () => {};
  private readonly body = h("div", { class: "told" });
  private readonly heading = h("h2", { tabindex: -1 });
  private readonly back = h("button", { type: "button", class: "back", onclick: () => this.goBack() }, "← Back");
  private shown: Shown = { kind: "overview" };
  private before: Shown[] = [];
  private frame: Frame | null = null;
  private states: (link: number) => LinkState = () => "up";
  private turn = 0;

  constructor(readonly fabric: Fabric, private readonly details: Details, live: boolean) {
    this.canvas = new FabricCanvas(fabric, `Fabric ${fabric.spec}`);
    this.names = new Names(fabric);
    this.canvas.onselect = (selection) => void this.show(selection ?? { kind: "overview" }, false);
    const found = h("ul", { class: "found", "aria-label": "Found" });
    const search = h("input", {
      type: "search", placeholder: "Find a node, or a link: e0_0 a0_1", "aria-label": "Find a node or a link",
      oninput: () => this.find(search.value, found),
      onkeydown: (event: KeyboardEvent) => event.key === "Enter" && found.querySelector("button")?.click(),
    });
    this.element = h(
      "section",
      { class: "explorer", "aria-label": "Fabric" },
      h("div", { class: "picture" }, this.canvas.element, h("div", { class: "below" }, legend(live), this.canvas.zoomButtons)),
      h("aside", { class: "panel", "aria-label": "Details" }, h("div", { class: "find" }, search, found), this.back, this.heading, this.body),
    );
    this.element.addEventListener("keydown", (event) => {
      if (event.key === "Escape") void this.show({ kind: "overview" }, false);
    });
    void this.render(false);
  }

  setFrame(frame: Frame | null, states: (link: number) => LinkState): void {
    this.states = states;
    if (frame) this.frame = frame;
    this.canvas.setStates(states);
    this.canvas.setFrame(this.frame);
  }

  /** Updates the panel, because its content changes with time. */
  refresh(): void {
    const active = document.activeElement;
    const inside = active !== null && active !== this.body && this.body.contains(active);
    // A user who reads a list with the keyboard must not lose the position.
    if (inside && active.closest("ul, ol")) return;
    const key = inside ? active.getAttribute("data-key") : null;
    void this.render(false).then(() => key && this.body.querySelector<HTMLElement>(`[data-key="${key}"]`)?.focus());
  }

  async show(shown: Shown, focus = true): Promise<void> {
    this.before = shown.kind === "overview" ? [] : [...this.before.filter((one) => !same(one, shown)), this.shown];
    this.shown = shown;
    this.onshown(shown);
    await this.render(focus);
    tell(this.heading.textContent ?? "");
  }

  showFlow(flow: string): void {
    void this.show({ kind: "flow", flow });
  }

  /** Creates a button that selects a link and shows its utilisation. */
  linkButton(link: number): HTMLElement {
    const state = this.states(link);
    const bar = h("i", { class: "bar", "aria-hidden": "true" });
    bar.style.width = `${Math.min(100, (this.value(link) ?? 0) / 10)}%`;
    const value = state === "up" ? share(this.value(link)) : state;
    return h(
      "li", {},
      h("button", { type: "button", class: "link", onclick: () => void this.show({ kind: "link", index: link }) },
        h("span", {}, linkName(this.fabric, link)), h("span", { class: "number" }, value), bar),
    );
  }

  /** Returns a list of the cables that are down. */
  down(most: number): HTMLElement[] {
    const links = this.fabric.links.source.map((_, link) => link);
    const down = links.filter((link) => this.states(link) === "down" && (link % 2 === 0 || this.states(link - 1) !== "down"));
    if (down.length === 0) return [];
    const rest = down.length > most ? [h("p", { class: "hint" }, `and ${down.length - most} more`)] : [];
    return [h("h3", {}, "Down"), h("ul", { class: "links" }, down.slice(0, most).map((link) => this.linkButton(link))), ...rest];
  }

  /** Returns a list of the links with the highest utilisation. */
  busiest(most: number): HTMLElement {
    const links = this.fabric.links.source.map((_, link) => link);
    const weight = (link: number) => {
      const value = this.value(link) ?? 0;
      return this.states(link) === "down" || value > 1000 ? -1 : value;
    };
    const shown = links.filter((link) => weight(link) > 0).sort((a, b) => weight(b) - weight(a) || a - b).slice(0, most);
    if (shown.length === 0) return h("p", { class: "hint" }, "No link carries anything.");
    return h("ul", { class: "links" }, shown.map((link) => this.linkButton(link)));
  }

  value(link: number): number | undefined {
    return this.frame?.[link] ?? (this.frame ? 0 : undefined);
  }

  private goBack(): void {
    this.shown = this.before.pop() ?? { kind: "overview" };
    this.onshown(this.shown);
    void this.render(true);
  }

  private async render(focus: boolean): Promise<void> {
    const turn = ++this.turn;
    const shown = this.shown;
    let told: Told;
    try {
      told = await this.tellOf(shown);
    } catch (problem) {
      told = { title: "No answer", content: [h("p", { class: "problem" }, problem instanceof Error ? problem.message : String(problem))] };
    }
    if (turn !== this.turn) return;
    this.back.hidden = shown.kind === "overview";
    this.heading.textContent = told.title;
    const scrolled = this.body.parentElement?.scrollTop ?? 0;
    replace(this.body, told.content);
    if (!focus && this.body.parentElement) this.body.parentElement.scrollTop = scrolled;
    this.canvas.select(shown.kind === "node" || shown.kind === "link" ? shown : null, told.ways ?? []);
    if (focus) this.heading.focus();
  }

  private async tellOf(shown: Shown): Promise<Told> {
    if (shown.kind === "overview") return this.details.overview();
    if (shown.kind === "flow") return this.details.flow(shown.flow);
    if (shown.kind === "node") return this.tellNode(shown.index);
    const state = this.states(shown.index);
    const value = this.value(shown.index);
    const facts = h(
      "p", { class: "lead" },
      h("strong", {}, state === "up" ? share(value) : state), ` of ${rate(this.fabric.links.rate_bps[shown.index])}`,
    );
    return { title: linkName(this.fabric, shown.index), content: [facts, ...(await this.details.link(shown.index))] };
  }

  private tellNode(index: number): Told {
    const node = this.fabric.nodes[index]!;
    const { source, target } = this.fabric.links;
    const links = source.map((_, link) => link);
    const list = (which: number[]) => h("ul", { class: "links" }, which.map((link) => this.linkButton(link)));
    return {
      title: node.name,
      content: [
        h("p", { class: "lead" }, node.tier === "tor" ? "ToR" : node.tier, node.pod === null ? "" : ` of pod ${node.pod}`),
        h("h3", {}, "Links from it"), list(links.filter((link) => source[link] === index)),
        h("h3", {}, "Links to it"), list(links.filter((link) => target[link] === index)),
      ],
    };
  }

  private find(word: string, list: HTMLElement): void {
    const found = this.names.find(word, MOST_FOUND);
    const choose = (selection: Selection) => {
      list.replaceChildren();
      void this.show(selection);
    };
    list.replaceChildren();
    append(list, found.map((one) =>
      h("li", {}, h("button", { type: "button", onclick: () => choose(one) },
        one.kind === "link" ? linkName(this.fabric, one.index) : this.fabric.nodes[one.index]!.name))));
    if (word.trim() && found.length === 0) append(list, [h("li", { class: "hint" }, "Nothing has this name.")]);
  }
}

function same(a: Shown, b: Shown): boolean {
  return JSON.stringify(a) === JSON.stringify(b);
}
