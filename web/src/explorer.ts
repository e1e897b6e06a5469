// A fabric beside a panel. The panel describes the selection, and the fabric highlights it.

import { append, facts, h, rate, replace, share, tell, UNKNOWN } from "./dom";
import { FabricView, foldButtons } from "./fabric-view";
import { between, shortestPaths, unitName, type Unfolded } from "./fold";
import { legend } from "./legend";
import { linkName, Names, type Fabric, type Frame, type LinkState, type Pair, type Target, type Way } from "./model";

export interface Told {
  title: string;
  content: Node[];
  ways?: Way[];
  /** The nodes that the picture has, if not all. */
  only?: ReadonlySet<number>;
}

/** Details of links and flows from a source of data. */
export interface Details {
  overview(): Promise<Told>;
  link(link: number): Promise<Node[]>;
  flow(flow: string): Promise<Told>;
  /** Flows from one node to another. */
  pair(from: string, to: string): Promise<Node[]>;
}

/** Where a fabric comes from. One without a result has rates in place of utilisations, and no flows. */
export type Shows = "result" | "live" | "fabric";

export type Shown = { kind: "overview" } | Target | Pair | { kind: "flow"; flow: string };

const MOST_FOUND = 12;
/** Links that are listed of a bundle, at most. */
const MOST_LISTED = 16;
/** Alternatives of a flow that are compared. */
const MOST_PATHS = 256;

/** Returns the names of two nodes that are far apart: hosts, where there are any. */
function exampleOf({ nodes }: Fabric): string {
  const hosts = nodes.filter(({ tier }) => tier === "host");
  const some = hosts.length > 1 ? hosts : nodes;
  return `${some[0]?.name ?? ""} ${some[some.length - 1]?.name ?? ""}`;
}

export class Explorer {
  readonly element: HTMLElement;
  readonly view: FabricView;
  readonly names: Names;
  /** Called when something else is shown. */
  onshown: (shown: Shown) => void = () => {};
  private readonly body = h("div", { class: "told" });
  private readonly heading = h("h2", { tabindex: -1 });
  private readonly back = h("button", { type: "button", class: "back", onclick: () => this.goBack() }, "← Back");
  private shown: Shown = { kind: "overview" };
  private before: Shown[] = [];
  /** Links of the path that is drawn beside those of the selected flow. */
  private beside: number[] | null = null;
  private frame: Frame | null = null;
  private states: (link: number) => LinkState = () => "up";
  private readonly folds: { render: () => void };
  private turn = 0;

  constructor(readonly fabric: Fabric, private readonly details: Details, private readonly unfolded: Unfolded, private readonly shows: Shows) {
    this.view = new FabricView(fabric, `Fabric ${fabric.spec}`, unfolded);
    this.names = new Names(fabric);
    this.view.onselect = (target) => void this.show(target ?? { kind: "overview" }, false);
    const folds = foldButtons(unfolded);
    this.folds = folds;
    const found = h("ul", { class: "found", "aria-label": "Found" });
    const search = h("input", {
      type: "search", placeholder: `Find a node, or two: ${exampleOf(fabric)}`, "aria-label": "Find a node or a link",
      oninput: () => this.find(search.value, found),
      onkeydown: (event: KeyboardEvent) => event.key === "Enter" && found.querySelector("button")?.click(),
    });
    this.element = h(
      "section",
      { class: "explorer", "aria-label": "Fabric" },
      h("div", { class: "picture" }, this.view.element, h("div", { class: "below" }, legend(shows, unfolded.foldable), folds.element, this.view.zoomButtons)),
      h("aside", { class: "panel", "aria-label": "Details" }, h("div", { class: "find" }, search, found), this.back, this.heading, this.body),
    );
    this.element.addEventListener("keydown", (event) => {
      if (event.key === "Escape") void this.show({ kind: "overview" }, false);
    });
    void this.render(false);
  }

  setFrame(frame: Frame | null, states: (link: number) => LinkState): void {
    this.states = states;
    const first = this.frame === null && frame !== null;
    if (frame) this.frame = frame;
    if (first) this.refresh();
    this.view.setStates(states);
    this.view.setFrame(this.frame);
  }

