// Colours that people with any kind of colour vision can distinguish.

import { UNKNOWN } from "./dom";

/** Number of steps of the utilisation scale. Its lightness changes in one direction, so hues are not necessary. */
export const STEPS = 8;
const LIGHT = ["#c9ced6", "#e8c98a", "#e3aa58", "#d6853f", "#bf5f43", "#994049", "#6b2b47", "#3c1835"];
const DARK = ["#3d4653", "#5f4456", "#8a4a58", "#b3574f", "#d4753f", "#e39c4c", "#efc679", "#fdf3c0"];

/** Colours of paths and of the two schemes of a race (Okabe and Ito), light and dark. */
const WAYS_LIGHT = ["#0072b2", "#a8480a", "#00795a", "#8f3f74", "#1c6ea4", "#6b5900"];
const WAYS_DARK = ["#56b4e9", "#ff9a4d", "#3fd3a5", "#e6a3cc", "#8fd0ff", "#f0e442"];

export const isDark = (): boolean => matchMedia("(prefers-color-scheme: dark)").matches;
export const scale = (): string[] => (isDark() ? DARK : LIGHT);
export const wayColour = (index: number): string => {
  const colours = isDark() ? WAYS_DARK : WAYS_LIGHT;
  return colours[index % colours.length]!;
};

/** Returns the step of a utilisation in per mille. The first step is for idle and unknown links. */
export const stepOf = (perMille: number): number =>
  perMille === UNKNOWN || perMille < 5 ? 0 : Math.min(STEPS - 1, 1 + Math.floor((perMille * (STEPS - 1)) / 1001));

/** Returns a colour of the style sheet. */
export const styled = (name: string): string => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
