// Draws many lines as pixels. Without a graphics card, a canvas is several times slower for lines wider than 1 pixel.

/** Returns an opaque CSS colour as a pixel of `ImageData`, with red in the lowest byte. The canvas converts names. */
export const pixelOf = (context: CanvasRenderingContext2D, colour: string): number => {
  context.fillStyle = colour;
  const rgb = parseInt(String(context.fillStyle).slice(1, 7), 16);
  return 0xff000000 | ((rgb & 0xff) << 16) | (rgb & 0xff00) | (rgb >> 16);
};

/** An opaque picture of lines. */
export class Raster {
  readonly image: ImageData;
  /** Signed, because unsigned 32-bit numbers are not always small integers of JavaScript, and therefore slower. */
  private readonly pixels: Int32Array;

  constructor(private readonly width: number, private readonly height: number) {
    this.image = new ImageData(width, height);
    this.pixels = new Int32Array(this.image.data.buffer);
  }

  fill(colour: number): void {
    this.pixels.fill(colour);
  }

  /** Copies a picture of the same size. */
  copy(from: Raster): void {
    this.pixels.set(from.pixels);
  }

  /**
   * Draws a line of any width from one point to another, in pixels. Its ends are cut along the rows of pixels, or along
   * the columns if the line is flatter than 45 degrees. So two lines of the same direction that meet leave no gap. The
   * colour is mixed in by the share of the pixel that the line covers. The share is measured through the centre of the
   * pixel, along the row or column.
   */
  line(fromX: number, fromY: number, toX: number, toY: number, lineWidth: number, colour: number): void {
    // `along` is the coordinate from row to row (or column to column), `across` the coordinate within one.
    const steep = Math.abs(toY - fromY) >= Math.abs(toX - fromX);
    let [along, across] = steep ? [fromY, fromX] : [fromX, fromY];
    let [alongEnd, acrossEnd] = steep ? [toY, toX] : [toX, toY];
    if (along > alongEnd) [along, across, alongEnd, acrossEnd] = [alongEnd, acrossEnd, along, across];
    const [most, mostAcross] = steep ? [this.height, this.width] : [this.width, this.height];
    const [stride, strideAcross] = steep ? [this.width, 1] : [1, this.width];
    const slope = (acrossEnd - across) / (alongEnd - along);
    const half = (lineWidth / 2) * Math.hypot(1, slope);
    let first = Math.max(0, Math.ceil(along - 0.5));
    let end = Math.min(most, Math.ceil(alongEnd - 0.5));
    if (slope !== 0) {
      // Rows in which the line is outside the picture are skipped.
      const [one, other] = [(-half - across) / slope + along, (mostAcross + half - across) / slope + along];
      first = Math.max(first, Math.floor(Math.min(one, other)));
      end = Math.min(end, Math.ceil(Math.max(one, other)) + 1);
    }
    if (first >= end) return;
    // The unit is 1/65536 of a pixel. The loop contains no calls, because it runs for a million rows per picture.
    const { pixels } = this;
    const [redBlue, green] = [colour & 0xff00ff, colour & 0xff00];
    const limit = mostAcross << 16;
    const step = Math.round(slope * 65536) | 0;
    const thick = Math.round(half * 131072) | 0;
    let next = Math.round((across + (first + 0.5 - along) * slope - half) * 65536) | 0;
    let start = (first * stride) | 0;
    for (let row = first; row < end; row++, next += step, start += stride) {
      const low = next > 0 ? next : 0;
      const high = next + thick < limit ? next + thick : limit;
      if (high <= low) continue;
      const lastPixel = high >> 16;
      let pixel = low >> 16;
      let at = (start + Math.imul(pixel, strideAcross)) | 0;
      // First the covered share of the first pixel (of 256), then whole pixels, then the share of the last pixel.
      let part = (pixel === lastPixel ? high - low : 65536 - (low & 65535)) >> 8;
      for (;;) {
        const before = pixels[at]!;
        // Red and blue are mixed together, green separately.
        const mixed = (Math.imul(before & 0xff00ff, 256 - part) + Math.imul(redBlue, part)) >>> 8;
        const mixedGreen = (Math.imul(before & 0xff00, 256 - part) + Math.imul(green, part)) >>> 8;
        pixels[at] = 0xff000000 | (mixed & 0xff00ff) | (mixedGreen & 0xff00);
        if (pixel === lastPixel) break;
        for (pixel++, at += strideAcross; pixel < lastPixel; pixel++, at += strideAcross) pixels[at] = colour;
        part = (high & 65535) >> 8;
        if (part === 0) break;
      }
    }
  }
}
