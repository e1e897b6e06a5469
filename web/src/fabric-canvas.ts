// Draws a fabric: the half of a cable near a node shows what that node sends.

import { scale, STEPS, stepOf, styled, wayColour } from "./colours";
import { h, markDrawn, rootSize, textSize } from "./dom";
import { layout, type Layout } from "./layout";
import { linkName, type Fabric, type Frame, type LinkState, type Selection, type Way } from "./model";
import { pixelOf, Raster } from "./raster";

const MOST_ZOOM = 40;
/** Maximum number of pixels of the link picture if there are many links. The browser copies all of them each time. */
const MOST_PIXELS = 1_500_000;
const MANY_LINKS = 1500;
/** Maximum distance between the pointer and the node or link that it selects, in CSS pixels. */
const REACH = 9;
/** Opacity of nodes that are not on the paths of the selected flow. */
const FAINT = 0.3;

export class FabricCanvas {
  readonly element: HTMLElement;
  /** Zoom buttons, which are placed outside the picture. */
  readonly zoomButtons: HTMLElement;
  onselect: (selection: Selection | null) => void = () => {};
  /** Called when a group of nodes is clicked, or entered with the keyboard. */
  onopen: (node: number) => void = () => {};
  /** Which value of a bundle its colour stands for. */
  ofBundles = "the fullest";
  /** Called when the name of a pod is clicked. */
  onpod: ((pod: number) => void) | null = null;
  /** Canvas of the links, which are drawn often. Nodes, names and paths are on a canvas above it and change rarely. */
  private readonly under = h("canvas", { "aria-hidden": "true" });
  private readonly canvas = h("canvas", { tabindex: 0, role: "application", class: "over" });
  /** Picture of all links without load. Links with load are drawn on a copy of it. */
  private idle = new Raster(1, 1);
  private links = new Raster(1, 1);
  private stale = true;
  private readonly tip = h("div", { class: "tip", hidden: true });
  private places: Layout;
  private frame: Frame | null = null;
  private states: (link: number) => LinkState = () => "up";
  /** Number of cables that are down in a bundle, for the bundles that have such. */
  private broken = new Map<number, number>();
  private ways: Way[] = [];
  private selected: Selection | null = null;
  private zoom = 1;
  private panX = 0;
  private panY = 0;
  private due = false;
  private overDue = false;
  private width = 0;
  private left = 14;
  private height = 0;
  private readonly pointers = new Map<number, { x: number; y: number }>();
  private dragged = 0;
  private neighbours: number[][];

  constructor(private fabric: Fabric, label: string) {
    this.places = layout(fabric);
    this.neighbours = neighboursIn(fabric);
    this.canvas.setAttribute("aria-label", `${label}. Arrow keys move from node to node, Enter shows the links of one.`);
    const button = (text: string, name: string, act: () => void) =>
      h("button", { type: "button", "aria-label": name, title: name, onclick: act }, text);
    this.element = h("div", { class: "fabric" }, this.under, this.canvas, this.tip);
    this.zoomButtons = h(
      "div",
      { class: "zoom" },
      button("+", "Zoom in", () => this.zoomBy(1.5, this.width / 2, this.height / 2)),
      button("−", "Zoom out", () => this.zoomBy(1 / 1.5, this.width / 2, this.height / 2)),
      button("⤢", "Show everything", () => this.reset()),
    );
    this.listen();
  }

  /** Shows another fabric. States, frame and selection must be set again. */
  setFabric(fabric: Fabric): void {
    [this.fabric, this.places, this.neighbours] = [fabric, layout(fabric), neighboursIn(fabric)];
    [this.selected, this.ways, this.frame] = [null, [], null];
    [this.states, this.broken] = [() => "up", new Map()];
    this.reset();
    this.resize();
  }

  setFrame(frame: Frame | null): void {
    this.frame = frame;
    this.draw();
  }

  setStates(states: (link: number) => LinkState, broken = new Map<number, number>()): void {
    this.states = states;
    if (String([...broken]) !== String([...this.broken])) this.overDue = true;
    this.broken = broken;
    this.draw();
  }