  /** Folds the picture as far as the pods are folded. What is no longer in the picture is no longer selected. */
  refold(): void {
    this.view.refold();
    this.folds.render();
    const { shown, view } = this;
    const gone = (shown.kind === "group" && !view.group(shown.key)) || (shown.kind === "bundle" && view.bundle(shown.ends).length === 0);
    if (gone) void this.show({ kind: "overview" }, false);
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
    this.beside = null;
    this.onshown(shown);
    await this.render(focus);
    tell(this.heading.textContent ?? "");
  }

  showFlow(flow: string): void {
    void this.show({ kind: "flow", flow });
  }

  /** Creates a button that shows all shortest paths of a pair. */
  pairButton(from: string, to: string): HTMLElement {
    const [source, target] = [this.names.nodes.get(from) ?? -1, this.names.nodes.get(to) ?? -1];
    const show = () => void this.show({ kind: "pair", from: source, to: target });
    return h("p", { class: "pair" }, source >= 0 && target >= 0 && h("button", { type: "button", onclick: show }, "All shortest paths of this pair"));
  }

  /** Creates a list of the links of a path. */
  along(way: Way): HTMLElement {
    return h("ul", { class: "links" }, way.links.map((link) => this.linkButton(link)));
  }

  /** Lists the shortest paths beside those of a flow, emptiest first. A click draws one beside the flow's own. */
  alternatives(from: string, to: string, own: Way[]): Node[] {
    const [source, target] = [this.names.nodes.get(from) ?? -1, this.names.nodes.get(to) ?? -1];
    if (source < 0 || target < 0) return [];
    const { found, paths } = shortestPaths(this.fabric, source, target, MOST_PATHS);
    const taken = new Set(own.map(({ links }) => links.join()));
    const others = found.filter((links) => !taken.has(links.join()));
    if (others.length === 0) return [];
    const rated = others.map((links) => ({ links, ...this.fullestOf(links) })).sort((a, b) => a.order - b.order);
    const buttons = rated.slice(0, MOST_LISTED).map(({ links, text }) => this.pathButton(links, text, own));
    const rest = paths - taken.size - buttons.length;
    return [
      h("h3", {}, "Other shortest paths"),
      h("p", { class: "hint" }, `The utilisation is that of the fullest link between switches${found.length < paths ? `, of the first ${found.length} of ${paths} paths` : ""}.`),
      h("ul", { class: "links flows alternatives" }, buttons),
      ...(rest > 0 ? [h("p", { class: "hint" }, `and ${rest} more`)] : []),
    ];
  }

  /** The utilisation of the fullest link between switches of a path; a path with a link that is down is the last in the order. */
  private fullestOf(links: number[]): { order: number; text: string } {
    const inner = links.filter((link) => [this.fabric.links.source[link]!, this.fabric.links.target[link]!].every((node) => this.fabric.nodes[node]!.tier !== "host"));
    if (links.some((link) => this.states(link) === "down")) return { order: Infinity, text: "down" };
    const most = inner.map((link) => this.value(link) ?? UNKNOWN).filter((value) => value !== UNKNOWN).reduce((a, b) => Math.max(a, b), 0);
    return { order: most, text: share(most) };
  }

  private pathButton(links: number[], text: string, own: Way[]): HTMLElement {
    const names = links.slice(0, -1).map((link) => this.fabric.nodes[this.fabric.links.target[link]!]!.name).join(" – ");
    const pressed = this.beside?.join() === links.join();
    const button = h("button", { type: "button", class: "link", "data-key": `path ${links.join()}`, "aria-pressed": String(pressed), onclick: () => {
      const drawn = button.getAttribute("aria-pressed") !== "true";
      for (const other of button.closest("ul")!.querySelectorAll("button")) other.setAttribute("aria-pressed", "false");
      button.setAttribute("aria-pressed", String(drawn));
      this.beside = drawn ? links : null;
      this.view.select(null, this.withBeside(own), null);
    } }, h("span", {}, names), h("span", { class: "number" }, text));
    return h("li", {}, button);
  }

  /** The paths of a flow, and the one that the user compares with them. */
  private withBeside(own: Way[]): Way[] {
    return this.beside ? [...own, { links: this.beside, colour: own.length }] : own;
  }

