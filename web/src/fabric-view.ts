// Shows a fabric on a canvas, folded as far as its pods are folded. All indices are those of the whole fabric.

import { h, tell } from "./dom";
import { FabricCanvas } from "./fabric-canvas";
import { fold, frameOf, stateOf, unitName, type Folded, type Lens, type Unfolded } from "./fold";
import type { Fabric, Frame, LinkState, Target, Way } from "./model";

const MOST_NAMED = 6;

export class FabricView {
  readonly element: HTMLElement;
  readonly zoomButtons: HTMLElement;
  onselect: (target: Target | null) => void = () => {};
  folded: Folded;
  private readonly canvas: FabricCanvas;
  private target: Target | null = null;
  private ways: Way[] = [];
  private only: ReadonlySet<number> | null = null;
  private frame: Frame | null = null;
  private states: (link: number) => LinkState = () => "up";
  private shownAs = "";

  constructor(private readonly fabric: Fabric, label: string, private readonly unfolded: Unfolded) {
    const lens = this.lens();
    this.folded = fold(fabric, unfolded, lens);
    this.shownAs = this.keyOf(lens);
    this.canvas = new FabricCanvas(this.folded.fabric, label);
    [this.element, this.zoomButtons] = [this.canvas.element, this.canvas.zoomButtons];
    this.canvas.onselect = (selection) => this.onselect(selection && this.targetOf(selection.kind, selection.index));
    this.canvas.onopen = (node) => this.open(this.folded.nodes[node]![0]!);
    this.canvas.onpod = this.onpod();
  }

  setFrame(frame: Frame | null): void {
    this.frame = frame;
    this.canvas.setFrame(frame && frameOf(this.folded, frame, this.states, this.unfolded.mean));
  }

  setStates(states: (link: number) => LinkState): void {
    this.states = states;
    const { links, fabric } = this.folded;
    if (fabric.links.count === undefined) return this.canvas.setStates(states);
    const broken = new Map<number, number>();
    links.forEach((members, bundle) => {
      const down = members.filter((link) => states(link) === "down").length;
      if (down > 0) broken.set(bundle, down);
    });
    this.canvas.setStates((bundle) => stateOf(links[bundle]!, states), broken);
  }

  /** Highlights what is selected and some paths. With `only`, the picture has these nodes and no others. */
  select(target: Target | null, ways: Way[] = [], only: ReadonlySet<number> | null = null): void {
    [this.target, this.ways, this.only] = [target, ways, only];
    this.refold();
  }

  /** Folds the fabric again, if that changes anything. */
  refold(): void {
    const lens = this.lens();
    const key = this.keyOf(lens);
    if (key !== this.shownAs) {
      this.shownAs = key;
      this.folded = fold(this.fabric, this.unfolded, lens);
      this.canvas.setFabric(this.folded.fabric);
      this.setStates(this.states);
    }
    this.canvas.ofBundles = this.unfolded.mean ? "on average" : "the fullest";
    this.setFrame(this.frame);
    this.canvas.onpod = this.onpod();
    const { linkOf } = this.folded;
    const ways = this.ways.map(({ links, colour }) => ({ links: links.map((link) => linkOf[link]!).filter((link) => link >= 0), colour }));
    this.canvas.select(this.selection(), ways);
  }

  /** Returns the links of a bundle, or nothing if the picture has no such bundle now. */
  bundle([from, to]: [string, string]): number[] {
    const [source, target] = [this.folded.keys.indexOf(from), this.folded.keys.indexOf(to)];
    const { links } = this.folded.fabric;
    const found = links.source.findIndex((one, link) => one === source && links.target[link] === target);
    return found < 0 ? [] : this.folded.links[found]!;
  }

  /** Returns the name and the members of a group, or null if the picture has no such group now. */
  group(key: string): { name: string; nodes: number[]; bundles: Target[] } | null {
    const { keys, nodes, fabric } = this.folded;
    const group = keys.indexOf(key);
    if (group < 0 || nodes[group]!.length < 2) return null;
    const bundles = fabric.links.source.flatMap((source, link) => (source === group ? [this.targetOf("link", link)] : []));
    return { name: fabric.nodes[group]!.name, nodes: nodes[group]!, bundles };
  }

