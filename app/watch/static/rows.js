// The rows that a filter lets through, in their order, kept up to date as rows come, change and go.

export class ShownRows {
  constructor(store) {
    this.store = store;
    this.list = [];
    this.removed = 0; // rows that went from the beginning of the list so far
    this._test = () => true;
    this._nextSeq = 0;
    this.until = Infinity; // rows from this number on are held back
  }

  setTest(test) {
    this._test = test;
    this._rebuild();
  }

  // Holds back all rows that come from now on, or shows them.
  hold(isHeld) {
    const {rows} = this.store;
    this.until = isHeld ? (rows.length ? rows.at(-1).seq + 1 : 0) : Infinity;
    if (!isHeld) this.update();
  }

  get heldBack() {
    return this.until === Infinity ? 0 : this.store.rows.length - firstAt(this.store.rows, this.until);
  }

  _rebuild() {
    this.store.takeChanged();
    this.list = [];
    this._nextSeq = 0;
    this.update();
  }

  update() {
    const {rows} = this.store;
    const first = rows.length ? rows[0].seq : Infinity;
    const gone = firstAt(this.list, first);
    if (gone) this.list.splice(0, gone);
    this.removed += gone;
    for (const row of this.store.takeChanged()) if (row.seq < this._nextSeq) this._place(row);
    const end = firstAt(rows, this.until);
    for (let i = firstAt(rows, this._nextSeq); i < end; i++) if (this._isShown(rows[i])) this.list.push(rows[i]);
    if (end > 0) this._nextSeq = Math.max(this._nextSeq, rows[end - 1].seq + 1);
  }

  // Returns the place of a row in the list, -1 if it is not there.
  placeOf(row) {
    const at = firstAt(this.list, row.seq);
    return this.list[at] === row ? at : -1;
  }

  _isShown(row) {
    return row.type === "gap" || row.type === "restart" || this._test(row);
  }

  // A row that has changed may begin or cease to be shown.
  _place(row) {
    const at = firstAt(this.list, row.seq);
    const isThere = this.list[at] === row;
    if (this._isShown(row) === isThere || row.seq >= this.until) return;
    if (isThere) this.list.splice(at, 1);
    else if (!this.store.rows.length || row.seq >= this.store.rows[0].seq) this.list.splice(at, 0, row);
  }
}

// Returns the place of the first row with this number or a larger one.
export const firstAt = (rows, seq) => {
  let [low, high] = [0, rows.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (rows[middle].seq < seq) low = middle + 1;
    else high = middle;
  }
  return low;
};
