// Pan and zoom of an SVG picture with wheel, drag, pinch and keys. The page keeps its own scrolling until the picture has
// the focus or Ctrl is pressed.

const STEP = 1.25;
const KEYS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

export class PanZoom {
  /** Pans and zooms the picture in the frame, which takes the focus. */
  constructor(frame, picture, minScale = 0.8) {
    this.frame = frame;
    this.picture = picture;
    this.minScale = minScale;
    this.pointers = new Map();
    const { width, height } = picture.viewBox.baseVal;
    this.full = { x: 0, y: 0, width, height };
    this.view = { ...this.full };
    this.listen(new AbortController());
  }

  listen(controller) {
    this.controller = controller;
    const { signal } = controller;
    const on = (name, handler, more = {}) => this.frame.addEventListener(name, handler.bind(this), { signal, ...more });
    on("wheel", this.wheel, { passive: false });
    on("pointerdown", this.press);
    on("pointermove", this.move);
    on("pointerup", this.release);
    on("pointercancel", this.release);
    on("keydown", this.key);
  }

  end() {
    this.controller.abort();
  }

  /** User units per pixel of the frame, so that the whole view fits. */
  get unit() {
    const { clientWidth, clientHeight } = this.frame;
    return Math.max(this.view.width / Math.max(1, clientWidth), this.view.height / Math.max(1, clientHeight));
  }

  apply() {
    const { x, y, width, height } = this.view;
    this.picture.setAttribute("viewBox", `${x} ${y} ${width} ${height}`);
    this.frame.classList.toggle("zoomed", width < this.full.width * 0.98);
  }

  fit() {
    this.view = { ...this.full };
    this.apply();
  }

  /** Shows the whole picture if it is readable at that size, else the part around a point. */
  settle(x, y) {
    this.fit();
    const scale = 1 / this.unit;
    if (scale > 1.3) this.zoom(1.3 / scale);
    if (scale >= this.minScale) return;
    this.zoom(this.minScale / scale);
    this.reach(x, y);
  }

  zoom(by, at = null) {
    const { clientWidth, clientHeight } = this.frame;
    const unit = this.unit;
    const width = Math.min(this.full.width * 4, Math.max(60, (clientWidth * unit) / by));
    const factor = width / (clientWidth * unit);
    const centre = at ?? { x: this.view.x + this.view.width / 2, y: this.view.y + this.view.height / 2 };
    const left = this.view.x + this.view.width / 2 - (clientWidth * unit) / 2;
    const top = this.view.y + this.view.height / 2 - (clientHeight * unit) / 2;
    this.view = {
      x: centre.x - (centre.x - left) * factor, y: centre.y - (centre.y - top) * factor,
      width: clientWidth * unit * factor, height: clientHeight * unit * factor,
    };
    this.apply();
  }

  pan(dx, dy) {
    const unit = this.unit;
    this.view.x += dx * unit;
    this.view.y += dy * unit;
    this.apply();
  }

  /** Pans a point into view if it is outside or near the border. */
  reach(x, y) {
    const { width, height } = this.view;
    const within = (value, from, length) => value > from + length * 0.1 && value < from + length * 0.9;
    const clampView = (from, length, full, size) => (length >= size ? full + (size - length) / 2 : Math.max(full, Math.min(full + size - length, from)));
    if (!within(x, this.view.x, width)) this.view.x = clampView(x - width * 0.3, width, this.full.x, this.full.width);
    if (!within(y, this.view.y, height)) this.view.y = clampView(y - height / 2, height, this.full.y, this.full.height);
    this.apply();
  }

  point(event) {
    const box = this.frame.getBoundingClientRect();
    const unit = this.unit;
    return {
      x: this.view.x + this.view.width / 2 + (event.clientX - box.left - box.width / 2) * unit,
      y: this.view.y + this.view.height / 2 + (event.clientY - box.top - box.height / 2) * unit,
    };
  }

  wheel(event) {
    if (!event.ctrlKey && !event.metaKey && !this.frame.contains(document.activeElement)) return;
    event.preventDefault();
    this.zoom(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0015)), this.point(event));
  }

  press(event) {
    if (event.button !== 0) return;
    this.pointers.set(event.pointerId, event);
    if (event.pointerType === "mouse" || this.frame.classList.contains("zoomed")) this.frame.setPointerCapture(event.pointerId);
  }

  move(event) {
    const before = this.pointers.get(event.pointerId);
    if (!before) return;
    if (this.pointers.size === 2) {
      const [other] = [...this.pointers.values()].filter((pointer) => pointer.pointerId !== event.pointerId);
      const distance = (pointer) => Math.hypot(pointer.clientX - other.clientX, pointer.clientY - other.clientY);
      this.zoom(distance(event) / Math.max(1, distance(before)), this.point(event));
    } else {
      this.pan(before.clientX - event.clientX, before.clientY - event.clientY);
    }
    this.pointers.set(event.pointerId, event);
  }

  release(event) {
    this.pointers.delete(event.pointerId);
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const direction = KEYS[event.key];
    if (direction) this.pan(direction[0] * 60, direction[1] * 60);
    else if (event.key === "+" || event.key === "=") this.zoom(STEP);
    else if (event.key === "-") this.zoom(1 / STEP);
    else if (event.key === "0") this.fit();
    else return;
    event.preventDefault();
  }
}