  /** Creates a button that selects a link and shows its utilisation. */
  linkButton(link: number): HTMLElement {
    const state = this.states(link);
    const bar = h("i", { class: "bar", "aria-hidden": "true" });
    bar.style.width = `${Math.min(100, (this.value(link) ?? 0) / 10)}%`;
    const value = state === "up" ? this.valueText(link) : state;
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
    const shown = this.fullest(links).filter((link) => this.weight(link) > 0).slice(0, most);
    if (shown.length === 0) return h("p", { class: "hint" }, this.frame ? "No link carries anything." : "Loading …");
    return h("ul", { class: "links" }, shown.map((link) => this.linkButton(link)));
  }

  /** Returns links by their utilisation, the highest first. */
  private fullest(links: number[]): number[] {
    return [...links].sort((a, b) => this.weight(b) - this.weight(a) || a - b);
  }

  /** The utilisation of a link in per mille, or -1 if it is down or unknown. */
  private weight(link: number): number {
    const value = this.value(link) ?? 0;
    return this.states(link) === "down" || value > 1000 ? -1 : value;
  }

  /** The utilisation of a link, or its rate in a fabric without a result. */
  private valueText(link: number): string {
    return this.shows === "fabric" ? rate(this.fabric.links.rate_bps[link]) : share(this.value(link));
  }

  value(link: number): number | undefined {
    return this.frame?.[link] ?? (this.frame ? 0 : undefined);
  }

  /** Creates a button that selects a bundle, or its only link, and shows the range of utilisations. */
  private bundleButton(target: Target): HTMLElement {
    if (target.kind !== "bundle") return target.kind === "link" ? this.linkButton(target.index) : h("li");
    const links = this.view.bundle(target.ends);
    return h("li", {}, h("button", { type: "button", class: "link", onclick: () => void this.show(target) },
      h("span", {}, `${links.length} cables to ${this.view.nameOf(target.ends[1])}`), h("span", { class: "number" }, this.range(links))));
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
    const target = shown.kind === "overview" || shown.kind === "flow" || shown.kind === "pair" ? null : shown;
    this.view.select(target, this.withBeside(told.ways ?? []), told.only ?? null);
    if (focus) this.heading.focus();
  }