  select(selection: Selection | null, ways: Way[] = []): void {
    this.selected = selection;
    this.ways = ways;
    // Links beside the paths are faint, so that the paths stand out.
    this.under.classList.toggle("faint", ways.some(({ links }) => links.length > 0));
    this.overDue = true;
    this.draw();
  }

  /** Schedules drawing for the next frame of the screen. */
  private draw(): void {
    if (this.due) return;
    this.due = true;
    requestAnimationFrame(() => {
      this.due = false;
      this.paint();
    });
  }

  /** Schedules drawing of everything, because positions or colours have changed. */
  private drawAll(): void {
    this.stale = this.overDue = true;
    this.draw();
  }

  private reset(): void {
    [this.zoom, this.panX, this.panY] = [1, 0, 0];
    this.canvas.classList.remove("zoomed");
    this.drawAll();
  }

  private listen(): void {
    new ResizeObserver(() => this.resize()).observe(this.canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.drawAll());
    const at = (event: MouseEvent) => {
      const box = this.canvas.getBoundingClientRect();
      return { x: event.clientX - box.left, y: event.clientY - box.top };
    };
    this.canvas.addEventListener("wheel", (event) => {
      // Scrolling down without zoom scrolls the page, unless the control key is pressed.
      if (!event.ctrlKey && this.zoom === 1 && event.deltaY > 0) return;
      event.preventDefault();
      this.zoomBy(Math.exp(-event.deltaY / 300), at(event).x, at(event).y);
    }, { passive: false });
    this.canvas.addEventListener("pointerdown", (event) => {
      this.pointers.set(event.pointerId, at(event));
      this.dragged = 0;
    });
    this.canvas.addEventListener("pointermove", (event) => this.moved(event, at(event)));
    const up = (event: PointerEvent) => {
      const known = this.pointers.delete(event.pointerId);
      if (event.type === "pointerup" && known && this.dragged < 6) {
        this.choose(at(event));
      }
    };
    this.canvas.addEventListener("pointerup", up);
    this.canvas.addEventListener("pointercancel", up);
    this.canvas.addEventListener("pointerleave", (event) => {
      this.pointers.delete(event.pointerId);
      this.tip.hidden = true;
    });
    this.canvas.addEventListener("keydown", (event) => this.key(event));
  }

  private moved(event: PointerEvent, now: { x: number; y: number }): void {
    const before = this.pointers.get(event.pointerId);
    if (!before) {
      const found = this.hit(now.x, now.y);
      this.canvas.style.cursor = found || this.podAt(now.x, now.y) !== null ? "pointer" : this.zoom > 1 ? "grab" : "default";
      this.showTip(found, now);
      return;
    }
    const others = [...this.pointers].filter(([id]) => id !== event.pointerId).map(([, point]) => point);
    if (others[0]) {
      const distance = (point: { x: number; y: number }) => Math.hypot(point.x - others[0]!.x, point.y - others[0]!.y);
      this.zoomBy(distance(now) / Math.max(1, distance(before)), now.x, now.y);
    } else if (this.zoom > 1) {
      this.panX += now.x - before.x;
      this.panY += now.y - before.y;
      this.keepInside();
      this.drawAll();
    }
    this.dragged += Math.hypot(now.x - before.x, now.y - before.y);
    this.pointers.set(event.pointerId, now);
  }

  private choose({ x, y }: { x: number; y: number }): void {
    const pod = this.podAt(x, y);
    if (pod !== null) return this.onpod?.(pod);
    const found = this.hit(x, y);
    if (found?.kind === "node" && this.isGroup(found.index)) this.onopen(found.index);
    else this.onselect(found);
  }