  nameOf(key: string): string {
    return this.folded.fabric.nodes[this.folded.keys.indexOf(key)]?.name ?? key;
  }

  /** Unfolds the unit of a node. */
  open(node: number): void {
    this.change(this.unfolded.unitOf[node]!, true);
  }

  private onpod(): ((pod: number) => void) | null {
    if (!this.unfolded.foldable || this.only) return null;
    return (pod) => this.change(`pod-${pod}`, !this.unfolded.has(`pod-${pod}`));
  }

  private change(unit: string, open: boolean): void {
    this.unfolded.set(unit, open);
    tell(`${unitName(unit)} ${open ? "unfolded" : "folded"}`);
  }

  private targetOf(kind: "node" | "link", index: number): Target {
    const { nodes, links, keys, fabric } = this.folded;
    const members = (kind === "node" ? nodes : links)[index]!;
    if (kind === "node") return members.length === 1 ? { kind, index: members[0]! } : { kind: "group", key: keys[index]! };
    if (members.length === 1) return { kind, index: members[0]! };
    return { kind: "bundle", ends: [keys[fabric.links.source[index]!]!, keys[fabric.links.target[index]!]!] };
  }

  private selection(): { kind: "node" | "link"; index: number } | null {
    const { target, folded } = this;
    if (target === null) return null;
    const chosen = target.kind === "node" ? ["node", folded.nodeOf[target.index]] as const
      : target.kind === "link" ? ["link", folded.linkOf[target.index]] as const
      : target.kind === "group" ? ["node", folded.keys.indexOf(target.key)] as const
      : ["link", folded.linkOf[this.bundle(target.ends)[0] ?? -1] ?? -1] as const;
    return chosen[1] !== undefined && chosen[1] >= 0 ? { kind: chosen[0], index: chosen[1] } : null;
  }

  /** The selection and the nodes of its paths are drawn by themselves, so that paths are whole. */
  private lens(): Lens {
    const { source, target } = this.fabric.links;
    const links = this.ways.flatMap((way) => way.links);
    if (this.target?.kind === "link") links.push(this.target.index);
    const keep = new Set(links.flatMap((link) => [source[link]!, target[link]!]));
    if (this.target?.kind === "node") keep.add(this.target.index);
    return { keep, only: this.only };
  }

  private keyOf({ keep, only }: Lens): string {
    const folded = [...keep].filter((node) => !this.unfolded.has(this.unfolded.unitOf[node]!));
    return only ? `only ${[...only].sort()}` : `${this.unfolded.value} ${folded.sort()}`;
  }
}

/** Buttons that fold and unfold, and the choice of colours. They follow `unfolded` when `render` is called. */
export function foldButtons(unfolded: Unfolded): { element: HTMLElement; render: () => void } {
  const element = h("div", { class: "folds", hidden: !unfolded.foldable });
  const button = (text: string, label: string, act: () => void) =>
    h("button", { type: "button", "aria-label": label, title: label, onclick: act }, text);
  const colour = h("select", { "aria-label": "Colour of bundles", onchange: () => unfolded.setMean(colour.value === "mean") },
    h("option", { value: "fullest" }, "fullest cable"), h("option", { value: "mean" }, "mean of cables"));
  const render = () => {
    const { units, everything, mean } = unfolded;
    colour.value = mean ? "mean" : "fullest";
    const named = everything || units.length > MOST_NAMED ? [] : units;
    element.replaceChildren(
      ...(everything ? [] : [colour]),
      ...named.map((unit) => button(`${unitName(unit)} ×`, `Fold ${unitName(unit)}`, () => unfolded.set(unit, false))),
      ...(units.length > 0 ? [button("Fold all", "Fold all pods", () => unfolded.set(null, false))] : []),
      ...(everything ? [] : [button("Unfold all", "Unfold all pods", () => unfolded.set(null, true))]),
    );
  };
  render();
  return { element, render };
}