  private async tellOf(shown: Shown): Promise<Told> {
    if (shown.kind === "overview") return this.details.overview();
    if (shown.kind === "flow") return this.details.flow(shown.flow);
    if (shown.kind === "node") return this.tellNode(shown.index);
    if (shown.kind === "group") return this.tellGroup(shown.key);
    if (shown.kind === "bundle") return this.tellBundle(shown.ends);
    if (shown.kind === "pair") return this.tellPair(shown.from, shown.to);
    const state = this.states(shown.index);
    const facts = h(
      "p", { class: "lead" },
      h("strong", {}, state === "up" ? this.valueText(shown.index) : state),
      this.shows !== "fabric" && ` of ${rate(this.fabric.links.rate_bps[shown.index])}`,
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
        h("p", { class: "lead" }, tierName(node.tier), node.pod === null ? "" : ` of pod ${node.pod}`),
        h("h3", {}, "Links from it"), list(links.filter((link) => source[link] === index)),
        h("h3", {}, "Links to it"), list(links.filter((link) => target[link] === index)),
      ],
    };
  }

  private tellGroup(key: string): Told {
    const group = this.view.group(key);
    if (!group) return { title: "Unfolded", content: [h("p", { class: "hint" }, "The picture has no such group now.")] };
    const unit = this.unfolded.unitOf[group.nodes[0]!]!;
    return {
      title: group.name,
      content: [
        h("p", {}, h("button", { type: "button", onclick: () => this.view.open(group.nodes[0]!) }, `Unfold ${unitName(unit)}`)),
        h("h3", {}, "Cables from it"),
        h("ul", { class: "links" }, group.bundles.map((bundle) => this.bundleButton(bundle))),
        h("h3", {}, "Members"),
        h("ul", { class: "links flows" }, group.nodes.map((node) =>
          h("li", {}, h("button", { type: "button", class: "link", onclick: () => void this.show({ kind: "node", index: node }) }, this.fabric.nodes[node]!.name)))),
      ],
    };
  }

  private tellBundle(ends: [string, string]): Told {
    const links = this.view.bundle(ends);
    return {
      title: ends.map((key) => this.view.nameOf(key)).join(" → "),
      content: [...this.tellLinks(links), h("h3", {}, this.shows === "fabric" ? "Links" : "Fullest"), this.links(links)],
    };
  }

  /** Describes several links in figures. */
  private tellLinks(links: number[]): Node[] {
    const up = links.filter((link) => this.states(link) !== "down");
    const known = up.map((link) => this.value(link) ?? UNKNOWN).filter((value) => value !== UNKNOWN);
    const mean = known.length ? known.reduce((sum, value) => sum + value, 0) / known.length : undefined;
    const rates = links.reduce((sum, link) => sum + this.fabric.links.rate_bps[link]!, 0);
    return [facts([
      ["Cables", up.length === links.length ? links.length : `${up.length} of ${links.length} are up`],
      ["Rate", rate(rates)],
      ...(this.shows === "fabric" ? [] : [
        ["Fullest", share(known.length ? Math.max(...known) : undefined)],
        ["Mean", share(mean)],
        ["Above 90 %", known.filter((value) => value > 900).length],
      ] as [string, string | number][]),
    ])];
  }

  /** The least and the highest utilisation of links that are up, and how many are down. */
  private range(links: number[]): string {
    const up = this.fullest(links.filter((link) => this.states(link) !== "down"));
    const [least, most] = [up.at(-1), up[0]].map((link) => link === undefined ? "–" : this.valueText(link));
    const values = up.length === 0 ? "" : least === most ? most : `${least} to ${most}`;
    return [values, up.length < links.length && `${links.length - up.length} down`].filter(Boolean).join(", ");
  }

  private links(links: number[]): HTMLElement {
    const rest = links.length - MOST_LISTED;
    return h("div", {}, h("ul", { class: "links" }, this.fullest(links).slice(0, MOST_LISTED).map((link) => this.linkButton(link))),
      rest > 0 && h("p", { class: "hint" }, `and ${rest} more`));
  }

  /** The shortest paths of a pair, hop by hop. The picture has their nodes alone. */
  private async tellPair(from: number, to: number): Promise<Told> {
    const [source, target] = [this.fabric.nodes[from]!, this.fabric.nodes[to]!];
    const { nodes, hops, paths } = between(this.fabric, from, to);
    const content: Node[] = [h("p", { class: "lead" }, paths === 0 ? "No path" : `${paths} shortest path${paths === 1 ? "" : "s"} of ${hops.length} links`)];
    hops.forEach((links) => {
      const [first, last] = [this.fabric.links.source[links[0]!]!, this.fabric.links.target[links[0]!]!].map((node) => this.fabric.nodes[node]!);
      const name = links.length === 1 ? linkName(this.fabric, links[0]!) : `${links.length} links from ${tierName(first!.tier)} to ${tierName(last!.tier)}`;
      const text = this.range(links);
      content.push(h("p", { class: "hop" }, h("span", {}, name), h("span", { class: "number" }, text)));
    });
    if (this.shows !== "fabric") content.push(h("h3", {}, "Flows of this pair"), ...(await this.details.pair(source.name, target.name)));
    return { title: `${source.name} → ${target.name}`, content, only: nodes };
  }

  private find(word: string, list: HTMLElement): void {
    const found = this.names.find(word, MOST_FOUND);
    const choose = (shown: Target | Pair) => {
      list.replaceChildren();
      void this.show(shown);
    };
    const nameOf = (node: number) => this.fabric.nodes[node]!.name;
    const text = (one: (typeof found)[number]) =>
      one.kind === "link" ? linkName(this.fabric, one.index) : one.kind === "node" ? nameOf(one.index) : `Paths ${nameOf(one.from)} → ${nameOf(one.to)}`;
    list.replaceChildren();
    append(list, found.map((one) => h("li", {}, h("button", { type: "button", onclick: () => choose(one) }, text(one)))));
    if (word.trim() && found.length === 0) append(list, [h("li", { class: "hint" }, "Nothing has this name.")]);
  }
}

const tierName = (tier: string): string => (tier === "tor" ? "ToR" : tier);

function same(a: Shown, b: Shown): boolean {
  return JSON.stringify(a) === JSON.stringify(b);
}
