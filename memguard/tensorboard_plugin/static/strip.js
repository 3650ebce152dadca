// The whole run in one strip below the chart; its window is what the chart shows, to be dragged and drawn.

import { LEFT, RIGHT } from "./chart.js";
import { h, replace, sharpCanvas } from "./dom.js";
import { color } from "./theme.js";

const HEIGHT = 40;

export async function overviewStrip(container, page, view, whole, zoom) {
  const canvas = h("canvas", { "aria-hidden": "true" });
  replace(container, canvas);
  let series = null;
  let drag = null;

  const inner = () => Math.max(1, container.clientWidth - LEFT - RIGHT);
  const toX = (batch) => LEFT + ((batch - whole()[0]) / (whole()[1] - whole()[0])) * inner();
  const toBatch = (x) => whole()[0] + (Math.min(Math.max(x - LEFT, 0), inner()) / inner()) * (whole()[1] - whole()[0]);

  function draw() {
    if (!container.clientWidth || !series) return;
    const context = sharpCanvas(canvas, container.clientWidth, HEIGHT);
    const { batch, allocated_peak_bytes: peaks } = series.columns;
    let highest = 1;
    for (const peak of peaks) if (peak > highest) highest = peak;
    context.fillStyle = color("strip");
    context.fillRect(LEFT, 0, inner(), HEIGHT);
    context.beginPath();
    context.moveTo(LEFT, HEIGHT);
    for (let at = 0; at < batch.length; at += 1) context.lineTo(toX(batch[at]), HEIGHT - (HEIGHT - 4) * Math.max(0, peaks[at] / highest || 0));
    context.lineTo(LEFT + inner(), HEIGHT);
    context.fillStyle = color("strip-line");
    context.fill();
    const [from, to] = view().map(toX);
    context.fillStyle = color("strip-shade");
    context.fillRect(LEFT, 0, from - LEFT, HEIGHT);
    context.fillRect(to, 0, LEFT + inner() - to, HEIGHT);
    context.strokeStyle = color("accent");
    context.lineWidth = 1.5;
    context.strokeRect(from + 0.75, 0.75, Math.max(2, to - from - 1.5), HEIGHT - 1.5);
  }

  async function update() {
    series = await page.source.series(page.at, null, null, Math.max(200, Math.round(inner() / 2)));
    draw();
  }

  const at = (event) => event.clientX - canvas.getBoundingClientRect().left;
  canvas.onpointerdown = (event) => {
    canvas.setPointerCapture(event.pointerId);
    const [from, to] = view();
    const isWhole = from <= whole()[0] && to >= whole()[1];
    const batch = toBatch(at(event));
    drag = !isWhole && batch > from && batch < to ? { move: batch - from, width: to - from } : { begin: batch };
  };
  canvas.onpointermove = (event) => {
    if (!drag) return;
    const batch = toBatch(at(event));
    if (drag.width) zoom(batch - drag.move, batch - drag.move + drag.width);
    else if (Math.abs(toX(batch) - toX(drag.begin)) > 4) zoom(Math.min(batch, drag.begin), Math.max(batch, drag.begin));
  };
  canvas.onpointerup = () => {
    drag = null;
  };
  await update();
  return { draw, update };
}