  private showTip(found: Selection | null, at: { x: number; y: number }): void {
    this.tip.hidden = found === null;
    if (!found) return;
    const value = found.kind === "link" ? this.frame?.[found.index] : undefined;
    const name = found.kind === "link" ? linkName(this.fabric, found.index) : this.fabric.nodes[found.index]!.name;
    const state = found.kind === "link" ? this.states(found.index) : "up";
    const cables = found.kind === "link" && this.count(found.index) > 1 && `${this.count(found.index)} cables, ${this.ofBundles}`;
    this.tip.textContent = [name, cables, value !== undefined && value <= 1000 && `${Math.round(value / 10)} %`, state !== "up" && state]
      .filter(Boolean).join(" · ");
    this.tip.style.left = `${Math.min(at.x + 12, this.width - this.tip.offsetWidth - 4)}px`;
    this.tip.style.top = `${Math.max(4, at.y - 30)}px`;
  }

  private key(event: KeyboardEvent): void {
    const node = this.selected?.kind === "node" ? this.selected.index : null;
    const moves: Record<string, [number, number]> = {
      ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1],
    };
    const move = moves[event.key];
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    if (move) {
      const next = node === null ? this.fabric.nodes.findIndex((one) => one.tier !== "host") : this.nearest(node, ...move);
      if (next >= 0) this.onselect({ kind: "node", index: next });
    } else if (event.key === "+" || event.key === "=") this.zoomBy(1.5, this.width / 2, this.height / 2);
    else if (event.key === "-") this.zoomBy(1 / 1.5, this.width / 2, this.height / 2);
    else if (event.key === "0") this.reset();
    else if (event.key === "Enter" && node !== null && this.isGroup(node)) this.onopen(node);
    else if (event.key === "Enter" && node !== null) document.querySelector<HTMLElement>(".panel button")?.focus();
    else return;
    event.preventDefault();
    // The page must not handle this key a second time. It handles all other keys, such as space.
    event.stopPropagation();
  }

  /** Returns the next node in a direction: left or right in the same row, or a neighbour above or below; -1 if none. */
  private nearest(node: number, dx: number, dy: number): number {
    const { x, y } = this.places;
    const candidates = dx ? this.fabric.nodes.map((_, index) => index) : this.neighbours[node]!;
    let best = -1;
    let least = Infinity;
    for (const other of candidates) {
      const [byX, byY] = [x[other]! - x[node]!, y[other]! - y[node]!];
      if (other === node || byX * dx + byY * dy <= 1e-6 || (dx && Math.abs(byY) > Math.abs(byX))) continue;
      const distance = Math.abs(byX) + Math.abs(byY) * (dx ? 30 : 1);
      if (distance < least) [best, least] = [other, distance];
    }
    return best;
  }

  private zoomBy(factor: number, x: number, y: number): void {
    const next = Math.min(MOST_ZOOM, Math.max(1, this.zoom * factor));
    const by = next / this.zoom;
    this.panX = x - (x - this.panX) * by;
    this.panY = y - (y - this.panY) * by;
    this.zoom = next;
    this.canvas.classList.toggle("zoomed", next > 1);
    this.keepInside();
    this.drawAll();
  }

  private keepInside(): void {
    this.panX = Math.min(0, Math.max(this.width * (1 - this.zoom), this.panX));
    this.panY = Math.min(0, Math.max(this.height * (1 - this.zoom), this.panY));
  }

  private resize(): void {
    const box = this.canvas.getBoundingClientRect();
    const ratio = Math.min(devicePixelRatio || 1, 2);
    const many = this.fabric.links.source.length > MANY_LINKS;
    const coarse = many ? Math.min(ratio, Math.sqrt(MOST_PIXELS / Math.max(1, box.width * box.height))) : ratio;
    [this.width, this.height] = [box.width, box.height];
    for (const [canvas, pixels] of [[this.canvas, ratio], [this.under, coarse]] as const) {
      canvas.width = Math.round(box.width * pixels);
      canvas.height = Math.round(box.height * pixels);
    }
    const [width, height] = [Math.max(1, this.under.width), Math.max(1, this.under.height)];
    [this.idle, this.links] = [new Raster(width, height), new Raster(width, height)];
    this.left = this.places.rows.length && this.width > 700 ? 12 + 5 * rootSize() : 14;
    this.keepInside();
    this.stale = this.overDue = true;
    this.paint();
  }

  /** Returns the position of a node in CSS pixels. The names of rows are in the left margin. */
  private at(node: number): [number, number] {
    return [this.across(this.places.x[node]!), this.down(this.places.y[node]!)];
  }

  private across(x: number): number {
    return (this.left + this.span() * x) * this.zoom + this.panX;
  }

  private down(y: number): number {
    return (14 + (this.height - 28 - this.foot()) * y) * this.zoom + this.panY;
  }

  /** Width of the picture between its margins, without zoom. */
  private span(): number {
    return this.width - this.left - Math.max(12, this.width / 90);
  }

  /** Height of the names of pods, which are below the picture. */
  private foot(): number {
    return this.places.pods.length > 1 ? textSize() * 1.2 : 0;
  }

  private pitch(): number {
    return this.places.pitch * (this.width - 80) * this.zoom;
  }

  private slot(): number {
    return this.places.slot * this.span() * this.zoom;
  }

  private radius(tier: string): number {
    const most = Math.max(6, this.width / 200);
    return tier === "host"
      ? Math.max(1.2, Math.min(most * 0.6, this.pitch() / 7))
      : Math.max(2, Math.min(most * 1.3, this.pitch() / 3.2));
  }

  private isGroup(node: number): boolean {
    return this.fabric.nodes[node]!.members !== undefined;
  }

  private count(link: number): number {
    return this.fabric.links.count?.[link] ?? 1;
  }

  /** Returns half the width and half the height of a node. A group has room for its number of members, if possible. */
  private extent(node: number): [number, number] {
    const { tier, members } = this.fabric.nodes[node]!;
    const radius = this.radius(tier);
    if (members === undefined) return [radius, radius];
    const size = textSize();
    const bar = this.places.bars.get(node);
    const half = bar === undefined ? Math.min(size * (0.32 * String(members).length + 0.5), this.slot() * 0.42) : bar * this.span() * this.zoom;
    return [Math.max(radius, half), Math.max(radius, size * 0.75)];
  }

  /** Returns the two ends of a link. At a bar, the link ends straight above or below its other end. */
  private ends(places: [number, number][], link: number): [[number, number], [number, number]] {
    const [source, target] = [this.fabric.links.source[link]!, this.fabric.links.target[link]!];
    const [from, to] = [places[source]!, places[target]!];
    const onBar = (node: number, [x, y]: [number, number], other: number): [number, number] => {
      const reach = (this.places.bars.get(node) ?? 0) * this.span() * this.zoom;
      return [Math.max(x - reach, Math.min(x + reach, other)), y];
    };
    return [onBar(source, from, to[0]), onBar(target, to, from[0])];
  }

  /** How many times wider a bundle is than a single link. */
  private breadth(link: number): number {
    const count = this.count(link);
    return count === 1 ? 1 : 1 + Math.log2(count) / 3;
  }

  /** Returns the pod whose name is at a point. */
  private podAt(x: number, y: number): number | null {
    if (!this.onpod || this.foot() === 0 || Math.abs(y - this.podNamesAt()) > textSize()) return null;
    const half = (width: number) => (width * this.span() * this.zoom) / 2;
    return this.places.pods.find((one) => Math.abs(x - this.across(one.x)) < half(one.width))?.pod ?? null;
  }

  private podNamesAt(): number {
    return this.down(1) + 6 + textSize() * 0.7;
  }

  private hit(x: number, y: number): Selection | null {
    let found: Selection | null = null;
    let least = REACH;
    const places = this.fabric.nodes.map((_, node) => this.at(node));
    this.fabric.nodes.forEach((_, index) => {
      const [nodeX, nodeY] = places[index]!;
      const [halfX, halfY] = this.extent(index);
      const distance = Math.hypot(Math.max(0, Math.abs(x - nodeX) - halfX), Math.max(0, Math.abs(y - nodeY) - halfY)) + 2;
      if (distance < Math.min(least, 5)) [found, least] = [{ kind: "node", index }, distance];
    });
    if (found) return found;
    for (let link = 0; link < this.fabric.links.source.length; link++) {
      const [[fromX, fromY], [toX, toY]] = this.ends(places, link);
      // Only the half of a link near its start counts.
      const [alongX, alongY] = [(toX - fromX) / 2, (toY - fromY) / 2];
      const part = ((x - fromX) * alongX + (y - fromY) * alongY) / (alongX ** 2 + alongY ** 2 || 1);
      if (part < 0 || part > 1) continue;
      const distance = Math.hypot(x - fromX - part * alongX, y - fromY - part * alongY);
      if (distance < least) [found, least] = [{ kind: "link", index: link }, distance];
    }
    return found;
  }

  private paint(): void {
    if (this.width === 0) return;
    const places = this.fabric.nodes.map((_, node) => this.at(node));
    const under = this.under.getContext("2d", { alpha: false })!;
    if (this.stale) this.paintIdle(under, places);
    this.paintLinks(under, places);
    if (this.overDue) {
      const over = this.canvas.getContext("2d")!;
      over.setTransform(1, 0, 0, 1, 0, 0);
      over.clearRect(0, 0, this.canvas.width, this.canvas.height);
      this.scaleTo(over);
      this.paintWays(over, places);
      this.paintNodes(over, places);
    }
    this.stale = this.overDue = false;
    this.canvas.dataset["draws"] = String(Number(this.canvas.dataset["draws"] ?? 0) + 1);
    markDrawn();
  }

  private scaleTo(context: CanvasRenderingContext2D): void {
    const ratio = context.canvas.width / this.width;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
  }

  private unit(): number {
    return Math.max(1, Math.min(2.2, this.width / 900)) * (this.pitch() > 24 ? 1 : 0.6);
  }

  /** Draws the half of each link near its start. */
  private lines(on: Raster, places: [number, number][], links: Iterable<number>, width: number, colour: number): void {
    const { source, target } = this.fabric.links;
    const ratio = this.under.width / this.width;
    const bars = this.places.bars.size > 0;
    for (const link of links) {
      // This loop runs for every link of every picture, so it calls `ends` only if that is necessary.
      const [from, to] = bars ? this.ends(places, link) : [places[source[link]!]!, places[target[link]!]!];
      on.line(from[0] * ratio, from[1] * ratio, ((from[0] + to[0]) / 2) * ratio, ((from[1] + to[1]) / 2) * ratio, width * this.breadth(link) * ratio, colour);
    }
  }

  /** Does the same with functions of the canvas, which can draw dashed lines. */
  private stroke(context: CanvasRenderingContext2D, places: [number, number][], links: Iterable<number>): void {
    for (const link of links) {
      const [[fromX, fromY], [toX, toY]] = this.ends(places, link);
      context.beginPath();
      context.moveTo(fromX, fromY);
      context.lineTo((fromX + toX) / 2, (fromY + toY) / 2);
      context.stroke();
    }
  }

  private paintIdle(context: CanvasRenderingContext2D, places: [number, number][]): void {
    this.idle.fill(pixelOf(context, styled("--ground")));
    this.lines(this.idle, places, this.fabric.links.source.keys(), this.unit() * 0.6, pixelOf(context, scale()[0]!));
  }

  private paintLinks(context: CanvasRenderingContext2D, places: [number, number][]): void {
    const steps: number[][] = Array.from({ length: STEPS }, () => []);
    const down: number[] = [];
    const out: number[] = [];
    for (let link = 0; link < this.fabric.links.source.length; link++) {
      const state = this.states(link);
      if (state === "down") down.push(link);
      else if (state !== "up") out.push(link);
      else steps[stepOf(this.frame?.[link] ?? 0)]!.push(link);
    }
    const colours = scale();
    const unit = this.unit();
    this.links.copy(this.idle);
    // Where only one half of a cable carries something, the other half shows where the cable goes on. It is grey, and no
    // darker (in dark mode: no brighter) than a busy half.
    const busy = (link: number) => this.states(link) === "up" && stepOf(this.frame?.[link] ?? 0) > 0;
    this.lines(this.links, places, steps[0]!.filter((link) => busy(link ^ 1)), unit, pixelOf(context, styled("--idle-half")));
    for (let step = 1; step < STEPS; step++) {
      this.lines(this.links, places, steps[step]!, unit * (1 + step * 0.28), pixelOf(context, colours[step]!));
    }
    context.putImageData(this.links.image, 0, 0);
    this.scaleTo(context);
    for (const [links, colour, dash] of [[down, styled("--down"), [6, 4]], [out, styled("--drained"), [2, 3]]] as const) {
      if (links.length === 0) continue;
      // The gaps of dashed lines show the background, not the idle link.
      context.lineWidth = Math.max(1.6, unit * 1.5);
      context.strokeStyle = styled("--ground");
      this.stroke(context, places, links);
      context.strokeStyle = colour;
      context.setLineDash([...dash]);
      this.stroke(context, places, links);
      context.setLineDash([]);
    }
  }

  private paintWays(context: CanvasRenderingContext2D, places: [number, number][]): void {
    const { source, target } = this.fabric.links;
    const shown = [...this.ways];
    if (this.selected?.kind === "link") shown.push({ links: [this.selected.index], colour: -1 });
    for (const way of shown) {
      for (const [colour, width] of [
        [styled("--ground"), 8],
        [way.colour < 0 ? styled("--accent") : wayColour(way.colour), 4],
      ] as const) {
        context.beginPath();
        for (const link of way.links) {
          const aside = (way.colour < 0 ? 0 : way.colour - (this.ways.length - 1) / 2) * 5;
          const [[fromX, fromY], [toX, toY]] = this.ends(places, link);
          // Several paths of one connection are drawn side by side.
          const length = Math.hypot(toX - fromX, toY - fromY) || 1;
          const turned = source[link]! < target[link]! ? 1 : -1;
          const [offX, offY] = [(-(toY - fromY) / length) * aside * turned, ((toX - fromX) / length) * aside * turned];
          context.moveTo(fromX + offX, fromY + offY);
          context.lineTo(toX + offX, toY + offY);
        }
        context.strokeStyle = colour;
        context.lineWidth = width;
        context.lineCap = "round";
        context.stroke();
      }
    }
    context.lineCap = "butt";
  }

  private paintNodes(context: CanvasRenderingContext2D, places: [number, number][]): void {
    const { source, target } = this.fabric.links;
    const onWay = new Set(this.ways.flatMap(({ links }) => links.flatMap((link) => [source[link]!, target[link]!])));
    const faint = (node: number) => onWay.size > 0 && !onWay.has(node);
    for (const [tier, opacity] of [["host", FAINT], ["host", 1], ["switch", FAINT], ["switch", 1]] as const) {
      context.fillStyle = styled(tier === "host" ? "--host" : "--node");
      context.globalAlpha = opacity;
      context.beginPath();
      this.fabric.nodes.forEach((node, index) => {
        if ((node.tier === "host") !== (tier === "host") || faint(index) !== (opacity < 1)) return;
        const [x, y] = places[index]!;
        const [halfX, halfY] = this.extent(index);
        if (node.members === undefined && tier === "host") {
          context.moveTo(x + halfX, y);
          context.arc(x, y, halfX, 0, 7);
        } else context.rect(x - halfX, y - halfY, 2 * halfX, 2 * halfY);
      });
      context.fill();
    }
    context.globalAlpha = 1;
    if (this.selected?.kind === "node") {
      const [x, y] = places[this.selected.index]!;
      const [halfX, halfY] = this.extent(this.selected.index);
      context.beginPath();
      if (this.isGroup(this.selected.index)) context.rect(x - halfX - 3, y - halfY - 3, 2 * halfX + 6, 2 * halfY + 6);
      else context.arc(x, y, this.radius("tor") + 6, 0, 7);
      context.strokeStyle = styled("--accent");
      context.lineWidth = 3;
      context.stroke();
    }
    this.paintNames(context, places);
  }

  private paintNames(context: CanvasRenderingContext2D, places: [number, number][]): void {
    const size = textSize();
    context.font = `${size}px system-ui, sans-serif`;
    context.textBaseline = "middle";
    context.lineWidth = 3;
    context.strokeStyle = styled("--ground");
    const write = (text: string, x: number, y: number, colour: string, align: CanvasTextAlign = "start") => {
      context.textAlign = align;
      context.fillStyle = styled(colour);
      context.strokeText(text, x, y);
      context.fillText(text, x, y);
    };
    this.paintGroups(context, places, write);
    const pitch = this.pitch();
    this.fabric.nodes.forEach((node, index) => {
      if (node.tier === "host" || node.members !== undefined) return;
      const [x, y] = places[index]!;
      const radius = this.radius(node.tier);
      if (pitch > size * 4.8) write(node.name, x + radius + 4, y, "--text");
      else if (pitch > size * 2.3) write(node.name, x, y - radius - size * 0.6, "--text", "center");
    });
    const pods = this.foot() > 0 ? this.places.pods : [];
    const fits = (text: (pod: number) => string) =>
      pods.every(({ pod, width }) => context.measureText(text(pod)).width + 6 < width * this.span() * this.zoom);
    const name = [(pod: number) => `pod ${pod}`, String].find(fits) ?? (() => "");
    for (const { pod, x } of pods) write(name(pod), this.across(x), this.podNamesAt(), this.onpod ? "--accent" : "--quiet", "center");
    if (this.width <= 700) return;
    if (name === String) write("pod", 8, this.podNamesAt(), "--quiet");
    for (const row of this.places.rows) write(row.name, 8, this.down(row.y), "--quiet");
  }

  /** Writes the number of members into each group, and the number of cables onto each bundle. */
  private paintGroups(
    context: CanvasRenderingContext2D, places: [number, number][],
    write: (text: string, x: number, y: number, colour: string, align: CanvasTextAlign) => void,
  ): void {
    if (this.fabric.links.count === undefined) return;
    const size = textSize();
    context.textAlign = "center";
    context.fillStyle = styled(this.ways.length > 0 ? "--quiet" : "--ground");
    this.fabric.nodes.forEach(({ members, name }, node) => {
      if (members === undefined) return;
      const text = this.places.bars.has(node) ? name : String(members);
      if (2 * this.extent(node)[0] > context.measureText(text).width) context.fillText(text, ...places[node]!);
    });
    // Numbers beside the paths of a flow would hide them.
    if (this.slot() < size * 2.3 || this.ways.length > 0) return;
    for (let link = 0; link < this.fabric.links.count.length; link += 2) {
      const broken = Math.max(this.broken.get(link) ?? 0, this.broken.get(link + 1) ?? 0);
      const count = this.count(link);
      if (count === 1) continue;
      const [[fromX, fromY], [toX, toY]] = this.ends(places, link);
      if (Math.abs(toY - fromY) < 3 * size) continue;
      const text = broken > 0 ? `${count - broken}/${count}` : String(count);
      const half = context.measureText(text).width / 2 + 3;
      const [x, y] = [(fromX + toX) / 2, (fromY + toY) / 2];
      context.fillStyle = styled("--ground");
      context.fillRect(x - half, y - size * 0.65, 2 * half, size * 1.3);
      write(text, x, y, broken > 0 ? "--down" : "--text", "center");
    }
  }
}

/** Returns the nodes to which each node has links. */
function neighboursIn(fabric: Fabric): number[][] {
  const found: number[][] = fabric.nodes.map(() => []);
  fabric.links.source.forEach((source, link) => found[source]!.push(fabric.links.target[link]!));
  return found;
}
