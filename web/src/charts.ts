// Small charts: lines over time and cumulative distributions, drawn as SVG.

import { textSize } from "./dom";

const SVG = "http://www.w3.org/2000/svg";

export interface Line {
  name: string;
  colour: string;
  dashed?: boolean;
  points: [number, number][];
}

interface Axes {
  label: string;
  x: (value: number) => string;
  y: (value: number) => string;
  xName: string;
  /** Largest value of each axis. If it is not given, the largest value of the points. */
  xMost?: number;
  yMost?: number;
  logarithmic?: boolean;
  /** Position of a vertical line that marks the present time. */
  cursor?: number;
  height?: number;
}

function s(tag: string, attributes: Record<string, string | number>, text?: string): SVGElement {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  if (text !== undefined) element.textContent = text;
  return element;
}

/** Returns round values from 0 to `most`. */
export function ticks(most: number, wanted: number): number[] {
  if (!(most > 0)) return [0];
  const raw = most / wanted;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((size) => size >= raw - 1e-12)!;
  return Array.from({ length: Math.floor(most / step + 1e-9) + 1 }, (_, index) => index * step);
}

/** Draws lines into a figure. `width` is in CSS pixels. */
export function chart(width: number, lines: Line[], axes: Axes): SVGElement {
  const size = textSize();
  const height = axes.height ?? Math.max(130, Math.min(width * 0.42, size * 22));
  const yHighest = axes.yMost ?? lines.reduce((most, line) => line.points.reduce((high, [, y]) => Math.max(high, y), most), 0);
  const widest = Math.max(...ticks(yHighest, 4).map((y) => axes.y(y).length));
  const [left, right, top, bottom] = [size * (0.62 * widest + 1), size * 1.6, size * 0.8, size * 3.1];
  const picture = s("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": axes.label, class: "chart" });
  const all = lines.flatMap((line) => line.points);
  const positive = all.map(([x]) => x).filter((x) => x > 0);
  const least = axes.logarithmic ? positive.reduce((a, b) => Math.min(a, b), Infinity) : 0;
  const xMost = axes.xMost ?? all.reduce((most, [x]) => Math.max(most, x), 0);
  const yMost = yHighest;
  const logarithmic = Boolean(axes.logarithmic) && least < xMost && Number.isFinite(least);
  const from = logarithmic ? Math.log10(least) : 0;
  const until = logarithmic ? Math.log10(xMost) : xMost || 1;
  const px = (x: number) =>
    left + ((width - left - right) * ((logarithmic ? Math.log10(Math.max(x, least)) : x) - from)) / (until - from || 1);
  const py = (y: number) => height - bottom - ((height - top - bottom) * y) / (yMost || 1);
  for (const y of ticks(yMost, 4)) {
    picture.append(s("line", { x1: left, x2: width - right, y1: py(y), y2: py(y), class: "grid" }));
    picture.append(s("text", { x: left - 6, y: py(y) + size * 0.35, "text-anchor": "end", "font-size": size }, axes.y(y)));
  }
  const wanted = Math.max(2, Math.floor((width - left - right) / (size * 7)));
  const marks = logarithmic ? powers(least, xMost, wanted) : ticks(xMost, wanted);
  for (const x of marks) {
    picture.append(s("line", { x1: px(x), x2: px(x), y1: py(0), y2: py(0) + 4, class: "axis" }));
    picture.append(s("text", { x: px(x), y: py(0) + 6 + size, "text-anchor": "middle", "font-size": size }, axes.x(x)));
  }
  picture.append(s("line", { x1: left, x2: width - right, y1: py(0), y2: py(0), class: "axis" }));
  picture.append(s("text", { x: (left + width - right) / 2, y: height - size * 0.35, "text-anchor": "middle", "font-size": size, class: "axis-name" }, axes.xName));
  for (const line of lines) {
    if (line.points.length === 0) continue;
    const way = line.points.map(([x, y], index) => `${index ? "L" : "M"}${px(x).toFixed(1)} ${py(y).toFixed(1)}`).join("");
    const drawn = s("path", { d: way, class: line.dashed ? "line dashed" : "line" });
    drawn.style.stroke = line.colour;
    picture.append(drawn);
  }
  if (axes.cursor !== undefined && axes.cursor <= xMost) {
    picture.append(s("line", { x1: px(axes.cursor), x2: px(axes.cursor), y1: top, y2: height - bottom, class: "cursor" }));
  }
  return picture;
}

/** Returns the powers of ten within a range, with their doubles and fivefolds if the range is small. */
function powers(least: number, most: number, wanted: number): number[] {
  const found: number[] = [];
  const [low, high] = [Math.floor(Math.log10(least)), Math.ceil(Math.log10(most))];
  for (let power = low; power <= high; power++) {
    for (const factor of high - low <= 2 ? [1, 2, 5] : [1]) {
      const value = factor * 10 ** power;
      if (value >= least * 0.999 && value <= most * 1.001) found.push(value);
    }
  }
  const every = Math.ceil(found.length / wanted);
  return found.filter((_, index) => index % every === 0);
}

/** Returns the cumulative distribution of sorted values, as points of a step curve. `of` values correspond to 1. */
export function distribution(sorted: number[], of: number): [number, number][] {
  const points: [number, number][] = [];
  sorted.forEach((value, index) => {
    points.push([value, index / of], [value, (index + 1) / of]);
  });
  return points;
}
